// What all frameworks' rows share: shapes, hardware, mesh, batch. Then the file of the framework decides the rest.
#include "row_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/diagnostic_codes.h"
#include "planner/frameworks/lifetimes.h"

namespace distsetup::accuracy {
namespace {

// One direction, of a node, in Gb/s. Stated per node or per GPU; where the source names only the reference design, that design's NICs:
// DGX A100 8 x 200 (HDR), DGX H100 and H200 8 x 400 (NDR), GB200 4 x 400, GB300 4 x 800 per tray.
double nic_gbits(const Row& row, const Setup& s) {
  const std::string& link = row.text("interconnect");
  if (const auto efa = number_after(link, "EFA ")) return *efa;
  const size_t at = link.find(" Gb/s");
  if (at != std::string::npos) {
    size_t begin = at;
    while (begin > 0 && (std::isdigit(static_cast<unsigned char>(link[begin - 1])) || link[begin - 1] == 'x')) --begin;
    const std::string number = link.substr(begin, at - begin);
    const size_t times = number.find('x');
    const double one = std::atof(number.c_str() + (times == std::string::npos ? 0 : times + 1));
    const double count = times == std::string::npos ? 1 : std::atof(number.c_str());
    return one * count * (contains(link, "per GPU") ? s.gpus_per_node : 1);
  }
  if (contains(link, "400 Gb/s CX-7 per GPU")) return 400.0 * s.gpus_per_node;
  if (contains(link, "HDR") || s.gpu.name.starts_with("a100") || s.gpu.name.starts_with("a800")) return 200.0 * s.gpus_per_node;
  if (contains(link, "Omni-Path")) return 400;  // Jean Zay: 4 x 100 per node
  if (s.gpu.name.starts_with("gb200")) return 400.0 * s.gpus_per_node;
  if (s.gpu.name.starts_with("gb300") || s.gpu.name.starts_with("b300")) return 800.0 * s.gpus_per_node;
  return 400.0 * s.gpus_per_node;
}

std::string nic_kind(const Row& row) {
  const std::string& link = row.text("interconnect");
  if (contains(link, "EFA")) return "efa";
  if (contains(link, "Omni-Path")) return "omni_path";
  if (contains(link, "RoCE") || contains(link, "RDMA")) return "roce";
  if (contains(link, "Ethernet") && !contains(link, "IB/Ethernet")) return "ethernet";  // that one's cards are RDMA's
  if (contains(link, "IB") || contains(link, "InfiniBand")) return "infiniband";
  return "infiniband";
}

Dtype storage(std::string_view cell, Dtype absent) {
  if (cell.starts_with("fp32")) return Dtype::kF32;
  if (cell.starts_with("bf16")) return Dtype::kBf16;
  if (cell.starts_with("fp16")) return Dtype::kF16;
  return absent;
}

}  // namespace

Diagnostic unmapped(const Row& row, std::string reason) { return error(code::kMissingKey, row.location, std::move(reason)); }

void set_mesh(Setup& s, int tp, int cp, int pp, int gpus) {
  s.tp = tp;
  s.cp = cp;
  s.pp = pp;
  s.dp_shard = std::max(1, gpus / (tp * cp * pp));
  s.dp_replicate = 1;
}

int date_in(std::string_view text) {
  int year_only = 0;
  for (size_t i = 0; i + 4 <= text.size(); ++i) {
    if (text.substr(i, 2) != "20") continue;
    if (i > 0 && std::isalnum(static_cast<unsigned char>(text[i - 1])) && text[i - 1] != '_') continue;
    size_t n = 0;
    while (i + n < text.size() && std::isdigit(static_cast<unsigned char>(text[i + n]))) ++n;
    const int year = (text[i + 2] - '0') * 10 + (text[i + 3] - '0') + 2000;
    if (n == 6) return std::atoi(std::string(text.substr(i, 6)).c_str());
    if (n != 4 || year < 2020 || year > 2035) continue;
    if (i + 7 <= text.size() && text[i + 4] == '-' && std::isdigit(static_cast<unsigned char>(text[i + 5])) &&
        (i + 7 == text.size() || !std::isdigit(static_cast<unsigned char>(text[i + 7])))) {
      const int month = (text[i + 5] - '0') * 10 + (text[i + 6] - '0');
      if (month >= 1 && month <= 12) return year * 100 + month;
    }
    if (year_only == 0) year_only = year * 100 + 6;  // the middle of the year
  }
  return year_only;
}

void set_expert_ranks(Setup& s, const Row& row) {
  const std::string& notes = row.text("notes");
  if (s.model.num_experts == 0 || s.ep > 1) return;
  const int most = std::min(s.dp_shard * s.cp * s.tp, static_cast<int>(s.model.num_experts));
  const double stated =
      number_after(notes, " EP=").value_or(number_after(notes, ";EP=").value_or(number_after(notes, " EP").value_or(0)));
  if (stated >= 1) {
    s.ep = static_cast<int>(stated);
  } else if (row.says("strategy", "EP") || contains(notes, "DeepEP") || contains(notes, "HybridEP")) {
    s.ep = most;
  }
  while (s.ep > 1 && (s.model.num_experts % s.ep != 0 || (s.dp_shard * s.cp * s.tp) % s.ep != 0)) --s.ep;
}

void set_replicas(Setup& s, const Row& row) {
  if (!row.text("strategy").starts_with("HSDP") || s.dp_replicate > 1 || s.nodes == 1) return;
  if (s.dp_shard % s.nodes != 0) return;
  s.dp_replicate = s.nodes;
  s.dp_shard /= s.nodes;
}

bool begins_any(const Row& row, std::initializer_list<std::string_view> names) {
  const std::string& framework = row.text("framework");
  for (const std::string_view name : names) {
    if (framework.starts_with(name)) return true;
  }
  return false;
}

bool has_feature(const Row& row, std::initializer_list<std::string_view> names) {
  std::string notes = row.text("notes");
  std::transform(notes.begin(), notes.end(), notes.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const std::string_view name : names) {
    for (size_t at = notes.find(name); at != std::string::npos; at = notes.find(name, at + 1)) {
      const std::string_view before = std::string_view(notes).substr(0, at);
      if (!before.ends_with("no ") && !before.ends_with("not ") && !before.ends_with("without ") && !before.ends_with("no-"))
        return true;
    }
  }
  return false;
}

Lora lora_targets(std::string_view which, int64_t rank) {
  Lora lora;
  lora.rank = rank;
  lora.query = lora.value = which == "qv" || which == "all" || which == "attention" || which == "qkv";
  lora.key = which == "all" || which == "attention" || which == "qkv";
  lora.output = which == "all" || which == "attention";
  lora.gate = lora.up = lora.down = which == "all" || which == "mlp";
  return lora;
}

Fp8Recipe fp8_recipe(const Row& row) {
  const std::string& p = row.text("precision");
  if (contains(p, "nvfp4")) return Fp8Recipe::kNvfp4;
  if (contains(p, "mxfp8")) return Fp8Recipe::kMxfp8;
  if (!contains(p, "fp8")) return Fp8Recipe::kNone;
  if (contains(p, "rowwise")) return Fp8Recipe::kRowwise;
  if (contains(p, "blockwise")) return Fp8Recipe::kBlockwise;
  if (contains(p, "(TE tensorwise)")) return Fp8Recipe::kTensorwise;
  if (contains(p, "delayed") || contains(p, "(TE") || contains(p, "TransformerEngine") || contains(p, "recipe"))
    return Fp8Recipe::kDelayed;
  return Fp8Recipe::kTensorwise;
}

Result<Setup> common_setup(const Row& row) {
  Setup s;
  Result<Geometry> model = row_geometry(row);
  if (!model) return model.diagnostics;
  s.model = *model;
  Result<Gpu> gpu = row_gpu(row);
  if (!gpu) return gpu.diagnostics;
  s.gpu = *gpu;
  const int world = static_cast<int>(row.integer("gpus", 0));
  if (world == 0) return unmapped(row, "the number of GPUs is not stated");
  s.nodes = static_cast<int>(row.integer("nodes", (world + 7) / 8));
  s.gpus_per_node = world / std::max(1, s.nodes);
  // Instead of NVLink; a card without it has a link of its own in its preset.
  if (row.says("interconnect", "PCIe") && !s.gpu.link.kind.starts_with("pcie")) s.gpu.link = {"pcie4", s.gpu.pcie_bytes_per_s};
  if (s.nodes > 1) {
    s.nic_kind = nic_kind(row);
    s.nic_bytes_per_s = nic_gbits(row, s) * 1e9 / 8;
  }
  s.host_memory_bytes = 0;
  const int tp = static_cast<int>(row.integer("tp", 1)), cp = static_cast<int>(row.integer("cp", 1)),
            pp = static_cast<int>(row.integer("pp", 1));
  set_mesh(s, tp, cp, pp, world);
  if (s.world() != world) return unmapped(row, fmt::format("tp {} x cp {} x pp {} do not divide {} GPUs", tp, cp, pp, world));
  s.dp_replicate = static_cast<int>(row.integer("dp_replicate", 1));
  if (s.dp_replicate > 1) s.dp_shard = std::max(1, s.dp_shard / s.dp_replicate);
  s.ep = static_cast<int>(row.integer("ep", 1));
  s.virtual_stages = static_cast<int>(
      std::max(1.0, number_after(row.text("notes"), "virtual PP ").value_or(number_after(row.text("notes"), " VPP").value_or(1))));
  s.sequence_length = row.integer("seq_len", 0);
  s.micro_batch = row.integer("micro_batch_per_gpu", 0);
  s.gradient_accumulation = row.integer("grad_accum", 0);
  if (s.gradient_accumulation == 0 && s.micro_batch > 0) {
    const double global = std::atof(row.text("global_batch_tokens_or_seqs").c_str());
    const double per_step = static_cast<double>(s.micro_batch) * s.dp_shard * s.dp_replicate;
    s.gradient_accumulation = global > 0 ? std::max<int64_t>(1, std::llround(std::ceil(global / per_step - 1e-9))) : 1;
  }
  s.parameter_dtype = storage(row.text("param_dtype"), Dtype::kF32);
  s.gradient_dtype = s.state_dtype = s.parameter_dtype;
  s.reduce_dtype = storage(row.text("grad_reduce_dtype"), Dtype::kF32);
  s.compute = row.says("precision", "fp16") ? Dtype::kF16 : Dtype::kBf16;
  s.fp8 = fp8_recipe(row);
  if (s.fp8 != Fp8Recipe::kNone) s.compute = Dtype::kF8;
  s.flash_attention = row.text("flash_attention") != "no";
  const std::string& offload = row.text("offload");
  if (offload == "params")  // DeepSpeed's offload_param alone
    s.offload.parameters = OffloadPlace::kHost;
  else if (offload.starts_with("params"))
    s.offload.parameters = s.offload.optimizer = contains(offload, "NVMe") ? OffloadPlace::kNvme : OffloadPlace::kHost;
  if (offload == "optimizer") s.offload.optimizer = OffloadPlace::kHost;
  const std::string& finetune = row.text("finetune");
  s.finetune = finetune == "lora" ? Finetune::kLora : finetune == "qlora" ? Finetune::kQlora : Finetune::kFull;
  s.software.name = row.text("framework");
  s.software.released = date_in(row.text("software"));
  return s;
}

namespace {

// Rows of 2024 on say what their tool sets, or leave the batch to it; those of older pages have rules of their own in hf_rows.cc.
bool is_trainer_row(const Row& row) {
  const std::string& framework = row.text("framework");
  if (begins_any(row, {"axolotl", "LLaMA-Factory", "HF Trainer / TRL", "HF Trainer / PEFT", "HF accelerate", "ms-swift (HF Trainer + ",
                       "FlagPerf (DeepSpeed", "Halo", "megatron-sft-recipes"}))
    return true;
  // llama-recipes' own pages print neither batch nor length.
  if (framework.starts_with("llama-recipes")) return !row.text("micro_batch_per_gpu").empty();
  if (framework.starts_with("ms-swift (HF")) return row.says("optimizer", "HF default");
  const bool open = row.text("micro_batch_per_gpu").empty() || row.text("precision").empty();
  return open && (framework.starts_with("HF Trainer (+DeepSpeed)") || framework == "HF Trainer + accelerate FSDP");
}

// The nearest program that has what the model has: Megatron-DeepSpeed's own layers know neither experts nor latent attention.
void settle_program(Setup& s) {
  const LifetimeProgram* program = s.traits().lifetime_programs ? lifetime_program(s.program) : nullptr;
  if (program != nullptr && !missing_part(*program, s.model).empty()) s.program = "megatron_te";
}

}  // namespace

Result<Setup> row_setup(const Row& row) {
  const std::string& framework = row.text("framework");
  const auto begins = [&](std::string_view part) { return framework.starts_with(part); };
  if (row.text("notes").starts_with("OOM of the host"))
    return unmapped(row, "the host ran out of memory, and the verdicts here are of the GPU's");
  if (row.says("notes", "who drives the GPUs is not printed"))
    return unmapped(row, "whether one process drives all GPUs or one each is not stated");
  if (row.says("notes", "lengths of the samples of these ten steps not printed"))
    return unmapped(row, "it ran, and the lengths that it ran with are not stated");
  Result<Setup> setup;
  if (is_own_loop(row)) {
    setup = loop_row(row);
  } else if (is_hub_row(row)) {
    setup = hub_row(row);
  } else if (is_unread_row(row)) {
    setup = unread_row(row);
  } else if (begins("torchtune") || begins("torchao benchmark")) {
    setup = tune_row(row);
  } else if (begins("torchtitan") || begins("torchao") || begins("KempnerForge") || begins("PithTrain")) {
    setup = torch_row(row);
  } else if (begins("NeMo Automodel") || begins("OLMo-core") || begins("NeMo-RL (DTensor")) {
    setup = automodel_row(row);
  } else if (begins("litgpt") || begins("lit-gpt")) {
    setup = litgpt_row(row);
  } else if (is_trainer_row(row)) {
    setup = trainer_row(row);
  } else if (!contains(framework, "Megatron-SWIFT") &&
             (begins("HF ") || begins("ms-swift") || begins("fsdp_qlora") || begins("llama-recipes"))) {
    setup = hf_row(row);
  } else if (begins("llm-foundry") || begins("fms-fsdp")) {
    setup = foundry_row(row);
  } else if (begins("Megatron") || begins("NeMo") || begins("Primus") || contains(framework, "Megatron-SWIFT")) {
    setup = megatron_row(row);
  } else if (begins("DeepSpeed") || begins("xtuner") || begins("InternEvo") || begins("ATorch") || begins("EasyContext") ||
             begins("ArcticTraining") || begins("gdGPT") || begins("benchmark_tp")) {
    setup = deepspeed_row(row);
  } else if (begins("LLM.Q") || begins("llm.c") || begins("modded-nanogpt") || begins("parameter-golf") || begins("nanochat") ||
             begins("autoresearch")) {
    setup = lean_row(row);
  } else {
    return unmapped(row, fmt::format("no model of framework '{}'", framework));
  }
  if (!setup) return setup;
  if (setup->sequence_length <= 0) return unmapped(row, "the sequence length is not stated");
  if (setup->micro_batch <= 0) return unmapped(row, "the micro-batch is not stated");
  settle_program(*setup);
  return setup;
}

}  // namespace distsetup::accuracy
