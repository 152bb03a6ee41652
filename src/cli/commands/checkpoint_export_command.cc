// `distsetup checkpoint export CHECKPOINT --output DIR`: the parameters of a checkpoint as a folder that Transformers loads.
#include <fmt/format.h>

#include <filesystem>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/quantity.h"
#include "cli/commands/commands.h"
#include "cli/line/output.h"
#include "cli/settings/run_source.h"
#include "cli/settings/session.h"
#include "cli/settings/trained_run.h"
#include "weights/checkpoint_folder.h"
#include "weights/export.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUsualFileSize = "5GB";  // Transformers 4 split so too

// Adapters are small, and PEFT keeps them as they were trained.
const char* usual_type(bool is_adapter) { return is_adapter ? "fp32" : "bf16"; }

Result<StoredType> type_flag(const Arguments& arguments, bool is_adapter) {
  const Result<std::string> text = choice_flag(arguments, "dtype", usual_type(is_adapter), {"bf16", "fp32", "fp16"});
  if (!text.ok()) return text.diagnostics;
  return *text == "fp32" ? StoredType::kF32 : *text == "fp16" ? StoredType::kF16 : StoredType::kBf16;
}

int run_checkpoint_export(const Arguments& arguments, const Terminal& terminal) {
  const Result<Session> session = open_session(arguments);
  const Result<StoredType> known_type = type_flag(arguments, false);
  const Result<std::string> base = choice_flag(arguments, "merge-base", "dequantized", {"dequantized", "original"});
  const Result<int64_t> file_size = parse_bytes(arguments.text("max-shard-size", kUsualFileSize), command_line());
  const std::string& given = arguments.positionals.front();
  const Result<std::string> checkpoint = arguments.has("best") ? best_checkpoint(given) : committed_checkpoint(given);
  Diagnostics said = session.diagnostics;
  for (const Diagnostics& one : {known_type.diagnostics, base.diagnostics, file_size.diagnostics, checkpoint.diagnostics})
    append(said, one);
  if (!arguments.has("output"))
    said.push_back(error(code::kMissingArgument, command_line(), "no --output, expected a folder to write", "--output DIR"));
  if (has_error(said)) return fail(arguments, terminal, said);
  const Result<std::string> path = plan_path_of(arguments, *checkpoint);
  if (!path.ok()) return fail(arguments, terminal, path.diagnostics);
  Result<Plan> plan = read_plan(*path);
  if (!plan.ok()) return fail(arguments, terminal, plan.diagnostics);
  move_inputs(*plan, fs::path(*path).parent_path().string(), ".");

  ExportRequest request;
  request.checkpoint = *checkpoint;
  request.output = arguments.text("output");
  request.merge = arguments.has("merge");
  request.merge_base = *base == "original" ? MergeBase::kOriginal : MergeBase::kDequantized;
  const Tuning tuning = tuning_of(plan->train);
  if (arguments.has("merge-base") && !(request.merge && tuning.is_quantized))
    return fail(
        arguments, terminal,
        {error(code::kConflict, command_line(),
               fmt::format("--merge-base without {}", request.merge ? "adapters that were trained beside nf4 (qlora)" : "--merge"),
               "leave it out")});
  const bool is_adapter = tuning.has_adapters() && !request.merge;
  request.type = *type_flag(arguments, is_adapter);
  request.max_file_bytes = *file_size;
  request.overwrite = arguments.has("force") ? Overwrite::kForce : Overwrite::kRefuse;
  const Result<Exported> exported = export_checkpoint(*plan, session->presets, request);
  if (!exported.ok()) return fail(arguments, terminal, exported.diagnostics);
  say_diagnostics(terminal, exported.diagnostics);
  const Json json = {{"schema_version", 1}, {"checkpoint", *checkpoint}, {"output", request.output}, {"files", exported->files}};
  if (arguments.has("json")) return print_result(terminal, dump_json(json));
  std::string text;
  for (const std::string& file : exported->files) text += file + "\n";
  mention(terminal, fmt::format("exported {} to {}: {} parameters in {}\n", *checkpoint, request.output,
                                format_count(exported->num_parameters), arguments.text("dtype", usual_type(is_adapter))));
  return print_result(terminal, text);
}

}  // namespace

Command checkpoint_export_command() {
  Command command;
  command.summary = "the parameters of a checkpoint as a folder that Transformers loads";
  command.positional = "CHECKPOINT";
  command.min_positionals = 1;
  command.max_positionals = 1;
  command.examples = {"distsetup checkpoint export run/checkpoints/checkpoint_1000 --output model",
                      "distsetup checkpoint export run --output model --dtype fp32 --max-shard-size 2GB"};
  command.notes =
      "CHECKPOINT is a checkpoint, or the folder of a run: then its newest, or with --best the one with the smallest held-out loss. "
      "The folder gets safetensors with their index, "
      "config.json, "
      "and what the model's own folder has of a tokenizer. It appears when it is whole. Of a run that trained adapters it gets them "
      "alone, as PEFT reads them.";
  command.flags = {{"output", {"out"}, FlagKind::kValue, "DIR", "the folder to write", 'o'},
                   force_flag(),
                   {"best", {}, FlagKind::kSwitch, "", "of a run's checkpoints the one with the smallest held-out loss", 0},
                   {"dtype",
                    {},
                    FlagKind::kValue,
                    "TYPE",
                    "of the weights: bf16, fp32 or fp16; without it bf16, of adapters fp32",
                    0,
                    {"bf16", "fp32", "fp16"}},
                   {"merge",
                    {},
                    FlagKind::kSwitch,
                    "",
                    "adapters are added to the matrices that they stand beside, and the whole model is written",
                    0},
                   {"merge-base",
                    {},
                    FlagKind::kValue,
                    "BASE",
                    "of qlora: what adapters are added to, the weights as nf4 gives them back (dequantized) or the published ones",
                    0,
                    {"dequantized", "original"}},
                   {"max-shard-size", {}, FlagKind::kValue, "SIZE", "how large one file may be; 5GB", 0},
                   {"plan", {}, FlagKind::kValue, "PLAN.JSON", "the plan of the run; without it the nearest above the checkpoint", 0},
                   presets_flag()};
  command.run = run_checkpoint_export;
  return command;
}

}  // namespace distsetup
