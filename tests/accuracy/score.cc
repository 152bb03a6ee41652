#include "score.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "base/check.h"

namespace distsetup::accuracy {
namespace {

double quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0;
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - static_cast<double>(below));
}

// The 40 rows of published torchtitan runs that a replay of their allocations was first shown on: FSDP1, FSDP2 (one with TP), eager
// and compiled; without activation offload, eager fp8, async TP and traced FSDP.
bool is_replay_row(const Scored& s) {
  static const std::set<std::string> ids = [] {
    std::set<std::string> all;
    const auto add = [&](int from, int to) {
      for (int i = from; i <= to; ++i) all.insert("TT-" + std::string(i < 10 ? "00" : i < 100 ? "0" : "") + std::to_string(i));
    };
    add(1, 6);
    add(47, 55);
    add(58, 62);
    add(66, 70);
    add(72, 74);
    add(76, 87);
    return all;
  }();
  return ids.contains(s.row.id);
}

bool is_titan(const Scored& s) { return s.row.text("framework").starts_with("torchtitan"); }

using Filter = std::function<bool(const Scored&)>;

std::vector<double> errors(const std::vector<Scored>& rows, Metric metric, Column column, const Filter& filter) {
  std::vector<double> all;
  for (const Scored& row : rows) {
    if (!filter(row)) continue;
    for (const Measurement& m : row.measured) {
      if (m.metric == metric && predicted_value(row, metric, column) > 0) all.push_back(relative_error(row, m, column));
    }
  }
  return all;
}

ScoreLine line(const std::vector<Scored>& rows, std::string name, Metric metric, std::vector<Limit> limits, const Filter& filter) {
  ScoreLine line;
  line.name = std::move(name);
  line.limits = std::move(limits);
  for (const Column column : kColumns) {
    const Statistics s = statistics(errors(rows, metric, column, filter));
    line.n = s.n;
    for (const Limit& limit : line.limits) {
      line.by_column[static_cast<size_t>(column)].push_back(limit.what == "max" ? s.max : limit.what == "median" ? s.median : s.mape);
    }
  }
  return line;
}

ScoreLine percent_line(std::string name, int n, int of, double reach) {
  const double value = of == 0 ? 0 : 100.0 * n / of;
  ScoreLine line;
  line.name = std::move(name);
  line.n = of;
  line.limits = {{"percent", reach}};
  for (std::vector<double>& column : line.by_column) column = {value};
  return line;
}

}  // namespace

Statistics statistics(std::vector<double> relative) {
  Statistics s;
  s.n = static_cast<int>(relative.size());
  if (relative.empty()) return s;
  for (double& e : relative) {
    s.bias += 100 * e / s.n;
    e = 100 * std::abs(e);
    s.mape += e / s.n;
  }
  std::sort(relative.begin(), relative.end());
  s.median = quantile(relative, 0.5);
  s.p90 = quantile(relative, 0.9);
  s.max = relative.back();
  return s;
}

Setup unseen_setup(const Scored& row) {
  Setup setup = row.setup;
  if (!row.first_program.empty()) setup.program = row.first_program;
  return setup;
}

double predicted_value(const Scored& row, Metric metric, Column column) {
  const double first = row.first_sight[static_cast<size_t>(metric)];
  if (column == Column::kHeldOutCodeBase && first > 0) return first;
  return metric == Metric::kTokensPerSecond ? row.tokens_per_s[static_cast<size_t>(column)] : row.prediction.of(metric);
}

std::string block_name(const Scored& row) { return row.row.block + (row.is_transfer ? "*" : ""); }

double relative_error(const Scored& row, const Measurement& measured, Column column) {
  return predicted_value(row, measured.metric, column) / measured.value - 1;
}

std::vector<BlockScore> block_scores(const std::vector<Scored>& rows) {
  std::vector<std::string> blocks;
  for (const Scored& row : rows) {
    if (std::find(blocks.begin(), blocks.end(), block_name(row)) == blocks.end()) blocks.push_back(block_name(row));
  }
  std::vector<BlockScore> scores;
  for (const std::string& block : blocks) {
    for (const Metric metric : kMetrics) {
      BlockScore score{block, metric, {}};
      for (const Column column : kColumns) {
        score.by_column[static_cast<size_t>(column)] =
            statistics(errors(rows, metric, column, [&](const Scored& s) { return block_name(s) == block; }));
      }
      if (score.by_column[0].n > 0) scores.push_back(score);
    }
  }
  return scores;
}

bool ScoreLine::reached() const {
  for (const Column column : {Column::kHeldOutBlock, Column::kHeldOutModel}) {
    for (size_t i = 0; i < limits.size(); ++i) {
      if (by_column[static_cast<size_t>(column)][i] > limits[i].reach + 1e-9) return false;
    }
  }
  return true;
}

// Of measured.csv and b200.csv, so that a line says the same from one version to the next.
std::vector<ScoreLine> score_lines(const std::vector<Scored>& all_rows) {
  std::vector<Scored> rows;
  std::copy_if(all_rows.begin(), all_rows.end(), std::back_inserter(rows), [](const Scored& s) { return !s.is_transfer; });
  std::vector<ScoreLine> lines;
  const auto add = [&](std::string name, Metric metric, std::vector<Limit> limits, const Filter& filter) {
    lines.push_back(line(rows, std::move(name), metric, std::move(limits), filter));
  };
  const auto in_block = [](std::string block) { return [block = std::move(block)](const Scored& s) { return s.row.block == block; }; };
  const auto is_core = [](const Scored& s) { return s.setup.framework == Framework::kMegatron && s.setup.program == "megatron_te"; };
  add("allocated: fms-acceleration, full", Metric::kAllocated, {{"mape", 0.5}, {"max", 2}},
      [](const Scored& s) { return s.row.block == "FMSA" && s.setup.finetune == Finetune::kFull; });
  add("allocated: fms-acceleration, all", Metric::kAllocated, {{"mape", 1.5}}, in_block("FMSA"));
  add("allocated: Megatron dense", Metric::kAllocated, {{"mape", 0.3}, {"max", 1}},
      [&](const Scored& s) { return is_core(s) && s.setup.model.num_experts == 0; });
  add("allocated: Megatron experts and MLA", Metric::kAllocated, {{"mape", 0.6}},
      [&](const Scored& s) { return is_core(s) && s.setup.model.num_experts > 0; });
  add("allocated: torchtitan and thunder FSDP2", Metric::kAllocated, {{"mape", 3}}, [](const Scored& s) {
    return s.setup.framework == Framework::kFsdp2 && (is_titan(s) || s.row.says("framework", "litgpt benchmark"));
  });
  add("reserved: torchtitan, the 40 rows", Metric::kReserved, {{"mape", 2}, {"median", 0.7}}, is_replay_row);
  add("reserved: all others", Metric::kReserved, {{"mape", 8}}, [](const Scored& s) { return !is_replay_row(s); });
  const FitScore fit = fit_score(rows);
  lines.push_back(percent_line("ran out of memory, called fits (%)", static_cast<int>(fit.wrong_fits.size()), fit.ran_out, 0));
  lines.push_back(percent_line("ran, called does_not_fit (%)", static_cast<int>(fit.wrong_noes.size()), fit.ran, 2));
  lines.push_back(percent_line("ran, called tight (%)", static_cast<int>(fit.tight.size()), fit.ran, 8));
  const auto foundry = [](std::string gpu) {
    return [gpu = std::move(gpu)](const Scored& s) {
      return s.row.says("framework", "llm-foundry") && s.setup.gpu.name.starts_with(gpu);
    };
  };
  add("tokens/s: llm-foundry A100", Metric::kTokensPerSecond, {{"mape", 4}}, foundry("a100"));
  add("tokens/s: llm-foundry H100", Metric::kTokensPerSecond, {{"mape", 6}}, foundry("h100"));
  add("tokens/s: torchtitan eager", Metric::kTokensPerSecond, {{"mape", 8}},
      [](const Scored& s) { return is_titan(s) && !s.setup.compiled && s.setup.fp8 == Fp8Recipe::kNone; });
  add("tokens/s: torchtitan compiled", Metric::kTokensPerSecond, {{"mape", 8}},
      [](const Scored& s) { return is_titan(s) && s.setup.compiled && s.setup.fp8 == Fp8Recipe::kNone; });
  add("tokens/s: torchtitan fp8", Metric::kTokensPerSecond, {{"mape", 10}},
      [](const Scored& s) { return is_titan(s) && s.setup.fp8 != Fp8Recipe::kNone; });
  add("tokens/s: Megatron-Bridge, NeMo, DGX Cloud", Metric::kTokensPerSecond, {{"mape", 8}},
      [](const Scored& s) { return s.row.block == "MB" || s.row.block == "NEMO" || s.row.block == "DGXC"; });
  add("step time: Megatron-LM 22B to 1T", Metric::kTokensPerSecond, {{"mape", 3.5}, {"max", 8}}, in_block("MLM"));
  return lines;
}

FitScore fit_score(const std::vector<Scored>& rows, Intervals intervals) {
  FitScore score;
  for (const double from : {0.0, 0.02, 0.2, 0.4, 0.6, 0.8, 0.9, 0.98}) score.reliability.push_back({from, 1.01, 0, 0, 0});
  for (size_t i = 0; i + 1 < score.reliability.size(); ++i) score.reliability[i].to = score.reliability[i + 1].from;
  for (const Scored& row : rows) {
    const bool ran = !row.row.ran_out();
    const double p = intervals == Intervals::kShipped ? row.fit_probability : row.left_out_fit_probability;
    (ran ? score.ran : score.ran_out) += 1;
    const Verdict verdict = verdict_of(p);
    if (!ran && verdict == Verdict::kFits) score.wrong_fits.push_back(row.row.id);
    if (ran && verdict == Verdict::kDoesNotFit) score.wrong_noes.push_back(row.row.id);
    if (ran && verdict == Verdict::kTight) score.tight.push_back(row.row.id);
    score.brier += (p - ran) * (p - ran) / static_cast<double>(rows.size());
    for (FitScore::Said& said : score.reliability) {
      if (p < said.from || p >= said.to) continue;
      ++said.n;
      said.ran += ran ? 1 : 0;
      said.mean += p;
    }
  }
  for (FitScore::Said& said : score.reliability) said.mean /= std::max(1, said.n);
  const double share = rows.empty() ? 0 : static_cast<double>(score.ran) / static_cast<double>(rows.size());
  score.brier_of_share = share * (1 - share);
  return score;
}

}  // namespace distsetup::accuracy
