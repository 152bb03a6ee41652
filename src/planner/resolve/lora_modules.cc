#include "planner/resolve/lora_modules.h"

#include <algorithm>
#include <iterator>

namespace distsetup {
namespace {

struct LoraModule {
  std::string_view name;
  std::vector<std::string> matrices;
  std::string_view only_in = {};  // the family whose name it is; others may mean something else by it
};

// Transformers' names stand in models/<family>/modeling_<family>.py of 5.23; Megatron Bridge's in peft/lora.py; w1 to wo are Meta's
// own, which torchtitan has, too. One matrix for several is planned as that many pairs of factors: the second one's rows are the same,
// and of the first there is one.
const std::vector<LoraModule>& lora_modules() {
  static const std::vector<LoraModule> table = {
      {"q_proj", {"query"}},
      {"k_proj", {"key"}},
      {"v_proj", {"value"}},
      {"o_proj", {"output"}},
      {"gate_proj", {"gate"}},
      {"up_proj", {"up"}},
      {"down_proj", {"down"}},
      {"query_key_value", {"query", "key", "value"}},  // GPT-NeoX, BLOOM, Falcon, ChatGLM and GLM-4 by their own code
      {"qkv_proj", {"query", "key", "value"}},         // Phi-3
      {"c_attn", {"query", "key", "value"}},           // GPT-2, GPTBigCode
      {"Wqkv", {"query", "key", "value"}},             // MPT
      {"linear_qkv", {"query", "key", "value"}},       // Megatron
      {"wq", {"query"}},
      {"wk", {"key"}},
      {"wv", {"value"}},
      {"wo", {"output"}},
      {"dense", {"output"}},     // GPT-NeoX, BLOOM, Falcon, Phi
      {"out_proj", {"output"}},  // OPT, GPT-J, GPT-Neo, MPT
      {"linear_proj", {"output"}},
      {"gate_up_proj", {"gate", "up"}},   // Phi-3, GLM
      {"dense_h_to_4h", {"gate", "up"}},  // as query_key_value; without a gate it is the one that goes up
      {"dense_4h_to_h", {"down"}},
      {"linear_fc1", {"gate", "up"}},
      {"linear_fc2", {"down"}},
      {"w1", {"gate"}},
      {"w3", {"up"}},
      {"w2", {"down"}},
      {"fc1", {"up"}},  // OPT, Phi
      {"fc2", {"down"}},
      {"fc_in", {"up"}},  // GPT-J
      {"fc_out", {"down"}},
      {"c_fc", {"up"}},                        // GPT-2, GPTBigCode, GPT-Neo, StarCoder2
      {"c_proj", {"output", "down"}, "gpt2"},  // of attention and of the MLP
      {"c_proj", {"output", "down"}, "gpt_bigcode"},
      {"c_proj", {"down"}},
  };
  return table;
}

}  // namespace

std::vector<std::string> matrices_of_module(std::string_view module, const Geometry& model) {
  const auto is_it = [&](const LoraModule& m) { return m.name == module && (m.only_in.empty() || m.only_in == model.family); };
  const auto& table = lora_modules();
  const auto found = std::find_if(table.begin(), table.end(), is_it);
  if (found == table.end()) return {std::string(module)};
  std::vector<std::string> matrices = found->matrices;
  if (!model.gated_mlp && matrices.size() > 1) std::erase(matrices, "gate");
  return matrices;
}

}  // namespace distsetup
