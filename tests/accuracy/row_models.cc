// Which model and which GPU a row means. The name picks a preset; dims that the row states replace the preset's (truncated and resized
// models). Names without a preset are built from the row's dims as the GPT blocks of Megatron.
#include <fmt/format.h>

#include <cmath>

#include "base/diagnostic_codes.h"
#include "model/presets.h"
#include "row_setup.h"

namespace distsetup::accuracy {
namespace {

struct NamedPreset {
  std::string_view begins;  // of the cell
  std::string_view preset;
};

// Longer beginnings before shorter ones.
constexpr NamedPreset kModels[] = {{"AFM-4.5B", "afm_4.5b"},
                                   {"Apertus-8B", "apertus_8b"},
                                   {"Baichuan-7B", "baichuan_7b"},
                                   {"Baichuan2-13B", "baichuan2_13b"},
                                   {"Baichuan2-7B", "baichuan2_7b"},
                                   {"BLOOM-7B1", "bloom_7b1"},
                                   {"ChatGLM3-6B", "chatglm3_6b"},
                                   {"CodeLlama-34B", "codellama_34b"},
                                   {"Command-R7B", "command_r7b"},
                                   {"Falcon-40B", "falcon_40b"},
                                   {"Falcon-7B", "falcon_7b"},
                                   {"GPT3-175B", "gpt3_175b"},
                                   {"GPT3-20B", "gpt3_20b"},
                                   {"GPT3-5B", "gpt3_5b"},
                                   {"GLM-4.5-Air", "glm4.5_air"},
                                   {"GPT-J-6B", "gpt_j_6b"},
                                   {"GPT-2-124M", "gpt2"},
                                   {"GPT-2-1558M", "gpt2_xl"},
                                   {"GPT-2-XL", "gpt2_xl"},
                                   {"GPT-OSS-120B", "gpt_oss_120b"},
                                   {"GPT-OSS-20B", "gpt_oss_20b"},
                                   {"Gemma-2-2B", "gemma2_2b"},
                                   {"Gemma-2-9B", "gemma2_9b"},
                                   {"Gemma-2B", "gemma_2b"},
                                   {"Gemma-7B", "gemma_7b"},
                                   {"Granite-3.0-3b-a800m", "granite3.0_3b_a800m"},
                                   {"Granite-7B", "llama2_7b"},
                                   {"Grok-1", "grok_1"},
                                   {"InternLM-20B", "internlm_20b"},
                                   {"InternLM-7B", "internlm_7b"},
                                   {"KempnerForge-7B(Llama-3-8B shape)", "llama3_8b"},
                                   {"Kimi-K2", "kimi_k2"},
                                   {"LLaMA-7B", "llama2_7b"},
                                   {"LLaMA-13B", "llama2_13b"},
                                   {"LLaMA-30B", "llama_30b"},
                                   {"LLaMA-65B", "llama_65b"},
                                   {"Llama-2-13B", "llama2_13b"},
                                   {"Llama-2-70B", "llama2_70b"},
                                   {"Llama-2-7B", "llama2_7b"},
                                   {"Llama-3-70B", "llama3_70b"},
                                   {"Llama-3-8B", "llama3_8b"},
                                   {"Llama-3.1-405B", "llama3.1_405b"},
                                   {"Llama-3.1-70B", "llama3.1_70b"},
                                   {"Llama-3.1-8B", "llama3.1_8b"},
                                   {"Llama-3.2-1B", "llama3.2_1b"},
                                   {"Llama-3.2-3B", "llama3.2_3b"},
                                   {"Llama-3.3-70B", "llama3.1_70b"},
                                   {"Llama-4-Maverick", "llama4_maverick"},
                                   {"Llama-4-Scout", "llama4_scout"},
                                   {"LongChat-13B-16k", "llama2_13b"},
                                   {"MPT-125m", "mpt_125m"},
                                   {"MPT-13b", "mpt_13b"},
                                   {"MPT-1b", "mpt_1b"},
                                   {"MPT-30b", "mpt_30b"},
                                   {"MPT-350m", "mpt_350m"},
                                   {"MPT-3b", "mpt_3b"},
                                   {"MPT-70b", "mpt_70b"},
                                   {"MPT-760m", "mpt_760m"},
                                   {"MPT-7b", "mpt_7b"},
                                   {"MiMo-7B", "mimo_7b"},
                                   {"Ministral-8B", "ministral_8b"},
                                   {"Mistral-7B", "mistral_7b"},
                                   {"Mistral-Nemo-12B", "mistral_nemo_12b"},
                                   {"Mistral-Small-24B", "mistral_small_24b"},
                                   {"Mixtral-8x22B", "mixtral_8x22b"},
                                   {"Mixtral-8x7B", "mixtral_8x7b"},
                                   {"Moonlight-16B-A3B", "moonlight_16b_a3b"},
                                   {"Nemotron-22B", "nemotron_22b"},
                                   {"Nemotron-8B", "nemotron_8b"},
                                   {"Nemotron-3-Nano-4B", "nemotron3_nano_4b"},
                                   {"Nemotron-3-Nano", "nemotron3_nano"},
                                   {"Nemotron-3-Super", "nemotron3_super"},
                                   {"Nemotron-3-Ultra", "nemotron3_ultra"},
                                   {"Nemotron-3.5-Lightning", "nemotron3_nano"},
                                   {"Nemotron-H-56B", "nemotron_h_56b"},
                                   {"Nemotron4-15B", "nemotron4_15b"},
                                   {"Nemotron4-340B", "nemotron4_340b"},
                                   {"OLMo-2-1B", "olmo2_1b"},
                                   {"OLMo-2-7B", "olmo2_7b"},
                                   {"OLMo-3-7B", "olmo3_7b"},
                                   {"OLMo-7B", "olmo_7b"},
                                   {"Phi-3-mini-4k", "phi3_mini"},
                                   {"Phi-4-14B", "phi_4"},
                                   {"PowerLM-3B", "powerlm_3b"},
                                   {"QwQ-32B", "qwen2.5_32b"},
                                   {"Qwen-1.8B", "qwen_1.8b"},
                                   {"Qwen-14B", "qwen_14b"},
                                   {"Qwen-72B", "qwen_72b"},
                                   {"Qwen-7B", "qwen_7b"},
                                   {"Qwen1.5-14B", "qwen1.5_14b"},
                                   {"Qwen1.5-32B", "qwen1.5_32b"},
                                   {"Qwen1.5-7B", "qwen2.5_7b"},  // the same layers in sizes of its own
                                   {"Qwen1.5-MoE-A2.7B", "qwen1.5_moe_a2.7b"},
                                   {"Qwen2-72B", "qwen2.5_72b"},
                                   {"Qwen2.5-0.5B", "qwen2.5_0.5b"},
                                   {"Qwen2.5-1.5B", "qwen2.5_1.5b"},
                                   {"Qwen2.5-14B", "qwen2.5_14b"},
                                   {"Qwen2.5-32B", "qwen2.5_32b"},
                                   {"Qwen2.5-3B", "qwen2.5_3b"},
                                   {"Qwen2.5-72B", "qwen2.5_72b"},
                                   {"Qwen2.5-7B", "qwen2.5_7b"},
                                   {"Qwen3-0.6B", "qwen3_0.6b"},
                                   {"Qwen3-1.7B", "qwen3_1.7b"},
                                   {"Qwen3-14B", "qwen3_14b"},
                                   {"Qwen3-235B-A22B", "qwen3_235b_a22b"},
                                   {"Qwen3-30B-A3B", "qwen3_30b_a3b"},
                                   {"Qwen3-32B", "qwen3_32b"},
                                   {"Qwen3-4B", "qwen3_4b"},
                                   {"Qwen3-8B", "qwen3_8b"},
                                   {"Qwen3-Next-80B-A3B", "qwen3_next_80b_a3b"},
                                   {"Qwen3.5-122B-A10B", "qwen3.5_122b_a10b"},
                                   {"Qwen3.5-27B", "qwen3.5_27b"},
                                   {"Qwen3.5-35B-A3B", "qwen3.5_35b_a3b"},
                                   {"Qwen3.5-4B", "qwen3.5_4b"},
                                   {"Qwen3.5-9B", "qwen3.5_9b"},
                                   {"Seed-OSS-36B", "seed_oss_36b"},
                                   {"SmolLM-1.7B", "smollm_1.7b"},
                                   {"SmolLM2-1.7B", "smollm_1.7b"},
                                   {"SmolLM2-135M", "smollm_135m"},
                                   {"SmolLM2-360M", "smollm_360m"},
                                   {"StarCoder-15B", "starcoder_15b"},
                                   {"StableLM-base-alpha-3B", "stablelm_base_alpha_3b"},
                                   {"TinyLlama-1.1B", "tinyllama_1.1b"},
                                   {"Trinity-Nano", "trinity_nano"},
                                   {"Vicuna-7B", "llama2_7b"},  // -16k, too
                                   {"Yi-34B", "yi_34b"},
                                   {"Yi-6B", "yi_6b"},
                                   {"phi-1.5", "phi_1.5"},
                                   {"phi-2", "phi_2"},
                                   {"santacoder", "santacoder"},
                                   {"stablecode-completion-alpha-3b", "stablecode_completion_alpha_3b"},
                                   {"DeepSeek-Coder-1.3B", "llama2_7b"},  // a Llama of its own sizes
                                   {"DeepSeek-Coder-33B", "deepseek_coder_33b"},
                                   {"DeepSeek-V2-Lite", "deepseek_v2_lite"},
                                   {"DeepSeek-V2", "deepseek_v2"},
                                   {"DeepSeek-V3", "deepseek_v3"},
                                   {"DeepSeek-V4-Flash", "deepseek_v4_flash"}};

// "B200 (power-limited)" and the like: what the source says of the part beyond its name is in planner/time's constants, not here.
constexpr NamedPreset kGpus[] = {{"24GB GPU", "rtx_4090"},     // 3090 or 4090, not printed
                                 {"48GB GPU", "l40s"},         // A6000, L40 or another, not printed
                                 {"80GB GPU", "a100_sxm_80"},  // A100 or A800, not printed
                                 {"A100-40GB", "a100_sxm_40"},
                                 {"A100-SXM-40GB", "a100_sxm_40"},
                                 {"A100-SXM4-40GB", "a100_sxm_40"},
                                 {"A100-PCIe-40GB", "a100_pcie_40"},
                                 {"A100-PCIe", "a100_pcie_80"},
                                 {"A100", "a100_sxm_80"},
                                 {"A10G", "a10g"},
                                 {"A10-", "a10"},
                                 {"A40", "a40"},
                                 {"A800", "a800_sxm_80"},
                                 {"B200 (power-limited)", "b200_power_limited"},
                                 {"B200", "b200"},
                                 {"Blackwell 184 GiB", "gb200"},
                                 {"GB200", "gb200"},
                                 {"GB300", "gb300"},
                                 {"B300", "b300"},
                                 {"GH200", "gh200_96"},
                                 {"H100-94GB", "h100_nvl"},
                                 {"H100-96GB-HBM2e", "h100_hbm2e_96"},
                                 {"H100-PCIe", "h100_pcie"},
                                 {"H100", "h100_sxm"},
                                 {"H200-NVL", "h200_nvl"},
                                 {"H200", "h200_sxm"},
                                 {"H20", "h20"},
                                 {"H800", "h800_sxm"},
                                 {"L40S", "l40s"},
                                 {"L40-", "l40"},
                                 {"L4-", "l4"},
                                 {"MI300X", "mi300x"},
                                 {"MI325X", "mi325x"},
                                 {"MI355X", "mi355x"},
                                 {"RTX 2000 Ada", "rtx_2000_ada"},
                                 {"RTX 3090", "rtx_3090"},
                                 {"RTX 4000 Ada", "rtx_4000_ada"},
                                 {"RTX 4070 Ti Super", "rtx_4070_ti_super"},
                                 {"RTX 4090", "rtx_4090"},
                                 {"RTX 5060 Ti", "rtx_5060_ti"},
                                 {"RTX 5090", "rtx_5090"},
                                 {"RTX 6000 Ada", "rtx_6000_ada"},
                                 {"RTX A4000", "rtx_a4000"},
                                 {"RTX A4500", "rtx_a4500"},
                                 {"RTX A5000", "rtx_a5000"},
                                 {"RTX A6000", "rtx_a6000"},
                                 {"RTX 4080", "rtx_4080"},
                                 {"RTX PRO 6000", "rtx_pro_6000"},
                                 {"T4", "t4"},
                                 {"TITAN RTX", "titan_rtx"},
                                 {"V100-PCIE-16GB", "v100_pcie_16"},
                                 {"V100-PCIe-32GB", "v100_pcie_32"},
                                 {"V100-SXM2-16GB", "v100_sxm_16"},
                                 {"V100-SXM2-32GB", "v100_sxm_32"}};

const Presets& all_presets() {
  static const Presets presets = *load_presets();
  return presets;
}

template <size_t n>
std::string_view preset_of(const NamedPreset (&table)[n], std::string_view cell) {
  for (const NamedPreset& entry : table) {
    if (cell.starts_with(entry.begins)) return entry.preset;
  }
  return "";
}

// A block as most models since 2023 have it, where nothing but the sizes is stated.
Geometry stated_geometry(const Row& row) {
  Geometry g;
  g.family = "llama";
  g.layer_class = "LlamaDecoderLayer";
  g.num_layers = row.integer("layers", 0);
  g.hidden = row.integer("hidden", 0);
  g.num_heads = row.integer("heads", 0);
  g.num_kv_heads = row.integer("kv_heads", g.num_heads);
  g.head_size = g.hidden / g.num_heads;
  g.gated_mlp = !row.says("notes", "non-gated") && !row.says("notes", "relu^2") && !row.says("notes", "GELU");
  g.feed_forward = row.integer("ffn", g.gated_mlp ? (8 * g.hidden / 3 + 255) / 256 * 256 : 4 * g.hidden);
  g.vocabulary = row.integer("vocab", 50304);
  g.tied_embeddings = contains(row.text("model"), "(tied") || (is_unread_row(row) && contains(row.text("notes"), " tied embedding"));
  g.name = row.text("model");
  g.source = "sizes of the row";
  return g;
}

// Rows count the layers of a hybrid one by one; our blocks are a mixer and what follows it. Proxies are Nemotron 3 Nano scaled down.
Geometry hybrid_geometry(const Row& row, Geometry g) {
  if (!contains(row.text("model"), "proxy")) return g;
  const double layers = static_cast<double>(row.integer("layers", 52)), width = static_cast<double>(row.integer("hidden", g.hidden));
  g.num_layers = std::max<int64_t>(1, std::llround(layers * 23 / 52));
  g.num_heads = std::max<int64_t>(8, std::llround(static_cast<double>(g.num_heads) * width / static_cast<double>(g.hidden) / 8) * 8);
  g.hidden = row.integer("hidden", g.hidden);
  g.expert_feed_forward = row.integer("ffn", g.expert_feed_forward);
  g.shared_feed_forward = 2 * g.expert_feed_forward;
  int64_t dense_layers = 0;
  read_expert_flags(row.text("notes"), g, dense_layers);
  return g;
}

bool is_gpt_name(std::string_view cell) {
  for (const std::string_view begin : {"GPT-", "GPT ", "OPT", "gpt2-", "EleutherAI/gpt-neo", "bigcode/starcoder", "ChatGLM-6B"}) {
    if (cell.starts_with(begin)) return true;
  }
  return false;
}

// A GPT block: LayerNorm, GELU, biases, learned positions, tied embedding (Megatron-LM's GPTModel, arXiv 1909.08053).
Result<Geometry> gpt_geometry(const Row& row) {
  const double params = row.number("params_b").value_or(0) * 1e9;
  const int64_t hidden = row.integer("hidden", 0), heads = row.integer("heads", 0), seq = row.integer("seq_len", 0);
  if (hidden == 0 || heads == 0) return unmapped(row, "the number of attention heads or the hidden size is not stated");
  Geometry g;
  g.family = "gpt2";
  g.layer_class = "ParallelTransformerLayer";
  g.hidden = hidden;
  g.num_heads = heads;
  g.num_kv_heads = row.integer("kv_heads", heads);
  g.head_size = hidden / heads;
  g.feed_forward = row.integer("ffn", 4 * hidden);
  // Padded to a multiple of 128 x tp. BLOOM's tokenizer has 250,680 entries; GPT-2's 50,257 become 51,200 in Megatron at tp = 8.
  const std::optional<double> thousands = number_after(row.text("notes"), "vocab ");
  const int64_t words = row.integer("vocab", thousands && *thousands > 200 ? 250680 : 50257);
  const int64_t multiple = 128 * row.integer("tp", 1);
  g.vocabulary = (words + multiple - 1) / multiple * multiple;
  g.learned_positions = g.max_positions = seq;
  g.tied_embeddings = !is_unread_row(row) || (!contains(row.text("notes"), "untied") && !row.text("model").starts_with("ChatGLM"));
  g.qkv_bias = g.output_bias = g.mlp_bias = true;
  g.gated_mlp = false;
  g.norm = Norm::kLayer;
  g.activation = "gelu_tanh";
  g.num_layers = row.integer("layers", 0);
  if (g.num_layers == 0 && params > 0) {  // the printed total and the width leave one number of layers
    const auto h = static_cast<double>(hidden);
    g.num_layers = std::llround((params - static_cast<double>(g.vocabulary + seq) * h) /
                                (h * (4 * h + 2 * static_cast<double>(g.feed_forward)) + 13 * h));
  }
  if (g.num_layers <= 0) return unmapped(row, "the number of layers is not stated");
  g.name = row.text("model");
  g.source = row.text("framework");
  return g;
}

}  // namespace

Result<Geometry> row_geometry(const Row& row) {
  const std::string& cell = row.text("model");
  if (is_own_gpt(row)) return own_gpt_geometry(row);
  const std::string_view preset = preset_of(kModels, cell);
  if (preset.empty()) {
    if (row.says("notes", "flags: ")) return flags_geometry(row);
    if (is_gpt_name(cell)) return gpt_geometry(row);
    if (cell.starts_with("Llama2-1B (torchao example)")) {  // Llama 2 at 1B is TinyLlama
      return find_model(all_presets(), "tinyllama_1.1b");
    }
    if (cell.starts_with("KempnerForge-13B") && row.number("hidden")) {
      Result<Geometry> g = find_model(all_presets(), "llama2_13b");
      if (!g) return g;
      g->num_layers = row.integer("layers", g->num_layers);
      g->hidden = row.integer("hidden", g->hidden);
      g->feed_forward = row.integer("ffn", g->feed_forward);
      g->num_heads = row.integer("heads", g->num_heads);
      g->num_kv_heads = row.integer("kv_heads", g->num_kv_heads);
      g->vocabulary = row.integer("vocab", g->vocabulary);
      g->head_size = g->hidden / g->num_heads;
      return g;
    }
    if (row.number("layers") && row.number("hidden") && row.number("heads")) return stated_geometry(row);
    return unmapped(row, fmt::format("the dims of model '{}' are not stated", cell));
  }
  Result<Geometry> found = find_model(all_presets(), preset);
  if (!found) return found;
  Geometry g = *found;
  if (g.layer_class == "NemotronHBlock") return hybrid_geometry(row, g);
  const int64_t published_hidden = g.hidden, published_heads = g.num_heads;
  g.num_layers = row.integer("layers", g.num_layers);
  g.hidden = row.integer("hidden", g.hidden);
  g.num_heads = row.integer("heads", g.num_heads);
  g.num_kv_heads = row.integer("kv_heads", g.num_kv_heads);
  g.vocabulary = row.integer("vocab", g.vocabulary);
  g.feed_forward = row.integer("ffn", g.feed_forward);
  if (g.hidden != published_hidden || g.num_heads != published_heads) g.head_size = g.hidden / g.num_heads;
  if (contains(cell, "untied")) {  // of a book's GPT-2: a head of its own, no biases of q, k and v
    g.tied_embeddings = false;
    g.qkv_bias = false;
  }
  if (contains(cell, "(tied")) g.tied_embeddings = true;
  if (contains(cell, "own head")) g.tied_embeddings = false;
  if (g.family == "mpt") g.learned_positions = g.max_positions = row.integer("seq_len", g.max_positions);  // as the source counts
  if (g.num_experts > 0) {
    g.num_experts = row.integer("experts", g.num_experts);
    g.experts_per_token = row.integer("top_k", g.experts_per_token);
    g.expert_feed_forward = row.integer("expert_ffn", g.expert_feed_forward);
    int64_t dense_layers = 0;
    for (const bool has_experts : g.expert_layer) dense_layers += has_experts ? 0 : 1;
    const bool interleaved = g.expert_layer.size() > 2 && g.expert_layer[1] && !g.expert_layer[2];  // Llama 4 Maverick
    if (interleaved && g.num_layers == static_cast<int64_t>(g.expert_layer.size())) return g;
    if (row.says("notes", "1 dense layer")) dense_layers = 1;
    read_expert_flags(row.text("notes"), g, dense_layers);
    g.expert_layer.assign(static_cast<size_t>(g.num_layers), true);
    for (int64_t i = 0; i < std::min(dense_layers, g.num_layers); ++i) g.expert_layer[static_cast<size_t>(i)] = false;
  }
  return g;
}

Result<Gpu> row_gpu(const Row& row) {
  const std::string& cell = row.text("gpu");
  std::string_view preset = preset_of(kGpus, cell);
  // Where the source names no part, what its own pages say it was measured on.
  if (cell.empty() && row.says("framework", "torchtune")) preset = "rtx_4090";        // README, 2024: consumer GPUs of 24 GB
  if (cell.empty() && row.says("framework", "Megatron-Bridge")) preset = "h100_sxm";  // the memory-tuning page is about H100
  // torchtitan's and torchao's developers measure on H100 of 96 GB HBM2e limited to 500 W (torchtitan benchmarks/, 2024-12).
  if (cell == "H100" && (row.says("framework", "torchtitan") || row.says("framework", "torchao"))) preset = "h100_hbm2e_96";
  if (preset.empty()) return unmapped(row, cell.empty() ? "the GPU is not stated" : fmt::format("no preset for GPU '{}'", cell));
  Result<GpuChoice> found = find_gpu(all_presets(), preset);
  if (!found) return found.diagnostics;
  Gpu gpu = found->gpu;
  // "RTX 4090 modified to 48 GB": larger memory chips on the same card.
  if (const std::optional<double> gb = number_after(cell, "modified to ")) {
    const double times = *gb * 1e9 / static_cast<double>(gpu.memory_bytes);
    gpu.memory_bytes = std::llround(static_cast<double>(gpu.memory_bytes) * times);
    gpu.usable_memory_bytes = std::llround(static_cast<double>(gpu.usable_memory_bytes) * times);
  }
  return gpu;
}

}  // namespace distsetup::accuracy
