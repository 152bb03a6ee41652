// Flags become the fields that a plan has, then the same tables write them. The spellings of the seed dialect, of accelerate and our
// own are accepted; an unknown one is an error with the list, never a silent default.
#include "codegen/tables/configs.h"

#include <fmt/format.h>

#include <array>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "codegen/tables/emit_target.h"

namespace distsetup {
namespace {

const Location kCommandLine{"command line", 0, 0};

struct FlagSpelling {
  std::string_view text, means;
};

constexpr std::array<FlagSpelling, 13> kShardings = {{{"FULL_SHARD", "zero3"},
                                                      {"SHARD_GRAD_OP", "zero2"},
                                                      {"NO_SHARD", "ddp"},
                                                      {"HYBRID_SHARD", "zero3 hybrid"},
                                                      {"HYBRID_SHARD_ZERO2", "zero2 hybrid"},
                                                      {"zero3", "zero3"},
                                                      {"zero2", "zero2"},
                                                      {"zero1", "zero1"},
                                                      {"zero0", "ddp"},
                                                      {"ddp", "ddp"},
                                                      {"fsdp", "zero3"},
                                                      {"_HYBRID_SHARD_ZERO2", "zero2 hybrid"},
                                                      {"hybrid", "zero3 hybrid"}}};
constexpr std::array<FlagSpelling, 12> kPrecisions = {{{"BFLOAT16", "bf16"},
                                                       {"bf16", "bf16"},
                                                       {"bf16-mixed", "bf16"},
                                                       {"FP16", "fp16"},
                                                       {"FLOAT16", "fp16"},
                                                       {"16-mixed", "fp16"},
                                                       {"FULL", "fp32"},
                                                       {"fp32", "fp32"},
                                                       {"float32", "fp32"},
                                                       {"no", "fp32"},
                                                       {"none", "fp32"},
                                                       {"32-true", "fp32"}}};
constexpr std::array<FlagSpelling, 9> kCheckpoints = {{{"FULL_CHECKPOINT", "full"},
                                                       {"SHARDED_CHECKPOINT", "sharded"},
                                                       {"LOCAL_CHECKPOINT", "local"},
                                                       {"FULL_STATE_DICT", "full"},
                                                       {"SHARDED_STATE_DICT", "sharded"},
                                                       {"LOCAL_STATE_DICT", "local"},
                                                       {"full", "full"},
                                                       {"sharded", "sharded"},
                                                       {"local", "local"}}};

template <size_t N>
Result<std::string> read(const std::array<FlagSpelling, N>& table, const char* flag, const std::string& text) {
  std::vector<std::string> known;
  for (const FlagSpelling& spelling : table) {
    if (same_name(spelling.text, text)) return std::string(spelling.means);
    known.emplace_back(spelling.text);
  }
  return error(code::kUnknownValue, kCommandLine, fmt::format("{} '{}' is not known", flag, text), suggest(text, known));
}

template <class T>
T take(Result<T> result, Diagnostics& diagnostics) {
  append(diagnostics, result.diagnostics);
  return result.ok() ? std::move(*result) : T{};
}

void set_offload(Fields& fields, bool optimizer, bool parameters) {
  set_field(fields, "offload.optimizer", optimizer ? "host" : "none");
  set_field(fields, "offload.parameters", parameters ? "host" : "none");
  set_field(fields, "derived.offload",
            parameters && optimizer ? "both"
            : parameters            ? "parameters"
            : optimizer             ? "optimizer"
                                    : "none");
}

void set_sharding(Fields& fields, const std::string& meaning) {
  const std::string sharding = meaning.substr(0, meaning.find(' '));
  set_field(fields, "strategy.sharding", sharding);
  set_field(fields, "strategy.reshard_after_forward", sharding == "zero3");
  set_field(fields, "derived.hybrid", sharding != meaning);
  set_field(fields, "derived.several_axes", sharding != meaning);
  set_field(fields, "derived.zero_stage", sharding == "ddp" ? 0 : sharding.back() - '0');
  set_field(fields, "derived.source", "options");
  set_field(fields, "derived.model_parallel", false);
  set_field(fields, "hardware.accelerator", "cuda");
}

std::string derived_text(const Fields& fields, std::string_view name) { return field_text(fields.find(name)->second); }

constexpr int kGpusOfNode = 8;

void set_size(Fields& fields, const FsdpOptions& options, Diagnostics& diagnostics) {
  if (options.nodes && *options.nodes < 1)
    diagnostics.push_back(error(code::kOutOfRange, kCommandLine, fmt::format("--nodes {}, expected at least 1", *options.nodes)));
  if (options.gpus_per_node && *options.gpus_per_node < 1) {
    diagnostics.push_back(
        error(code::kOutOfRange, kCommandLine, fmt::format("--gpus {}, expected at least 1", *options.gpus_per_node)));
  }
  const int nodes = options.nodes.value_or(1);
  std::optional<int> gpus_per_node = options.gpus_per_node;
  if (!gpus_per_node && options.dialect == FsdpDialect::kAccelerate && derived_text(fields, "derived.hybrid") != "true") {
    gpus_per_node = kGpusOfNode;
    diagnostics.push_back(
        note(code::kNoForm, kCommandLine,
             fmt::format("{} processes are written, for {} of {} GPUs: accelerate takes no file without their number",
                         nodes * kGpusOfNode, nodes == 1 ? "a node" : fmt::format("{} nodes", nodes), kGpusOfNode),
             "--nodes N and --gpus N say otherwise"));
  }
  set_field(fields, "derived.single_node", nodes == 1);
  if (options.nodes) set_field(fields, "hardware.nodes", nodes);
  if (!gpus_per_node) return;
  set_field(fields, "hardware.nodes", nodes);
  set_field(fields, "hardware.gpus_per_node", *gpus_per_node);
  set_field(fields, "derived.world", nodes * *gpus_per_node);
  if (derived_text(fields, "derived.hybrid") == "true") {
    set_field(fields, "mesh.dp_replicate", nodes);
    set_field(fields, "mesh.dp_shard", *gpus_per_node);
  }
}

std::string table_of(FsdpDialect dialect) {
  switch (dialect) {
    case FsdpDialect::kClassic: return "fsdp_classic/keys.yaml";
    case FsdpDialect::kAccelerate: return "fsdp_accelerate/keys.yaml";
    case FsdpDialect::kTrainer: return "fsdp_trainer/keys.yaml";
  }
  return "";
}

std::string usual_name(const FsdpOptions& options) {
  switch (options.dialect) {
    case FsdpDialect::kClassic: return "fsdp_config.json";
    case FsdpDialect::kAccelerate: return options.as_json ? "accelerate.json" : "accelerate.yaml";
    case FsdpDialect::kTrainer: return "training_arguments.json";
  }
  return "";
}

}  // namespace

Result<FsdpDialect> fsdp_dialect(std::string_view dialect) {
  if (dialect.empty()) return FsdpDialect::kAccelerate;
  if (same_name(dialect, "classic")) return FsdpDialect::kClassic;
  if (same_name(dialect, "accelerate")) return FsdpDialect::kAccelerate;
  if (same_name(dialect, "trainer")) return FsdpDialect::kTrainer;
  const std::array<std::string, 3> known = {"classic", "accelerate", "trainer"};
  return error(code::kUnknownValue, kCommandLine, fmt::format("--dialect '{}' is not known", dialect), suggest(dialect, known));
}

Result<Artifact> fsdp_config(const FsdpOptions& options) {
  Diagnostics diagnostics;
  Fields fields = no_fields();
  const std::string sharding = take(read(kShardings, "--sharding", options.sharding_strategy), diagnostics);
  const std::string precision = take(read(kPrecisions, "--mixed-precision", options.mixed_precision), diagnostics);
  const std::string checkpoint = take(read(kCheckpoints, "--checkpoint-strategy", options.checkpoint_strategy), diagnostics);
  const int version = options.version.value_or(options.dialect == FsdpDialect::kAccelerate ? 1 : 2);
  if (version != 1 && version != 2)
    diagnostics.push_back(error(code::kOutOfRange, kCommandLine, fmt::format("FSDP version {}, expected 1 or 2", version)));
  if (has_error(diagnostics)) return diagnostics;
  set_sharding(fields, sharding);
  set_field(fields, "precision.compute", precision);
  set_field(fields, "options.checkpoint", checkpoint);
  set_field(fields, "options.fsdp_version", version);
  set_field(fields, "options.classic", true);  // the choices of older generators, whatever names they have by now
  if (!options.layer_classes.empty()) set_field(fields, "options.layer_classes", Json(options.layer_classes));
  set_field(fields, "recompute.policy", options.activation_checkpointing ? "full" : "none");
  set_offload(fields, options.cpu_offload, options.cpu_offload);  // FSDP moves both together
  set_size(fields, options, diagnostics);
  if (has_error(diagnostics)) return diagnostics;
  Result<Artifact> written = emit_table(options.templates, table_of(options.dialect),
                                        TargetInput{std::move(fields), nullptr, options.command, kCommandLine}, usual_name(options));
  append(diagnostics, written.diagnostics);
  if (!written.ok()) return diagnostics;
  return {std::move(*written), std::move(diagnostics)};
}

Result<Artifact> deepspeed_config(const DeepspeedOptions& options) {
  Diagnostics diagnostics;
  const auto fail = [&diagnostics](const char* code, std::string message, std::string help = "") {
    diagnostics.push_back(error(code, kCommandLine, std::move(message), std::move(help)));
  };
  if (options.zero_stage < 0 || options.zero_stage > 3)
    fail(code::kOutOfRange, fmt::format("--zero-stage {}, expected 0, 1, 2 or 3", options.zero_stage));
  if (options.fp16 && options.bf16)
    fail(code::kConflict, "--fp16 and --bf16 are both given, expected one of them", "keep --bf16 on Ampere and newer GPUs");
  if (const auto& steps = options.gradient_accumulation_steps; steps && *steps < 1)
    fail(code::kOutOfRange, fmt::format("--gradient-accumulation-steps {}, expected at least 1", *steps));
  if (const auto& norm = options.gradient_clipping; norm && !(*norm >= 0))
    fail(code::kOutOfRange, fmt::format("--gradient-clipping {}, expected 0 (off) or more", *norm));
  if (options.micro_batch && *options.micro_batch < 1)
    fail(code::kOutOfRange, fmt::format("--micro-batch {}, expected at least 1", *options.micro_batch));
  if (has_error(diagnostics)) return diagnostics;
  static constexpr std::array<const char*, 4> kSharding = {"ddp", "zero1", "zero2", "zero3"};
  Fields fields = no_fields();
  set_field(fields, "options.auto_cast", true);
  set_sharding(fields, kSharding[static_cast<size_t>(options.zero_stage)]);
  set_offload(fields, options.offload_optimizer, options.offload_param);
  set_field(fields, "precision.compute", options.fp16 ? "fp16" : options.bf16 ? "bf16" : "fp32");
  if (options.gradient_accumulation_steps) set_field(fields, "gradient_accumulation", *options.gradient_accumulation_steps);
  if (options.gradient_clipping || options.micro_batch) set_field(fields, "train.grad_clip", options.gradient_clipping.value_or(1));
  set_field(fields, "recompute.policy", "none");
  if (options.micro_batch) set_field(fields, "micro_batch", *options.micro_batch);
  return emit_table(options.templates, "deepspeed/keys.yaml", TargetInput{std::move(fields), nullptr, "", kCommandLine},
                    "ds_config.json");
}

}  // namespace distsetup
