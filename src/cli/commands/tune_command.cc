// `distsetup tune`: short runs of the bundled trainer, one after the other, over a grid of settings, ranked by the loss they reach.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/clock.h"
#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_text.h"
#include "base/own_program.h"
#include "base/quantity.h"
#include "base/subprocess.h"
#include "cli/commands/commands.h"
#include "cli/line/output.h"
#include "cli/settings/run_source.h"
#include "cli/settings/trials.h"
#include "cli/settings/varied.h"
#include "plan/plan_json.h"
#include "planner/report/text_layout.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostVaried = 4;
constexpr size_t kMostTrials = 1000;

struct TunedRun {
  Combination settings;
  std::string folder, problem;  // "": it was trained to its end
  std::optional<double> loss, held_out_loss;
  // What runs are ranked by.
  std::optional<double> score() const { return held_out_loss ? held_out_loss : loss; }
};

std::optional<double> finite_number(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number() || !std::isfinite(found->get<double>())) return std::nullopt;
  return found->get<double>();
}

// The losses of a run that has come to its end.
bool read_result(TunedRun& run) {
  const Result<std::string> text = read_file((fs::path(run.folder) / "report.json").string());
  if (!text.ok()) return false;
  const Json report = json_from_text(*text);
  if (!report.is_object() || report.value("status", "") != "completed") return false;
  run.loss = finite_number(report, "loss");
  run.held_out_loss = finite_number(report, "held_out_loss");
  return run.score().has_value();
}

// Writes the plan into the run's folder. Errors: the folder holds another plan.
Diagnostics place_plan(Plan plan, const std::string& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  move_inputs(plan, ".", folder);
  const std::string path = (fs::path(folder) / "plan.json").string(), text = dump_json(to_json(plan));
  if (fs::exists(path, failure)) {
    const Result<std::string> there = read_file(path);
    if (!there.ok()) return there.diagnostics;
    if (*there == text) return {};
    return {error(code::kFileExists, {path}, fmt::format("'{}' holds another run's plan", folder),
                  "name another --output, or remove that folder")};
  }
  return write_file_atomic(path, text, Overwrite::kRefuse).diagnostics;
}

// "": it ran to its end. What it prints goes into log.txt.
std::string train_run(const TunedRun& run) {
  std::ofstream log(fs::path(run.folder) / "log.txt", std::ios::app);
  const Said said = follow_program({own_program().string(), "launch", "--plan", (fs::path(run.folder) / "plan.json").string()},
                                   [&](std::string_view line) {
                                     log << line << '\n';
                                     return true;
                                   });
  log << said.text;
  if (!said.started) return "the launcher could not be started";
  if (said.code == 0) return "";
  return fmt::format("it ended with exit code {}, see {}", said.code, (fs::path(run.folder) / "log.txt").string());
}

std::string loss_text(const std::optional<double>& loss) { return loss ? fmt::format("{:.4f}", *loss) : "-"; }

void tune_one(const Terminal& terminal, const Trial& trial, TunedRun& run) {
  if (!trial.plan) {
    run.problem = trial.refused;
    return;
  }
  if (trial.plan->verdict == Verdict::kDoesNotFit) {
    run.problem = "it does not fit";
    return;
  }
  if (Diagnostics said = place_plan(*trial.plan, run.folder); has_error(said)) {
    run.problem = said.front().message;
    return;
  }
  const double begin_s = now_s();
  const bool is_there = read_result(run);
  if (!is_there) run.problem = train_run(run);
  if (run.problem.empty() && !is_there && !read_result(run)) run.problem = "its loss is not finite";
  mention(terminal,
          fmt::format("{}  {}  {}\n", trial.value,
                      run.problem.empty() ? fmt::format("loss {}, held out {}", loss_text(run.loss), loss_text(run.held_out_loss))
                                          : run.problem,
                      is_there ? "trained before" : format_duration(now_s() - begin_s)));
}

// Best first, then those without a result.
void rank(std::vector<TunedRun>& runs) {
  std::stable_sort(runs.begin(), runs.end(), [](const TunedRun& a, const TunedRun& b) {
    if (a.score().has_value() != b.score().has_value()) return a.score().has_value();
    return a.score().has_value() && *a.score() < *b.score();
  });
}

Json tuned_json(const std::vector<VariedSetting>& varied, const std::vector<TunedRun>& runs) {
  Json over = Json::array(), rows = Json::array();
  for (const VariedSetting& setting : varied) over.push_back(setting.path);
  for (const TunedRun& run : runs) {
    Json row = {{"folder", run.folder}, {"settings", Json::object()}};
    for (const auto& [path, value] : run.settings) row["settings"][path] = value;
    if (run.loss) row["loss"] = *run.loss;
    if (run.held_out_loss) row["held_out_loss"] = *run.held_out_loss;
    if (!run.problem.empty()) row["problem"] = run.problem;
    rows.push_back(std::move(row));
  }
  return {{"schema_version", 1}, {"over", over}, {"runs", rows}};
}

std::string tuned_text(const std::vector<VariedSetting>& varied, const std::vector<TunedRun>& runs) {
  int width = display_width(heading_of(varied));
  for (const TunedRun& run : runs) width = std::max(width, display_width(label_of(run.settings)));
  std::string text = pad_right(heading_of(varied), width) + pad_left("loss", 10) + pad_left("held-out", 10) + "  folder\n";
  for (const TunedRun& run : runs)
    text += pad_right(label_of(run.settings), width) + pad_left(loss_text(run.loss), 10) + pad_left(loss_text(run.held_out_loss), 10) +
            "  " + (run.problem.empty() ? run.folder : run.problem) + "\n";
  if (!runs.front().score()) return text;
  text += "best:";
  for (size_t i = 0; i < varied.size(); ++i) text += fmt::format(" --set {}={}", varied[i].path, runs.front().settings[i].second);
  return text + "\n";
}

// What cannot be trained at all, before the first run begins.
Diagnostics check_trials(const std::vector<Trial>& trials) {
  for (const Trial& trial : trials) {
    if (!trial.plan) continue;
    if (trial.plan->strategy.trainer != kNative)
      return {error(code::kUnsupportedFeature, command_line(), "runs are trained by the bundled trainer, the plan is for another",
                    "--trainer native")};
    if (trial.plan->data.files.empty())
      return {error(code::kMissingArgument, command_line(), "runs are trained, and there are no data to train on", "--data FOLDER")};
    return {};
  }
  return {error(code::kNothingFits, command_line(),
                fmt::format("none of {} runs can be planned: {}", trials.size(), trials.front().refused))};
}

int run_tune(const Arguments& arguments, const Terminal& terminal) {
  const Result<std::vector<VariedSetting>> varied = read_varied(arguments, kMostVaried);
  if (!varied.ok()) return fail(arguments, terminal, varied.diagnostics);
  if (!arguments.has("output"))
    return fail(arguments, terminal,
                {error(code::kMissingArgument, command_line(), "no --output, expected a folder for the runs", "--output tuning")});
  const Result<Session> session = open_session(arguments);
  if (!session.ok()) return fail(arguments, terminal, session.diagnostics);
  const Result<Spec> spec = read_spec(arguments, *session);
  if (!spec.ok()) return fail(arguments, terminal, spec.diagnostics);
  const std::vector<Combination> all = combinations(*varied);
  if (all.size() > kMostTrials)
    return fail(arguments, terminal,
                {error(code::kOutOfRange, command_line(), fmt::format("{} runs, expected at most {}", all.size(), kMostTrials))});
  std::vector<Trial> trials;
  for (const Combination& one : all) trials.push_back(try_value(arguments, *session, *spec, one, label_of(one)));
  if (Diagnostics said = check_trials(trials); has_error(said)) return fail(arguments, terminal, said);
  const fs::path output = arguments.text("output");
  std::vector<TunedRun> runs;
  for (size_t i = 0; i < trials.size(); ++i) {
    runs.push_back({all[i], (output / fmt::format("run_{}", i + 1)).string(), "", {}, {}});
    tune_one(terminal, trials[i], runs.back());
  }
  rank(runs);
  const std::string json = dump_json(tuned_json(*varied, runs));
  const Result<Written> written = write_file_atomic((output / "runs.json").string(), json, Overwrite::kForce);
  if (!written.ok()) return fail(arguments, terminal, written.diagnostics);
  const int code = runs.front().score() ? kDone : kJobFailed;
  return print_result(terminal, arguments.has("json") ? json : tuned_text(*varied, runs), code);
}

}  // namespace

Command tune_command() {
  Command command;
  command.summary = "short runs over a grid of settings, ranked by the loss they reach";
  command.positional = "[run.yaml]";
  command.max_positionals = 1;
  command.examples = {"distsetup tune run.yaml --over learning-rate=1e-4,3e-4,1e-3 --steps 50 --output tuning",
                      "distsetup tune run.yaml --over learning-rate=1e-5,5e-5 --over beta=0.1,0.3 --steps 20 --output tuning"};
  command.notes =
      "The runs are trained on this machine, one after the other, each in a folder of its own with its plan, metrics and log. They "
      "are "
      "ranked by held-out loss, or where nothing is held out by the loss of the last step; runs.json has the ranking. The same "
      "command "
      "again goes on where it stopped. --steps says how short they are. Without --over a training service's request, given as the "
      "file, "
      "says in hyperparam_search_config what is varied.";
  command.flags = {{"over", {}, FlagKind::kList, "KEY=V1,V2", "a setting and its values; again: every combination", 0},
                   {"output", {"out"}, FlagKind::kValue, "DIR", "the folder of the runs", 'o'},
                   config_flag(),
                   presets_flag()};
  for (Flag& flag : layer_flags()) command.flags.push_back(std::move(flag));
  command.run_keys = kAllRunKeys;
  command.run = run_tune;
  return command;
}

}  // namespace distsetup
