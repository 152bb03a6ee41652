// The table of families; families.h says what a row means.
#include "model/families.h"

namespace distsetup {
namespace {

constexpr Family kFamilies[] = {
    {"deepseek_v2", "DeepseekV2DecoderLayer"},
    {"deepseek_v3", "DeepseekV3DecoderLayer"},
    {"falcon", "FalconDecoderLayer", Norm::kLayer, 1e-5, true, 10000, 2, false, "gelu"},
    {"gemma", "GemmaDecoderLayer", Norm::kRms, 1e-6, true, 10000, 2, true, "gelu_tanh"},
    {"gemma2", "Gemma2DecoderLayer", Norm::kRms, 1e-6, true, 10000, 4, true, "gelu_tanh"},
    {"gemma3_text", "Gemma3DecoderLayer", Norm::kRms, 1e-6, true, 1e6, 4, true, "gelu_tanh"},
    {"gpt2", "GPT2Block", Norm::kLayer, 1e-5, true, 10000, 2, false, "gelu_tanh"},
    {"gpt_bigcode", "GPTBigCodeBlock", Norm::kLayer, 1e-5, true, 10000, 2, false, "gelu_tanh"},
    {"gpt_neox", "GPTNeoXLayer", Norm::kLayer, 1e-5, false, 10000, 2, false, "gelu"},
    {"llama", "LlamaDecoderLayer"},
    {"mistral", "MistralDecoderLayer"},
    {"mixtral", "MixtralDecoderLayer", Norm::kRms, 1e-5, false, 1e6},
    {"mpt", "MptBlock", Norm::kLayerNoBias, 1e-5, true, 10000, 2, false, "gelu"},
    {"olmo2", "Olmo2DecoderLayer", Norm::kRms, 1e-5},
    {"phi", "PhiDecoderLayer", Norm::kLayer, 1e-5, false, 10000, 1, false, "gelu_tanh"},
    {"phi3", "Phi3DecoderLayer", Norm::kRms, 1e-5},
    {"qwen2", "Qwen2DecoderLayer"},
    {"qwen2_moe", "Qwen2MoeDecoderLayer"},
    {"qwen3", "Qwen3DecoderLayer"},
    {"qwen3_moe", "Qwen3MoeDecoderLayer"},
};

}  // namespace

const Family* find_family(std::string_view model_type) {
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.model_type);
  return names;
}

}  // namespace distsetup
