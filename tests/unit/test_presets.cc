// Every preset file reads strictly, every name finds one thing, and the user's own files replace ours.
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <map>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "base/value_yaml.h"
#include "model/count.h"
#include "model/presets.h"
#include "support/temporary_directory.h"

namespace distsetup {
namespace {

const Presets& presets() {
  static const Result<Presets> loaded = load_presets();
  REQUIRE(loaded.ok());
  return *loaded;
}

std::string model_id(const std::string& name) {
  const Result<Geometry> model = find_model(presets(), name);
  return model.ok() ? model->name : format_diagnostics(model.diagnostics);
}

std::string gpu_id(const std::string& name) {
  const Result<GpuChoice> gpu = find_gpu(presets(), name);
  return gpu.ok() ? gpu->gpu.name : format_diagnostics(gpu.diagnostics);
}

}  // namespace

TEST_CASE("presets: a GPU answers to the name that its driver prints") {
  const std::map<std::string, std::string> printed = {{"NVIDIA A100-SXM4-80GB", "a100_sxm_80"},
                                                      {"NVIDIA A100-SXM4-40GB", "a100_sxm_40"},
                                                      {"NVIDIA A100 80GB PCIe", "a100_pcie_80"},
                                                      {"NVIDIA A100-PCIE-40GB", "a100_pcie_40"},
                                                      {"NVIDIA-H100-80GB-HBM3", "h100_sxm"},  // a label of Kubernetes
                                                      {"NVIDIA H100 PCIe", "h100_pcie"},
                                                      {"NVIDIA H100 NVL", "h100_nvl"},
                                                      {"NVIDIA H200", "h200_sxm"},
                                                      {"NVIDIA GH200 480GB", "gh200_96"},
                                                      {"NVIDIA B200", "b200"},
                                                      {"8x NVIDIA GeForce RTX 4090", "rtx_4090"},
                                                      {"NVIDIA RTX A6000", "rtx_a6000"},
                                                      {"NVIDIA RTX 6000 Ada Generation", "rtx_6000_ada"},
                                                      {"NVIDIA L40S", "l40s"},
                                                      {"NVIDIA A10G", "a10g"},
                                                      {"Tesla T4", "t4"},
                                                      {"Tesla V100-SXM2-16GB", "v100_sxm_16"},
                                                      {"AMD Instinct MI300X", "mi300x"}};
  for (const auto& [name, id] : printed) CHECK(gpu_id(name) == id);
  for (const char* no : {"NVIDIA", "NVIDIA GeForce", "AMD A100-SXM4-90GB", "Tesla"}) {
    INFO(no);
    CHECK_FALSE(find_gpu(presets(), no).ok());
  }
}

TEST_CASE("presets: every file reads without a complaint and states its source and date") {
  size_t num_read = 0;
  for (const std::string& id : preset_ids(presets(), "models")) {
    INFO(id);
    const Result<Geometry> model = find_model(presets(), id);
    CHECK(model.diagnostics.empty());
    CHECK(model->name == id);
    CHECK(model->source.find(", 20") != std::string::npos);
    CHECK_FALSE(model->layer_class.empty());
    ++num_read;
  }
  for (const std::string& id : preset_ids(presets(), "gpus")) {
    INFO(id);
    const Result<GpuChoice> gpu = find_gpu(presets(), id);
    CHECK(gpu.diagnostics.empty());
    CHECK(gpu->gpu.name == id);
    CHECK(gpu->gpu.source.find(", 20") != std::string::npos);
    CHECK(gpu->count == 0);
    ++num_read;
  }
  for (const std::string& id : preset_ids(presets(), "machines")) {
    INFO(id);
    const Result<Machine> machine = find_machine(presets(), id);
    CHECK(machine.diagnostics.empty());
    CHECK(machine->name == id);
    CHECK(machine->source.find(", 20") != std::string::npos);
    CHECK(find_preset(presets(), "gpus", machine->gpu) != nullptr);
    CHECK((machine->price_usd_per_hour > 0) == !machine->price_date.empty());
    ++num_read;
  }
  CHECK(num_read >= 54 + 17 + 30);
}

TEST_CASE("presets: no name belongs to two GPUs or two machines") {
  std::map<std::string, std::string> owner;
  for (const std::string& id : preset_ids(presets(), "gpus")) {
    const Gpu gpu = find_gpu(presets(), id)->gpu;
    for (const std::string& alias : gpu.aliases) {
      INFO(alias);
      CHECK(gpu_id(alias) == id);
      CHECK(owner.emplace(alias, id).second);
    }
  }
  for (const std::string& id : preset_ids(presets(), "machines")) {
    const std::vector<std::string> aliases = find_machine(presets(), id)->aliases;
    for (const std::string& alias : aliases) {
      INFO(alias);
      const Result<Machine> machine = find_machine(presets(), alias);
      REQUIRE(machine.ok());
      CHECK(machine->name == id);
    }
  }
}

TEST_CASE("presets: bare sizes name the published models") {
  CHECK(model_id("1B") == "llama3.2_1b");
  CHECK(model_id("7B") == "llama2_7b");
  CHECK(model_id("8B") == "llama3_8b");
  CHECK(model_id("13B") == "llama2_13b");
  CHECK(model_id("70b") == "llama3_70b");
  CHECK(model_id("405B") == "llama3.1_405b");
  CHECK(count_parameters(*find_model(presets(), "70B")).total == 70'553'706'496);
}

TEST_CASE("presets: a published model of the same sizes keeps its own name") {
  const auto hub = [](const char* name) { return find_model(presets(), name)->hub_id; };
  CHECK(hub("Qwen/Qwen2.5-Math-7B") == "Qwen/Qwen2.5-Math-7B");
  CHECK(hub("meta-llama/Llama-3.1-8B-Instruct") == "meta-llama/Llama-3.1-8B-Instruct");
  CHECK(hub("/data/models/Qwen2.5-7B") == "/data/models/Qwen2.5-7B");
  CHECK(hub("qwen2.5_7b") == "Qwen/Qwen2.5-7B");
  CHECK(hub("Qwen/Qwen2.5-7B") == "Qwen/Qwen2.5-7B");
}

TEST_CASE("presets: spellings of a model's name") {
  for (const char* name : {"llama3_8b", "llama3-8b", "Llama-3-8B", "LLAMA3_8B", "meta-llama/Meta-Llama-3-8B", "Meta-Llama-3-8B"}) {
    CHECK(model_id(name) == "llama3_8b");
  }
  CHECK(model_id("Llama-3.1-8B") == "llama3.1_8b");
  CHECK(model_id("llama3-1-8b") == "llama3.1_8b");
  CHECK(model_id("Qwen2.5-0.5B") == "qwen2.5_0.5b");
  CHECK(model_id("Qwen/Qwen3-30B-A3B") == "qwen3_30b_a3b");
  CHECK(model_id("meta-llama/Llama-2-7b-hf") == "llama2_7b");
  CHECK(model_id("8x7B") == "mixtral_8x7b");
  CHECK(model_id("671B") == "deepseek_v3");
  CHECK(model_id("phi-2") == "phi_2");
}

TEST_CASE("presets: a decimal point is not dropped from a size") {
  CHECK(model_id("1.7B") == "qwen3_1.7b");                         // not 17B
  const Result<Geometry> missing = find_model(presets(), "1.3B");  // not 13B
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.diagnostics[0].code == code::kUnknownModel);
}

TEST_CASE("presets: names with a misspelt word, an owner, or only a part of a name") {
  const std::pair<const char*, const char*> models[] = {{"Llama-3.1-8B-Instrct", "did you mean 'llama3.1_8b'"},
                                                        {"Lama-3.1-8B-Instrct", "did you mean 'llama3.1_8b'"},
                                                        {"meta-llama/Llama-3.1-8B-Instrct", "did you mean 'meta-llama/Llama-3.1-8B'"},
                                                        {"somebody/Qwen2.5-7B-Instruc", "did you mean 'qwen2.5_7b'"},
                                                        {"gpt-oss", "did you mean one of gpt_oss_120b, gpt_oss_20b"},
                                                        {"TinyLlma", "did you mean 'tinyllama_1.1b'"},
                                                        {"r1-distill", "did you mean 'deepseek_r1_distill_qwen_1.5b'"},
                                                        {"wonder-model", "known: "}};
  for (const auto& [name, help] : models) {
    INFO(name);
    CHECK(find_model(presets(), name).diagnostics[0].help.starts_with(help));
  }
  CHECK(find_machine(presets(), "p4d").diagnostics[0].help.starts_with("did you mean one of aws_p4d_24xlarge, aws_p4de_24xlarge"));
}

TEST_CASE("presets: an unknown model is named with the nearest one") {
  const Result<Geometry> model = find_model(presets(), "lama3_8b", {"run.yaml", 2, 8});
  REQUIRE_FALSE(model.ok());
  REQUIRE(model.diagnostics.size() == 1);
  CHECK(model.diagnostics[0].code == code::kUnknownModel);
  CHECK(model.diagnostics[0].message == "unknown model 'lama3_8b'");
  CHECK(model.diagnostics[0].help == "did you mean 'llama3_8b'; or describe it: distsetup explain DS0201");
  CHECK(model.diagnostics[0].location == Location{"run.yaml", 2, 8});
  CHECK_FALSE(find_model(presets(), "").ok());
  CHECK_FALSE(find_model(presets(), "sizes").ok());
}

TEST_CASE("presets: a label of several models is refused with all of them") {
  const Result<Geometry> model = find_model(presets(), "3B");
  REQUIRE_FALSE(model.ok());
  CHECK(model.diagnostics[0].message == "model '3B' can be any of llama3.2_3b, scratch_3b, scratch_3b_wide");
  CHECK(model.diagnostics[0].help == "write one of these names, such as 'llama3.2_3b'");
}

TEST_CASE("presets: names of GPUs") {
  for (const char* name : {"H100", "h100", "h100_sxm", "H100-80GB", "H100 SXM", "H100 80GB"}) CHECK(gpu_id(name) == "h100_sxm");
  for (const char* name : {"A100", "a100-80", "A100-SXM4-80GB"}) CHECK(gpu_id(name) == "a100_sxm_80");
  CHECK(gpu_id("A100-40GB") == "a100_sxm_40");
  CHECK(gpu_id("4090") == "rtx_4090");
  CHECK(gpu_id("RTX 4090") == "rtx_4090");
  CHECK(gpu_id("V100") == "v100_sxm_32");
  for (const char* name : {"H200", "B200", "L4", "L40S", "A10G", "MI300X", "RTX 3090", "RTX 5090", "cpu"})
    CHECK(find_gpu(presets(), name).ok());
  const Result<GpuChoice> unknown = find_gpu(presets(), "H10O");
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.diagnostics[0].code == code::kUnknownGpu);
  CHECK(unknown.diagnostics[0].help == "did you mean 'H100'; or describe it: distsetup explain DS0202");
}

TEST_CASE("presets: a count in front of a GPU") {
  for (const char* name : {"8xH100-80GB", "8 x H100", "8×H100", "8XH100", "8*h100_sxm"}) {
    INFO(name);
    const Result<GpuChoice> gpu = find_gpu(presets(), name);
    REQUIRE(gpu.ok());
    CHECK(gpu->count == 8);
    CHECK(gpu->gpu.name == "h100_sxm");
  }
  CHECK(find_gpu(presets(), "4090")->count == 0);
  CHECK(find_gpu(presets(), "4x4090")->count == 4);
  CHECK_FALSE(find_gpu(presets(), "0xH100").ok());
  CHECK_FALSE(find_gpu(presets(), "8x").ok());
}

TEST_CASE("presets: constants of a GPU carry their units") {
  const Gpu h100 = find_gpu(presets(), "H100")->gpu;
  CHECK(h100.memory_bytes == 80'000'000'000);
  CHECK(h100.usable_memory_bytes == static_cast<int64_t>(79.1 * static_cast<double>(kGiB)));
  CHECK(h100.memory_bytes_per_s == 3.35e12);
  CHECK(h100.peak_bf16_flops_per_s == 989e12);
  CHECK(h100.peak_fp32_flops_per_s == 67e12);
  CHECK(h100.link.bytes_per_s == 450e9);
  CHECK(h100.num_sm == 132);
  CHECK(h100.l2_bytes == 50LL << 20);
  CHECK(h100.p2p);
  CHECK_FALSE(find_gpu(presets(), "4090")->gpu.p2p);
  CHECK(find_gpu(presets(), "V100")->gpu.peak_bf16_flops_per_s == 0);  // not supported
  const Result<Machine> p5 = find_machine(presets(), "p5.48xlarge");
  CHECK(p5->gpu == "h100_sxm");
  CHECK(p5->gpus_per_node == 8);
  CHECK(p5->nic_bytes_per_s == 400e9);
  CHECK(p5->host_memory_bytes == 2048 * kGiB);
}

TEST_CASE("presets: sizes of GPUs are consistent") {
  for (const std::string& id : preset_ids(presets(), "gpus")) {
    INFO(id);
    const Gpu gpu = find_gpu(presets(), id)->gpu;
    CHECK(gpu.usable_memory_bytes <= static_cast<int64_t>(static_cast<double>(gpu.memory_bytes) * 1.0738));  // GB read as GiB at most
    CHECK(gpu.usable_memory_bytes > gpu.memory_bytes * 95 / 100);
    CHECK(gpu.attention_backward_efficiency <= gpu.attention_forward_efficiency);
    if (gpu.peak_fp8_flops_per_s > 0) CHECK(gpu.peak_fp8_flops_per_s > 1.9 * gpu.peak_bf16_flops_per_s);
  }
}

TEST_CASE("presets: a unit that is missing in a GPU file is refused at its place") {
  const Result<Value> value = parse_yaml("vendor: nvidia\nmemory: 80\n", "gpus/mine.yaml");
  REQUIRE(value.ok());
  const Result<Gpu> gpu = gpu_from_value(*value, "mine");
  REQUIRE_FALSE(gpu.ok());
  bool found = false;
  for (const Diagnostic& d : gpu.diagnostics) found = found || (d.code == code::kUnitMissing && d.location.line == 2);
  CHECK(found);
}

TEST_CASE("presets: a directory adds files and replaces those of the same id") {
  const TemporaryDirectory directory;
  directory.write("models/mine.yaml", "{label: \"9B\", num_layers: 2, hidden: 32, num_heads: 4, feed_forward: 96, vocabulary: 256}");
  directory.write("models/llama3_8b.yaml", "{num_layers: 3, hidden: 32, num_heads: 4, feed_forward: 96, vocabulary: 256}");
  directory.write("models/broken.yaml", "{num_layers: 2, hiden: 32}");
  const Result<Presets> extended = load_presets({directory.path()});
  REQUIRE(extended.ok());
  CHECK(extended->files.size() == presets().files.size() + 2);
  CHECK(find_model(*extended, "mine")->hidden == 32);
  CHECK(find_model(*extended, "Llama-3-8B")->num_layers == 3);
  CHECK(find_model(*extended, "8B")->num_layers == 3);
  CHECK(find_model(*extended, "llama2_7b")->num_layers == 32);
  const Result<Geometry> broken = find_model(*extended, "broken");
  REQUIRE_FALSE(broken.ok());
  CHECK(broken.diagnostics[0].location.file == directory.path("models/broken.yaml"));
  const Result<Presets> missing = load_presets({directory.path("none")});
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.diagnostics[0].code == code::kUnreadableFile);
}

TEST_CASE("presets: a model directory, and one without config.json") {
  const TemporaryDirectory directory;
  const std::string config =
      directory.write("my_model/config.json", R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 256})");
  for (const std::string& name : {config, directory.path("my_model"), directory.path("my_model/")}) {
    INFO(name);
    const Result<Geometry> model = resolve_model(presets(), name);
    REQUIRE(model.ok());
    CHECK(model->name == "my_model");
    CHECK(model->hidden == 32);
  }
  const Result<Geometry> empty = resolve_model(presets(), directory.path());
  REQUIRE_FALSE(empty.ok());
  CHECK(empty.diagnostics[0].message == "no config.json in '" + directory.path() + "'");
  const Result<Geometry> none = resolve_model(presets(), "/nowhere/model");
  REQUIRE_FALSE(none.ok());
  CHECK(none.diagnostics[0].code == code::kUnreadableFile);
  CHECK(resolve_model(presets(), "70B").ok());
}

TEST_CASE("presets: a machine file with its own GPU") {
  const TemporaryDirectory directory;
  const std::string path = directory.write("here.yaml", R"(gpu:
  vendor: cpu
  memory: 4GB
  usable_memory: 4GiB
  context_memory: 200MiB
  memory_bandwidth: 10GB/s
  peak_fp32: 90GFLOP/s
  gemm_efficiency: 0.9
  attention_forward_efficiency: 0.3
  attention_backward_efficiency: 0.2
  num_sm: 1
  link: {kind: shared_memory, bandwidth: 1GB/s}
  pcie_bandwidth: 5GB/s
gpus_per_node: 2
fabric: shared_memory
nic: {kind: ethernet, bandwidth: 1Gb/s, efficiency: 0.5}
host_memory: 16GiB
)");
  const Result<Value> value = read_yaml_file(path);
  REQUIRE(value.ok());
  const Result<Machine> machine = machine_from_value(*value, "here");
  INFO(format_diagnostics(machine.diagnostics));
  REQUIRE(machine.ok());
  CHECK(machine->name == "here");
  CHECK(machine->gpu == "here_gpu");
  REQUIRE(machine->inline_gpu);
  CHECK(machine->inline_gpu->peak_fp32_flops_per_s == 90e9);
  CHECK(find_machine(presets(), "dgx_h100")->gpu == "h100_sxm");
}

TEST_CASE("presets: a lookup takes milliseconds") {
  const auto start = std::chrono::steady_clock::now();
  const Result<Presets> loaded = load_presets();
  CHECK(find_model(*loaded, "meta-llama/Llama-2-7b-hf").ok());
  CHECK(find_gpu(*loaded, "8xH100-80GB").ok());
  CHECK(find_machine(*loaded, "p5.48xlarge").ok());
  const double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  CHECK(elapsed_s < 0.2);  // measured: 0.001 s; the bound is loose because tests share the machine
}

}  // namespace distsetup
