// `distsetup deepspeed`: one DeepSpeed JSON from flags, without a plan.
#include "cli/commands/commands.h"
#include "cli/deliver/deliver.h"
#include "cli/line/output.h"
#include "cli/settings/run_source.h"
#include "codegen/tables/configs.h"

namespace distsetup {
namespace {

Result<DeepspeedOptions> deepspeed_options(const Arguments& arguments) {
  DeepspeedOptions options;
  Diagnostics diagnostics;
  const Result<int64_t> stage = int_flag(arguments, "zero-stage", options.zero_stage, 0, 3);
  const Result<int64_t> accumulation = int_flag(arguments, "gradient-accumulation-steps", 1, 1, 1 << 30);
  const Result<int64_t> micro_batch = int_flag(arguments, "micro-batch", 1, 1, 1 << 30);
  const Result<double> clipping = double_flag(arguments, "gradient-clipping", 0.3);
  for (const Result<int64_t>* number : {&stage, &accumulation, &micro_batch}) append(diagnostics, number->diagnostics);
  append(diagnostics, clipping.diagnostics);
  Result<Session> session = open_session(arguments);
  append(diagnostics, session.diagnostics);
  if (session.value) options.templates = std::move(session->templates);
  if (has_error(diagnostics)) return diagnostics;
  options.zero_stage = static_cast<int>(*stage);
  if (arguments.has("gradient-accumulation-steps")) options.gradient_accumulation_steps = static_cast<int>(*accumulation);
  if (arguments.has("micro-batch")) options.micro_batch = *micro_batch;
  options.gradient_clipping = *clipping;
  options.offload_optimizer = arguments.has("offload-optimizer");
  options.offload_param = arguments.has("offload-param");
  options.bf16 = arguments.has("bf16");
  options.fp16 = arguments.has("fp16");
  return {std::move(options), std::move(diagnostics)};
}

int run_deepspeed(const Arguments& arguments, const Terminal& terminal) {
  Result<DeepspeedOptions> options = deepspeed_options(arguments);
  Diagnostics diagnostics = options.diagnostics;
  if (!options.ok()) return fail(arguments, terminal, diagnostics);
  const Result<Artifact> artifact = deepspeed_config(*options);
  append(diagnostics, artifact.diagnostics);
  if (!artifact.ok()) return fail(arguments, terminal, diagnostics);
  return deliver(arguments, terminal, one_file(arguments, *artifact, std::move(diagnostics)));
}

}  // namespace

Command deepspeed_command() {
  Command command;
  command.summary = "a DeepSpeed ZeRO configuration";
  command.examples = {"distsetup deepspeed --zero-stage 3 --bf16 --output ds_config.json",
                      "distsetup deepspeed --zero_stage 2 --offload_optimizer --bf16 --gradient_accumulation_steps 16"};
  command.notes =
      "Without --output the file goes to standard output. `distsetup emit --target deepspeed` writes one that fits a plan.";
  command.flags = {
      {"zero-stage", {"stage"}, FlagKind::kValue, "N", "0, 1, 2 or 3 (2)", 0, {"0", "1", "2", "3"}},
      {"offload-optimizer", {}, FlagKind::kSwitch, "", "optimizer state in host memory", 0},
      {"offload-param", {"offload-params", "offload-parameters"}, FlagKind::kSwitch, "", "parameters in host memory (stage 3)", 0},
      {"bf16", {}, FlagKind::kSwitch, "", "bf16 compute", 0},
      {"fp16", {}, FlagKind::kSwitch, "", "fp16 compute with loss scaling", 0},
      {"gradient-accumulation-steps",
       {"gradient-accumulation"},
       FlagKind::kValue,
       "N",
       "micro-batches per optimizer step (auto; 1 with --micro-batch)",
       0},
      {"gradient-clipping", {"grad-clip", "max-grad-norm"}, FlagKind::kValue, "X", "largest gradient norm (0.3)", 0},
      {"micro-batch",
       {"train-micro-batch-size-per-gpu", "per-device-train-batch-size", "micro-batch-size"},
       FlagKind::kValue,
       "N",
       "sequences per GPU per forward (auto)",
       0},
      output_flag("write the file there"),
      force_flag(),
      dry_run_flag(),
      templates_flag()};
  command.run = run_deepspeed;
  return command;
}

}  // namespace distsetup
