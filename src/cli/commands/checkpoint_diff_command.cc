// `distsetup checkpoint diff A B`: parameter by parameter, whatever meshes saved them.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/json.h"
#include "base/quantity.h"
#include "cli/commands/commands.h"
#include "cli/line/output.h"
#include "weights/checkpoint_folder.h"
#include "weights/compare_checkpoints.h"

namespace distsetup {
namespace {

// What is said of a checkpoint beside its tensors, and differs.
Json metadata_differences(const CheckpointMetadata& a, const CheckpointMetadata& b) {
  const Json of_a = to_json(a).flatten(), of_b = to_json(b).flatten();
  Json found = Json::array();
  std::set<std::string> keys;
  for (const Json& one : {of_a, of_b})
    for (const auto& entry : one.items()) keys.insert(entry.key());
  for (const std::string& key : keys) {
    const Json in_a = of_a.value(key, Json()), in_b = of_b.value(key, Json());
    if (in_a != in_b) found.push_back({{"field", key.substr(1)}, {"a", in_a}, {"b", in_b}});
  }
  return found;
}

std::string tensor_text(const std::vector<ParameterDifference>& tensors) {
  size_t width = 0;
  for (const ParameterDifference& d : tensors) width = std::max(width, d.name.size());
  std::string text;
  int64_t same = 0;
  for (const ParameterDifference& d : tensors) {
    if (!d.only_in.empty())
      text += fmt::format("{:<{}}  in this shape only in {}\n", d.name, width, d.only_in);
    else if (d.num_different > 0)
      text += fmt::format("{:<{}}  {} of {} differ, largest {:.2e}, relative {:.2e}\n", d.name, width, format_count(d.num_different),
                          format_count(d.numel), d.largest, d.relative);
    else
      ++same;
  }
  return text + fmt::format("{} of {} tensors are the same bit for bit\n", same, tensors.size());
}

struct OpenSide {
  CheckpointMetadata metadata;
  StoredCheckpoint stored;
};
Result<OpenSide> open_side(const std::string& named) {
  const Result<std::string> path = committed_checkpoint(named);
  if (!path.ok()) return path.diagnostics;
  Result<CheckpointMetadata> metadata = verify_stored(*path);
  if (!metadata.ok()) return metadata.diagnostics;
  Result<StoredCheckpoint> stored = StoredCheckpoint::open(*path);
  if (!stored.ok()) return stored.diagnostics;
  return OpenSide{std::move(*metadata), std::move(*stored)};
}

int run_checkpoint_diff(const Arguments& arguments, const Terminal& terminal) {
  Result<OpenSide> a = open_side(arguments.positionals[0]), b = open_side(arguments.positionals[1]);
  Diagnostics said = a.diagnostics;
  append(said, b.diagnostics);
  if (has_error(said)) return fail(arguments, terminal, said);
  const Result<std::vector<ParameterDifference>> tensors = compare_checkpoints(a->stored, b->stored);
  if (!tensors.ok()) return fail(arguments, terminal, tensors.diagnostics);
  const Json metadata = metadata_differences(a->metadata, b->metadata);
  const bool is_same = metadata.empty() && std::all_of(tensors->begin(), tensors->end(), [](const ParameterDifference& d) {
                         return d.only_in.empty() && d.num_different == 0;
                       });
  const int code = is_same ? kDone : kDiffers;
  if (arguments.has("json")) {
    Json list = Json::array();
    for (const ParameterDifference& d : *tensors)
      list.push_back({{"name", d.name},
                      {"only_in", d.only_in},
                      {"numel", d.numel},
                      {"num_different", d.num_different},
                      {"largest", d.largest},
                      {"relative", d.relative}});
    return print_result(terminal, dump_json({{"schema_version", 1}, {"metadata", metadata}, {"tensors", list}}), code);
  }
  std::string text;
  for (const Json& one : metadata)
    text += fmt::format("{:<18}  {} -> {}\n", one["field"].get<std::string>(), one["a"].dump(), one["b"].dump());
  return print_result(terminal, text + tensor_text(*tensors), code);
}

}  // namespace

Command checkpoint_diff_command() {
  Command command;
  command.summary = "which parameters and moments of two checkpoints differ, and by how much";
  command.positional = "A B";
  command.min_positionals = command.max_positionals = 2;
  command.examples = {"distsetup checkpoint diff run/checkpoints/checkpoint_900 run/checkpoints/checkpoint_1000",
                      "distsetup checkpoint diff before after --json"};
  command.notes =
      "A and B are checkpoints, or folders of runs: then the newest of each. They may have been saved by different numbers of GPUs. "
      "Relative is the norm of the difference over the norm of A. Exit code 7: they differ.";
  command.run = run_checkpoint_diff;
  return command;
}

}  // namespace distsetup
