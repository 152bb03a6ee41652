// `distsetup fsdp`: one FSDP configuration file from flags, without a plan.
#include "cli/commands/commands.h"
#include "cli/deliver/deliver.h"
#include "cli/line/output.h"
#include "cli/settings/job_flags.h"
#include "cli/settings/run_source.h"
#include "codegen/tables/configs.h"
#include "planner/resolve/named_model.h"

namespace distsetup {
namespace {

// What the run flags say: --model names the class to wrap, --nodes and --gpus the processes.
Diagnostics add_run(const Arguments& arguments, const Session& session, const Terminal& terminal, FsdpOptions& options) {
  if (arguments.run_flags.empty()) return {};
  const Result<Spec> spec = read_spec(arguments, session);
  if (!spec.ok()) return spec.diagnostics;
  Diagnostics diagnostics = spec.diagnostics;
  const std::optional<int64_t> nodes = spec->integer("hardware.nodes"), gpus = spec->integer("hardware.gpus_per_node");
  if (nodes) options.nodes = static_cast<int>(*nodes);
  if (gpus) options.gpus_per_node = static_cast<int>(*gpus);
  if (nodes || gpus) mention(terminal, machines_line(static_cast<int>(nodes.value_or(1)), static_cast<int>(gpus.value_or(8))));
  const std::optional<std::string> model = spec->text("model");
  if (!model) return diagnostics;
  // The class alone: whether the bundled trainer runs the model does not matter here.
  const Result<Geometry> geometry = named_model(session.presets, *model, command_line());
  append(diagnostics, geometry.diagnostics);
  if (geometry.ok()) options.layer_classes = {geometry->layer_class};
  return diagnostics;
}

Result<FsdpOptions> fsdp_options(const Arguments& arguments, const Terminal& terminal) {
  FsdpOptions options;
  Diagnostics diagnostics;
  const Result<FsdpDialect> dialect = fsdp_dialect(arguments.text("dialect"));
  const Result<int64_t> version = int_flag(arguments, "fsdp-version", 1, 1, 2);
  append(diagnostics, dialect.diagnostics);
  append(diagnostics, version.diagnostics);
  const Result<Session> session = open_session(arguments);
  append(diagnostics, session.diagnostics);
  if (session.ok()) {
    options.templates = session->templates;
    append(diagnostics, add_run(arguments, *session, terminal, options));
  }
  if (has_error(diagnostics)) return diagnostics;
  options.dialect = *dialect;
  options.as_json = arguments.text("output").ends_with(".json");
  if (arguments.has("fsdp-version")) options.version = static_cast<int>(*version);
  options.sharding_strategy = arguments.text("sharding-strategy", options.sharding_strategy);
  options.mixed_precision = arguments.text("mixed-precision", options.mixed_precision);
  options.checkpoint_strategy = arguments.text("checkpoint-strategy", options.checkpoint_strategy);
  options.command = emitted_command(arguments);
  options.cpu_offload = arguments.has("cpu-offload");
  options.activation_checkpointing = arguments.has("activation-checkpointing");
  return {std::move(options), std::move(diagnostics)};
}

int run_fsdp(const Arguments& arguments, const Terminal& terminal) {
  Result<FsdpOptions> options = fsdp_options(arguments, terminal);
  Diagnostics diagnostics = options.diagnostics;
  if (!options.ok()) return fail(arguments, terminal, diagnostics);
  const Result<Artifact> artifact = fsdp_config(*options);
  append(diagnostics, artifact.diagnostics);
  if (!artifact.ok()) return fail(arguments, terminal, diagnostics);
  return deliver(arguments, terminal, one_file(arguments, *artifact, std::move(diagnostics)));
}

}  // namespace

Command fsdp_command() {
  Command command;
  command.summary = "an FSDP configuration, for accelerate launch --config_file or for the Trainer";
  command.examples = {"distsetup fsdp --sharding FULL_SHARD --output cfg.json",
                      "distsetup fsdp --sharding FULL_SHARD --model 8B --nodes 2 --gpus 8 --output accelerate.yaml",
                      "distsetup fsdp --sharding SHARD_GRAD_OP --dialect trainer"};
  command.notes =
      "Without --output the file goes to standard output. A path in .json gets JSON. --dialect classic has the eleven keys of older "
      "generators.";
  command.flags = {{"sharding-strategy",
                    {"sharding", "fsdp-sharding-strategy"},
                    FlagKind::kValue,
                    "WHICH",
                    "FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, or zero3, zero2, ddp (FULL_SHARD)",
                    0,
                    {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"}},
                   {"mixed-precision",
                    {"fsdp-mixed-precision"},
                    FlagKind::kValue,
                    "WHICH",
                    "BFLOAT16, FP16 or FULL (BFLOAT16)",
                    0,
                    {"BFLOAT16", "FP16", "FULL"}},
                   {"checkpoint-strategy",
                    {"state-dict-type"},
                    FlagKind::kValue,
                    "WHICH",
                    "SHARDED_CHECKPOINT, FULL_CHECKPOINT or LOCAL_CHECKPOINT (SHARDED_CHECKPOINT)",
                    0,
                    {"SHARDED_CHECKPOINT", "FULL_CHECKPOINT", "LOCAL_CHECKPOINT"}},
                   {"dialect",
                    {},
                    FlagKind::kValue,
                    "WHICH",
                    "accelerate, trainer or classic (accelerate)",
                    0,
                    {"classic", "accelerate", "trainer"}},
                   {"fsdp-version", {}, FlagKind::kValue, "N", "accelerate, trainer: 1 or 2 (accelerate 1, trainer 2)", 0, {"1", "2"}},
                   {"cpu-offload",
                    {"offload-params", "offload-param", "fsdp-offload-params"},
                    FlagKind::kSwitch,
                    "",
                    "accelerate, trainer: parameters in host memory",
                    0},
                   {"activation-checkpointing",
                    {"gradient-checkpointing", "fsdp-activation-checkpointing"},
                    FlagKind::kSwitch,
                    "",
                    "accelerate, trainer: recompute activations",
                    0},
                   output_flag("write the file there"),
                   force_flag(),
                   dry_run_flag(),
                   presets_flag(),
                   templates_flag()};
  command.run_keys = {"model", "hardware.nodes", "hardware.gpus_per_node"};
  command.run = run_fsdp;
  return command;
}

}  // namespace distsetup
