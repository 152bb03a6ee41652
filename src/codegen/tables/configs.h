// `distsetup fsdp` and `distsetup deepspeed`: one configuration file from flags, without a plan.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "codegen/artifact.h"
#include "codegen/tables/templates.h"

namespace distsetup {

enum class FsdpDialect { kClassic, kAccelerate, kTrainer };
// `dialect` as given by --dialect ("" = not given: accelerate, which is what `accelerate launch --config_file` takes).
Result<FsdpDialect> fsdp_dialect(std::string_view dialect);

struct FsdpOptions {
  FsdpDialect dialect = FsdpDialect::kAccelerate;
  bool as_json = false;                          // accelerate: JSON instead of YAML, which it reads by the file's name
  std::string sharding_strategy = "FULL_SHARD";  // FULL_SHARD SHARD_GRAD_OP NO_SHARD HYBRID_SHARD HYBRID_SHARD_ZERO2, or ours
  std::string mixed_precision = "BFLOAT16";      // FULL BFLOAT16 FP16; also no, fp32, bf16, fp16
  std::string checkpoint_strategy = "SHARDED_CHECKPOINT";  // FULL_ SHARDED_ LOCAL_CHECKPOINT; also ..._STATE_DICT
  std::vector<std::string> layer_classes;                  // with a model: {model.layer_class}; empty: the dialect's own default
  std::optional<int> version;                              // FSDP 1 or 2; absent: accelerate 1, whose names the flags have, trainer 2
  std::optional<int> nodes, gpus_per_node;                 // accelerate: num_machines, num_processes
  bool cpu_offload = false;
  bool activation_checkpointing = false;
  std::string command;  // for the header (accelerate), as join_command() quotes it
  TemplateSet templates = embedded_templates();
};
// Classic: the eleven keys of the seed dialect, with one kKeyNotRead warning per key that no current tool reads.
Result<Artifact> fsdp_config(const FsdpOptions& options);

struct DeepspeedOptions {
  int zero_stage = 2;
  bool offload_optimizer = false;
  bool offload_param = false;
  bool fp16 = false;
  bool bf16 = false;
  std::optional<int64_t> micro_batch;  // absent: "auto", which only the Hugging Face integration fills (said as a note)
  // Absent: where no micro-batch is given both are "auto" like it, and the Trainer fills them in; else they are 1 and 1.0.
  std::optional<int> gradient_accumulation_steps;
  std::optional<double> gradient_clipping;
  TemplateSet templates = embedded_templates();
};
Result<Artifact> deepspeed_config(const DeepspeedOptions& options);

}  // namespace distsetup
