// Plans and shorthands for tests of what is emitted.
#pragma once
#include <string>
#include <string_view>

#include "codegen/emit.h"
#include "support/random_plan.h"

namespace distsetup {

// 4 nodes × 8 H100, zero3 over all: global batch 2 × 4 × 32.
inline Plan cluster_plan() {
  Plan plan = make_test_plan(tiny_geometry(), PlanChoice{});
  plan.model.name = "llama3_8b";
  plan.model.layer_class = "LlamaDecoderLayer";
  plan.model.hidden = 4096;
  plan.hardware.gpu = "h100_sxm";
  plan.hardware.accelerator = Accelerator::kCuda;
  plan.hardware.nodes = 4;
  plan.hardware.gpus_per_node = 8;
  plan.mesh.dp_shard = 32;
  plan.micro_batch = 2;
  plan.gradient_accumulation = 4;
  plan.train.global_batch = 2 * 4 * 32;
  plan.precision.compute = Dtype::kBf16;
  plan.inputs_digest = std::string(64, 'a');
  return plan;
}

inline Result<Artifacts> emit(const Plan& plan, std::string_view target, const EmitOptions& options = {}) {
  return emit(&plan, target, options);
}

// A SLURM job, with a plan or for machines alone.
inline Result<Artifacts> slurm_job(const JobOptions& options, const Plan* plan = nullptr) {
  EmitOptions of_job;
  of_job.job = options;
  return emit(plan, "slurm", of_job);
}

inline const std::string& file(const Artifacts& artifacts, std::string_view path) {
  static const std::string kNone;
  for (const Artifact& artifact : artifacts) {
    if (artifact.path == path) return artifact.text;
  }
  return kNone;
}

inline bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

inline std::string messages(const Diagnostics& diagnostics) {
  std::string out;
  for (const Diagnostic& diagnostic : diagnostics) out += diagnostic.code + " " + diagnostic.message + " | " + diagnostic.help + "\n";
  return out;
}

}  // namespace distsetup
