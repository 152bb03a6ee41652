// distsetup-accuracy: scores the planner's predictions against measured runs, refits the constants, writes the stored table.
//   distsetup-accuracy --source DIR [FILE.csv ...] [--json]      without a file: the rows under tests/accuracy
//   distsetup-accuracy --source DIR --halves SEED                widths from half of the code bases, held against the other half
//   distsetup-accuracy --source DIR --check                      also fails when a score got worse than tests/accuracy/table.json
//   distsetup-accuracy --source DIR --update                     writes table.txt, table.json and presets/calibration/residuals.yaml
//   distsetup-accuracy --source DIR --fit [BLOCK ...]            refits presets/calibration/time.yaml (to all blocks when none is
//   named)
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/value.h"
#include "base/value_yaml.h"
#include "code_bases.h"
#include "planner/frameworks/fsdp_lengths.h"
#include "planner/report/need.h"
#include "planner/time/embedded_calibration.h"
#include "report.h"

namespace distsetup::accuracy {
namespace {

struct Options {
  std::string source = ".";
  std::vector<std::string> files, blocks;
  int halves = -1;  // the seed
  bool json = false, check = false, update = false, fit = false, quick = false;
};

struct Loaded {
  std::vector<Scored> scored;
  std::vector<Unmapped> unmapped;
  size_t num_rows = 0;
};

int fail(const Diagnostics& diagnostics) {
  std::fputs(format_diagnostics(diagnostics).c_str(), stderr);
  return 3;
}

// A row that says nothing of where it was printed: no prediction may depend on it.
Row anonymous(Row row) {
  for (size_t i = 0; i < columns().size(); ++i) {
    if (columns()[i] == "id" || columns()[i].starts_with("source_")) row.cells[i].clear();
  }
  row.id.clear();
  row.block.clear();
  return row;
}

Result<Loaded> load(const std::vector<std::string>& files, const CodeBases& bases) {
  Loaded all;
  for (const std::string& file : files) {
    const Result<std::string> text = read_file(file);
    if (!text) return text.diagnostics;
    Result<std::vector<Row>> rows = read_rows(*text, file);
    if (!rows) return rows.diagnostics;
    all.num_rows += rows->size();
    const bool is_transfer = file.ends_with("accuracy/transfer.csv");
    for (Row& row : *rows) {
      Result<Setup> setup = row_setup(row);
      if (!setup) {
        all.unmapped.push_back({row.id, row.block + (is_transfer ? "*" : ""), setup.diagnostics.front().message});
        continue;
      }
      const Result<Setup> same = row_setup(anonymous(row));
      if (!same || *same != *setup)
        return error(code::kWrongType, row.location, fmt::format("{} is mapped otherwise without its id and source", row.id));
      Scored s;
      s.measured = measurements(row);
      const CodeBase* base = code_base_of(bases, row);
      s.code_base = base == nullptr ? row.text("framework") : base->name;
      if (const auto first = bases.first_sight.find(row.id); first != bases.first_sight.end()) {
        s.first_program = first->second.program;
        std::copy(std::begin(first->second.predicted), std::end(first->second.predicted), std::begin(s.first_sight));
      }
      s.weight = base == nullptr ? 1 : base->weight;
      s.is_transfer = is_transfer;
      s.row = std::move(row);
      s.setup = std::move(*setup);
      all.scored.push_back(std::move(s));
    }
  }
  return all;
}

// Rows whose tokens/s say little about the trainer: data loading, padding or a handful of tokens set the pace.
bool teaches_time(const Scored& s) {
  for (const std::string_view why :
       {"low-occupancy", "bubble-bound", "not comparable", "start-up of the loop", "unpadded", "seq not stated"}) {
    if (s.row.says("notes", why)) return false;
  }
  return std::any_of(s.measured.begin(), s.measured.end(), [](const Measurement& m) { return m.metric == Metric::kTokensPerSecond; });
}

double measured_tokens(const Scored& s) {
  for (const Measurement& m : s.measured) {
    if (m.metric == Metric::kTokensPerSecond) return m.value;
  }
  return 0;
}

// A block counts as much as the square root of its rows: many rows of one table share every hidden constant.
struct Teaching {
  std::vector<const Scored*> rows;
  std::vector<Observation> observations;
};
Teaching teaching(const std::vector<Scored>& scored, const std::vector<std::string>& blocks) {
  Teaching t;
  std::map<std::string, int> size;
  for (const Scored& s : scored) {
    if (!teaches_time(s)) continue;
    if (!blocks.empty() && std::find(blocks.begin(), blocks.end(), s.row.block) == blocks.end()) continue;
    t.rows.push_back(&s);
    ++size[s.row.block];
  }
  for (const Scored* s : t.rows)
    t.observations.push_back({&s->setup, measured_tokens(*s), 4 * s->weight / std::sqrt(size[s->row.block] + 1.0)});
  return t;
}

Calibration without_residuals(const Calibration& all) {
  Calibration rest;
  for (const auto& [name, value] : all.constants) {
    if (!name.starts_with("residual.") && !name.starts_with("measured.") && !name.starts_with("unseen.")) rest.constants[name] = value;
  }
  return rest;
}

// Start values: datasheets and papers (start.yaml); a constant that is missing there starts where it is.
Result<Calibration> start_values(const std::string& source) {
  const Result<Value> value = read_yaml_file(source + "/tests/accuracy/start.yaml");
  if (!value) return value.diagnostics;
  Result<Calibration> start = calibration_from_value(*value);
  if (!start) return start;
  Calibration all = without_residuals(embedded_calibration());
  for (const auto& [name, number] : start->constants) {
    if (all.constants.contains(name)) all.constants[name] = number;
  }
  return all;
}

// Tokens/s with the shipped constants, and refitted without each block, each model and each code base (`quick`: shipped everywhere).
void predict_time(std::vector<Scored>& rows, const std::vector<Scored>& training, const Calibration& start, bool quick) {
  const Calibration shipped = without_residuals(embedded_calibration());
  in_parallel(rows.size(), [&](size_t i) {
    rows[i].prediction.tokens_per_s_per_gpu = predict_tokens_per_s_per_gpu(rows[i].setup, shipped);
    std::fill(std::begin(rows[i].tokens_per_s), std::end(rows[i].tokens_per_s), rows[i].prediction.tokens_per_s_per_gpu);
  });
  if (quick) return;
  const Teaching taught = teaching(training, {});
  Fitter fitter(taught.observations, start);
  fitter.fit(shipped, 0);  // the Jacobian at the shipped constants
  const auto key = [](const Scored& s, Column column) -> const std::string& {
    return column == Column::kHeldOutBlock ? s.row.block : column == Column::kHeldOutModel ? s.setup.model.name : s.code_base;
  };
  // By the observations left out: what is asked twice, for a block that is a whole code base, is fitted once.
  std::map<std::vector<bool>, std::vector<std::pair<size_t, Column>>> folds;
  for (const Column column : {Column::kHeldOutBlock, Column::kHeldOutModel, Column::kHeldOutCodeBase}) {
    std::map<std::string, std::vector<size_t>> members;
    for (size_t i = 0; i < rows.size(); ++i) members[key(rows[i], column)].push_back(i);
    for (const auto& [name, indices] : members) {
      std::vector<bool> left_out;
      for (const Scored* s : taught.rows) left_out.push_back(key(*s, column) == name);
      for (const size_t i : indices) folds[left_out].push_back({i, column});
    }
  }
  std::vector<const std::pair<const std::vector<bool>, std::vector<std::pair<size_t, Column>>>*> list;
  for (const auto& fold : folds) list.push_back(&fold);
  in_parallel(list.size(), [&](size_t n) {
    const auto& [left_out, wanted] = *list[n];
    const bool any = std::find(left_out.begin(), left_out.end(), true) != left_out.end();
    const Calibration constants = any ? fitter.refit_without(left_out, 3) : shipped;
    for (const auto& [i, column] : wanted)
      rows[i].tokens_per_s[static_cast<size_t>(column)] = predict_tokens_per_s_per_gpu(rows[i].setup, constants);
  });
}

void predict_bytes(std::vector<Scored>& rows) {
  in_parallel(rows.size(), [&](size_t i) {
    Scored& s = rows[i];
    const double tokens = s.prediction.tokens_per_s_per_gpu;
    s.prediction = predict_memory(s.setup);
    s.prediction.tokens_per_s_per_gpu = tokens;
    // torchtune's peaks are of a step (get_memory_stats resets them), and so of what a step is usually padded to.
    if (s.setup.sample_lengths.mean <= 0 || !s.row.says("framework", "torchtune")) return;
    Setup usual = replay::padded(s.setup);
    usual.sample_lengths = {};
    s.prediction.allocated_gib = predict_memory(usual).allocated_gib;
  });
}

// What the run needs is replayed only where what it takes leaves a doubt.
double predict_fit(Scored& s, const Calibration& residual_constants) {
  constexpr double kGib = 1024.0 * 1024 * 1024, kNoDoubt = 0.995;
  const double at_most = s.prediction.ran_out ? 0 : fit_probability(s.setup, s.prediction.device_gib * kGib, residual_constants);
  if (at_most >= kNoDoubt) return at_most;
  // Nor where what is allocated at once is far too much.
  const double least = s.prediction.allocated_gib * kGib + static_cast<double>(s.setup.gpu.context_bytes);
  const double at_best = fit_probability(s.setup, least, residual_constants);
  if (at_best <= 1 - kNoDoubt) return at_best;
  if (s.need_bytes == 0) s.need_bytes = replay_need(s.setup).bytes;
  return fit_probability(s.setup, static_cast<double>(s.need_bytes), residual_constants);
}

// What a source leaves open may decide: where the row is read as without recomputation, or as of one sample a micro-batch where the
// tool's default is eight (Hugging Face's TrainingArguments), each reading is as likely.
std::vector<Scored> other_readings(const Scored& s) {
  constexpr int64_t kTrainerBatch = 8;
  const bool open_recompute =
      s.row.text("activation_ckpt").empty() && s.setup.recompute == ActivationRecompute::kNone && s.setup.recompute_modules.empty();
  const bool open_batch = s.row.text("micro_batch_per_gpu").empty() && s.row.text("framework").starts_with("HF Trainer");
  std::vector<Scored> others;
  for (int reading = 1; reading < 4; ++reading) {
    const bool recomputes = reading % 2 == 1, is_default_batch = reading / 2 == 1;
    if ((recomputes && !open_recompute) || (is_default_batch && !open_batch)) continue;
    Scored other = s;
    if (recomputes) other.setup.recompute = ActivationRecompute::kFull;
    if (is_default_batch) other.setup.micro_batch = kTrainerBatch;
    other.need_bytes = 0;
    other.prediction = predict_memory(other.setup);
    others.push_back(std::move(other));
  }
  return others;
}

void predict_verdicts(std::vector<Scored>& rows, const Calibration& residual_constants, const ResidualsByCodeBase& without) {
  in_parallel(rows.size(), [&](size_t i) {
    Scored& s = rows[i];
    const auto others = without.find(s.code_base);
    const Calibration& left_out = others == without.end() ? residual_constants : others->second;
    double sum = predict_fit(s, residual_constants), left_out_sum = predict_fit(s, left_out);
    std::vector<Scored> readings = other_readings(s);
    for (Scored& other : readings) {
      sum += predict_fit(other, residual_constants);
      left_out_sum += predict_fit(other, left_out);
    }
    const auto count = static_cast<double>(1 + readings.size());
    s.fit_probability = sum / count;
    s.left_out_fit_probability = left_out_sum / count;
  });
}

// The comment lines of a calibration file, which a fit keeps.
std::string leading_comment(const std::string& text) {
  std::string comment;
  size_t at = 0;
  while (at < text.size() && text[at] == '#') {
    const size_t end = std::min(text.find('\n', at), text.size() - 1);
    comment += text.substr(at, end - at + 1);
    at = end + 1;
  }
  return comment;
}

bool write(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) std::fprintf(stderr, "cannot write %s\n", path.c_str());
  return static_cast<bool>(out);
}

int run_fit(const Options& options, const Loaded& training, const Calibration& start) {
  const std::string path = options.source + "/presets/calibration/time.yaml";
  const Result<std::string> text = read_file(path);
  if (!text) return fail(text.diagnostics);
  const Result<Value> value = parse_yaml(*text, path);
  if (!value) return fail(value.diagnostics);
  const Result<Calibration> in_file = calibration_from_value(*value);
  if (!in_file) return fail(in_file.diagnostics);
  const Teaching taught = teaching(training.scored, options.blocks);
  Fitter fitter(taught.observations, start);
  const FitState before = fitter.fit(without_residuals(embedded_calibration()), 0);
  const FitState after = fitter.fit(before.constants, 12);
  Calibration written;
  for (const auto& [name, number] : in_file->constants) written.constants[name] = after.constants.get(name, number);
  std::string fitted = calibration_text(written, leading_comment(*text));
  const std::string version = "version: 1\n";
  fitted.insert(
      fitted.find(version) + version.size(),
      "source: \"measured training runs in tests/accuracy/measured.csv and b200.csv (scripts/fit)\"\ndate: \"2026-11-21\"\n");
  if (!write(path, fitted)) return 1;
  std::printf("%zu rows, %zu constants; loss %.5f -> %.5f\n", taught.rows.size(), in_file->constants.size(), before.loss, after.loss);
  return 0;
}

int run_halves(const std::vector<Scored>& rows, int seed) {
  constexpr int kDraws = 20;
  for (const Halves& one : score_halves(rows, kDraws, static_cast<uint64_t>(seed))) {
    HalfDraw mean, least{1, 1};
    for (const HalfDraw& draw : one.draws) {
      mean.inside += draw.inside / kDraws;
      mean.inside_by_code_base += draw.inside_by_code_base / kDraws;
      least.inside = std::min(least.inside, draw.inside);
    }
    std::printf(
        "%-6s %d draws of half of the code bases, seed %d: %.1f %% inside (least %.1f %%), mean over code bases %.1f %%, "
        "median half-width %.1f %%\n",
        one.group.c_str(), kDraws, seed, 100 * mean.inside, 100 * least.inside, 100 * mean.inside_by_code_base,
        100 * one.median_half_width);
  }
  return 0;
}

int run_update(const Options& options, const Scoreboard& board, const Calibration& residual_constants) {
  const std::string comment =
      "# log(measured / predicted) at both ends of n held-out rows: of tokens/s the 5th (low) and 95th (high) percentile, of memory "
      "the\n"
      "# 4th and 96th, over the share of the prediction that is not parameters and states. By quantity and class: 90 % intervals.\n"
      "# unseen: the same logarithms, both sides, of code bases left out, and how many times as wide they are for code that nobody\n"
      "# has read; measured: how many runs have a property (planner/report/uncertainty.h, residual_classes). Written by\n"
      "# scripts/accuracy --update.\n";
  std::string text = calibration_text(residual_constants, comment);
  const std::string version = "version: 1\n";
  text.insert(text.find(version) + version.size(), "source: \"measured training runs in tests/accuracy\"\ndate: \"2026-11-21\"\n");
  const std::string folder = options.source + "/tests/accuracy/";
  const bool ok = write(options.source + "/presets/calibration/residuals.yaml", text) &&
                  write(folder + "table.txt", to_table(board)) && write(folder + "table.json", dump_json(stored_scores(board)));
  return ok ? 0 : 1;
}

int run(const Options& options) {
  const std::string folder = options.source + "/tests/accuracy/";
  const std::vector<std::string> fitted = {folder + "measured.csv", folder + "b200.csv"};
  std::vector<std::string> own = fitted;
  own.push_back(folder + "transfer.csv");
  const Result<CodeBases> bases = read_code_bases(folder + "code_bases.yaml", folder + "first_sight.yaml");
  if (!bases) return fail(bases.diagnostics);
  Result<Loaded> training = load(fitted, *bases);
  if (!training) return fail(training.diagnostics);
  const Result<Calibration> start = start_values(options.source);
  if (!start) return fail(start.diagnostics);
  if (options.fit) return run_fit(options, *training, *start);
  Result<Loaded> scored = load(options.files.empty() ? own : options.files, *bases);
  if (!scored) return fail(scored.diagnostics);
  predict_time(scored->scored, training->scored, *start, options.quick && !options.update);
  predict_bytes(scored->scored);
  if (options.halves >= 0) return run_halves(scored->scored, options.halves);
  // Rows of a file are held against the shipped intervals: its code bases are not in them, unless they are ours.
  const ResidualsByCodeBase without = options.files.empty() ? residuals_without_each(scored->scored) : ResidualsByCodeBase{};
  Calibration residual_constants = embedded_calibration();
  if (options.update) {
    residual_constants = residuals(scored->scored);
    residual_constants.constants.merge(fit_unseen(scored->scored).constants);
  }
  predict_verdicts(scored->scored, residual_constants, without);
  Scoreboard board{scored->num_rows, std::move(scored->scored), std::move(scored->unmapped), {}};
  board.left_out = leave_out_score(board.rows, without, residual_constants);
  if (options.update) return run_update(options, board, residual_constants);
  std::fputs(options.json ? dump_json(to_json(board)).c_str() : to_table(board).c_str(), stdout);
  if (!options.check) return 0;
  const Result<std::string> stored = read_file(folder + "table.json");
  if (!stored) return fail(stored.diagnostics);
  const std::vector<std::string> worse = worse_than(Json::parse(*stored), stored_scores(board));
  for (const std::string& line : worse) std::fprintf(stderr, "worse: %s\n", line.c_str());
  return worse.empty() ? 0 : 7;
}

}  // namespace
}  // namespace distsetup::accuracy

int main(int argc, char** argv) {
  distsetup::accuracy::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--source" && i + 1 < argc) {
      options.source = argv[++i];
    } else if (argument == "--halves" && i + 1 < argc) {
      options.halves = std::atoi(argv[++i]);
    } else if (argument == "--quick") {
      options.quick = true;
    } else if (argument == "--json") {
      options.json = true;
    } else if (argument == "--check") {
      options.check = true;
    } else if (argument == "--update") {
      options.update = true;
    } else if (argument == "--fit") {
      options.fit = true;
    } else if (argument.starts_with("--")) {
      std::fprintf(stderr,
                   "unknown option '%s' (distsetup-accuracy --source DIR [FILE.csv ...] [--json] [--quick] [--halves SEED] [--check] "
                   "[--update] "
                   "[--fit BLOCK ...])\n",
                   argv[i]);
      return 2;
    } else {
      (options.fit ? options.blocks : options.files).push_back(argument);
    }
  }
  return distsetup::accuracy::run(options);
}
