// Which GPUs, how many in a node, how many nodes: names looked up, counts reconciled, what is not given assumed and said.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/presets.h"
#include "plan/plan.h"
#include "planner/resolve/read_inputs.h"

namespace distsetup {

struct ResolvedHardware {
  HardwarePlan plan;                   // nodes left at 1
  std::vector<int> node_counts;        // to try
  std::vector<HardwarePlan> other;     // to compare with, when no hardware was given
  std::vector<HardwarePlan> compared;  // the same, always
  std::vector<HardwarePlan> larger;    // GPUs with more memory, smallest first
  bool assumed = false;                // nothing about hardware was given
  std::map<std::string, Gpu> gpus;     // by preset id, of `plan`, `other` and `larger`
  bool gpus_per_node_given = false, nodes_given = false;
  double host_memory_bytes_per_s = 0;  // of a node of `plan`; 0 = not known
  double nvme_bytes_per_s = 0;         // the same
  std::vector<std::string> assumptions;
  std::string used_texts;  // of the presets and files that were read, for the digest
  Diagnostics diagnostics;
};
ResolvedHardware resolve_hardware(const Spec& spec, const Presets& presets, const Inputs& inputs, Dtype compute);

// What to compute in where the run says nothing: bf16; on a GPU without it (Volta, Turing) fp16, or fp32 where the trainer has no
// fp16. `why`: the GPU, where it is not bf16.
struct AssumedCompute {
  Dtype compute = Dtype::kBf16;
  std::string why;
};
AssumedCompute assumed_compute(const Spec& spec, const Presets& presets, const Inputs& inputs, bool has_fp16);

// A preset with its name, for the digest; empty when there is none.
std::string preset_text(const Presets& presets, std::string_view folder, std::string_view id);

}  // namespace distsetup
