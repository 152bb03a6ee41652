// `distsetup checkpoint list|verify|prune`: what a run has saved, whether it is whole, and what of it goes.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/quantity.h"
#include "cli/commands/commands.h"
#include "cli/line/output.h"
#include "cli/settings/run_source.h"
#include "cli/settings/trained_run.h"
#include "weights/checkpoint_folder.h"
#include "weights/stored_checkpoint.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

struct SavedSummary {
  std::string path, fault;  // "": committed, and every file in its size
  CheckpointMetadata metadata;
  Mesh mesh;
  int64_t bytes = 0, saved_unix_s = 0;
};

SavedSummary summary_of(const std::string& path) {
  SavedSummary summary{path, "", {}, {}, 0, 0};
  const Result<CheckpointMetadata> metadata = verify_stored(path, kSizesAlone);
  const Result<StoredCheckpoint> stored = StoredCheckpoint::open(path);
  if (!metadata.ok() || !stored.ok()) {
    summary.fault = (metadata.ok() ? stored.diagnostics : metadata.diagnostics).front().message;
    return summary;
  }
  summary.metadata = *metadata;
  summary.mesh = stored->index().mesh;
  std::error_code failure;
  for (fs::directory_iterator it(path, failure), end; !failure && it != end; it.increment(failure)) {
    const auto size = it->file_size(failure);
    if (!failure) summary.bytes += static_cast<int64_t>(size);
  }
  struct stat info = {};
  if (::stat((fs::path(path) / "COMMIT").c_str(), &info) == 0) summary.saved_unix_s = info.st_mtime;
  return summary;
}

Json to_json(const SavedSummary& s) {
  if (!s.fault.empty()) return {{"path", s.path}, {"valid", false}, {"why_not", s.fault}};
  Json json = {{"path", s.path},          {"valid", true},    {"step", s.metadata.step}, {"tokens", s.metadata.tokens},
               {"loss", s.metadata.loss}, {"bytes", s.bytes}, {"ranks", s.mesh.world()}, {"saved_unix_s", s.saved_unix_s}};
  if (s.metadata.held_out_loss) json["held_out_loss"] = *s.metadata.held_out_loss;
  return json;
}

std::string row_of(const SavedSummary& s, bool is_best) {
  const std::string name = fs::path(s.path).filename().string();
  if (!s.fault.empty()) return fmt::format("{:<18}  {}\n", name, s.fault);
  const auto when = static_cast<std::time_t>(s.saved_unix_s);
  std::tm local = {};
  localtime_r(&when, &local);
  const std::string held_out = s.metadata.held_out_loss ? fmt::format("{:.4f}", *s.metadata.held_out_loss) : "-";
  return fmt::format("{:<18}  {:%Y-%m-%d %H:%M:%S}  {:>8}  {:>8.4f}  {:>8}  {:>10}  {:>5}{}\n", name, local,
                     format_short_count(static_cast<double>(s.metadata.tokens)), s.metadata.loss, held_out, format_bytes(s.bytes),
                     s.mesh.world(), is_best ? "  best" : "");
}

int run_checkpoint_list(const Arguments& arguments, const Terminal& terminal) {
  const Result<std::vector<std::string>> paths = find_checkpoints(arguments.positionals[0]);
  if (!paths.ok()) return fail(arguments, terminal, paths.diagnostics);
  std::vector<SavedSummary> all;
  const SavedSummary* best = nullptr;
  for (const std::string& path : *paths) all.push_back(summary_of(path));
  for (const SavedSummary& s : all) {
    const bool counts = s.fault.empty() && s.metadata.held_out_loss;
    if (counts && (best == nullptr || *s.metadata.held_out_loss < *best->metadata.held_out_loss)) best = &s;
  }
  if (arguments.has("json")) {
    Json list = Json::array();
    for (const SavedSummary& s : all) list.push_back(to_json(s));
    return print_result(terminal, dump_json({{"schema_version", 1}, {"checkpoints", list}}));
  }
  std::string text = fmt::format("{:<18}  {:<19}  {:>8}  {:>8}  {:>8}  {:>10}  {:>5}\n", "checkpoint", "saved", "tokens", "loss",
                                 "held-out", "size", "ranks");
  for (const SavedSummary& s : all) text += row_of(s, &s == best);
  return print_result(terminal, text);
}

int run_checkpoint_verify(const Arguments& arguments, const Terminal& terminal) {
  const Result<std::vector<std::string>> paths = find_checkpoints(arguments.positionals[0]);
  if (!paths.ok()) return fail(arguments, terminal, paths.diagnostics);
  std::string text;
  Json list = Json::array();
  bool is_whole = true;
  for (const std::string& path : *paths) {
    const std::string fault = fault_of(path);
    is_whole = is_whole && fault.empty();
    text += fmt::format("{}: {}\n", path, fault.empty() ? "whole" : fault);
    list.push_back({{"path", path}, {"valid", fault.empty()}});
    if (!fault.empty()) list.back()["why_not"] = fault;
  }
  const int code = is_whole ? kDone : kConfigInvalid;
  if (arguments.has("json")) return print_result(terminal, dump_json({{"schema_version", 1}, {"checkpoints", list}}), code);
  return print_result(terminal, text, code);
}

// The run's own rule, each part of it replaced by a flag that is there.
Result<Retention> asked_retention(const Arguments& arguments, const std::string& folder) {
  Retention rule;
  const Result<std::string> plan_path = plan_path_of(arguments, (fs::path(folder) / checkpoint_name(0)).string());
  if (plan_path.ok()) {
    const Result<Plan> plan = read_plan(*plan_path);
    if (!plan.ok()) return plan.diagnostics;
    rule = retention_of(plan->checkpoint);
  } else if (!arguments.has("keep")) {
    return plan_path.diagnostics;
  }
  const Result<int64_t> keep = int_flag(arguments, "keep", rule.keep, 1, 1000000);
  const Result<int64_t> every = int_flag(arguments, "keep-every", rule.keep_every, 0, INT64_MAX);
  const Result<int64_t> best = int_flag(arguments, "keep-best", rule.keep_best, 0, 1000000);
  Diagnostics said = keep.diagnostics;
  append(said, every.diagnostics);
  append(said, best.diagnostics);
  if (has_error(said)) return said;
  return Retention{*keep, *every, *best, rule.metric};
}

int run_checkpoint_prune(const Arguments& arguments, const Terminal& terminal) {
  const std::string folder = checkpoints_folder(arguments.positionals[0]);
  const Result<std::vector<std::string>> paths = find_checkpoints(folder);
  if (!paths.ok()) return fail(arguments, terminal, paths.diagnostics);
  const Result<Retention> rule = asked_retention(arguments, folder);
  if (!rule.ok()) return fail(arguments, terminal, rule.diagnostics);
  // What is damaged counts for nothing and stays: it must not be what an older checkpoint has to go for.
  std::set<int64_t> refused;
  Diagnostics said;
  for (const int64_t step : list_checkpoints(folder)) {
    const std::string fault = fault_of(checkpoint_path(folder, step));
    if (fault.empty()) continue;
    refused.insert(step);
    said.push_back(
        warning(code::kCheckpoint, {checkpoint_path(folder, step)}, fmt::format("it stays and counts for nothing: {}", fault)));
  }
  say_diagnostics(terminal, said);
  const std::vector<int64_t> retired = steps_to_retire(rated_checkpoints(folder, INT64_MAX, rule->metric, refused), *rule);
  Diagnostics stuck;
  std::string text;
  Json removed = Json::array();
  for (const int64_t step : retired) {
    const std::string path = checkpoint_path(folder, step);
    const int number = arguments.has("dry-run") ? 0 : remove_checkpoint(path);
    if (number != 0) {
      stuck.push_back(error(code::kUnwritableFile, {path}, fmt::format("'{}' cannot be removed, {}", path, errno_text(number))));
      continue;
    }
    text += path + "\n";
    removed.push_back(path);
  }
  if (!stuck.empty()) return fail(arguments, terminal, stuck);
  if (arguments.has("json")) return print_result(terminal, dump_json({{"schema_version", 1}, {"removed", removed}}));
  mention(terminal, fmt::format("{} {} of {} checkpoints\n", arguments.has("dry-run") ? "would remove" : "removed", retired.size(),
                                paths->size()));
  return print_result(terminal, text);
}

Command of_one(std::string summary, int (*run)(const Arguments&, const Terminal&)) {
  Command command;
  command.summary = std::move(summary);
  command.positional = "RUN";
  command.min_positionals = command.max_positionals = 1;
  command.run = run;
  return command;
}

}  // namespace

Command checkpoint_list_command() {
  Command command = of_one("the checkpoints of a run", run_checkpoint_list);
  command.examples = {"distsetup checkpoint list run", "distsetup checkpoint list run/checkpoints --json"};
  command.notes =
      "RUN is the folder of a run, of its checkpoints, or one checkpoint. Sizes are compared with what was committed; `distsetup "
      "checkpoint verify` reads every byte. The best is the one with the smallest held-out loss of those that were evaluated.";
  return command;
}

Command checkpoint_verify_command() {
  Command command = of_one("whether checkpoints are whole: every byte, and every element once", run_checkpoint_verify);
  command.examples = {"distsetup checkpoint verify run", "distsetup checkpoint verify run/checkpoints/checkpoint_1000"};
  command.notes = "RUN is the folder of a run, of its checkpoints, or one checkpoint. Exit code 3: one of them is not whole.";
  return command;
}

Command checkpoint_prune_command() {
  Command command = of_one("removes the checkpoints that a run no longer needs", run_checkpoint_prune);
  command.examples = {"distsetup checkpoint prune run --keep 2 --dry-run", "distsetup checkpoint prune run --keep 1 --keep-best 1"};
  command.notes =
      "RUN is the folder of a run or of its checkpoints. What is not said is as in the run's plan.json. The newest always stays, and "
      "so does whatever is not a checkpoint of ours. What is damaged stays, too, and counts for nothing.";
  command.flags = {
      {"keep", {"keep-checkpoints"}, FlagKind::kValue, "N", "keep the newest N", 0},
      {"keep-every", {}, FlagKind::kValue, "STEPS", "and those of every so many steps", 0},
      {"keep-best", {}, FlagKind::kValue, "N", "and the N with the smallest metric", 0},
      {"dry-run", {}, FlagKind::kSwitch, "", "say what would go, and remove nothing", 0},
      {"plan", {}, FlagKind::kValue, "PLAN.JSON", "the plan of the run; without it the nearest above the checkpoints", 0}};
  return command;
}

}  // namespace distsetup
