// See probe.h. With GPUs the machine names their preset (their rates are published, and measuring them takes a GPU library); without,
// each core is a rank and its rates are measured here. What could not be measured says in `source` where it comes from.
#include "cli/launch/probe.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <optional>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/quantity.h"
#include "cli/launch/measure.h"
#include "cli/launch/trainer_program.h"
#include "cli/line/terminal.h"
#include "model/presets.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

struct Facts {
  int cores = 0;
  std::string cpu;
  int64_t memory_bytes = 0;
  double triad_bytes_per_s = 0, triad_one_core_bytes_per_s = 0;
  Loopback loopback;
  double f32_flops_per_s = 0, bf16_flops_per_s = 0;  // of one core; bf16 0 = not measured
  bool gemm_by_library = false;
  double nic_bytes_per_s = 0;  // 0 = no interface says
  std::vector<FoundGpu> gpus;
};

// Empty: it is not there.
std::string trainer_of(const ProbeOptions& options) {
  const std::string path = trainer_program(options.trainer_path);
  return !options.trainer_path.empty() || is_program(path) ? path : "";
}

Result<Facts> measure(const ProbeOptions& options) {
  Facts facts;
  const double part_s = std::max(0.2, options.budget_s / 5);
  facts.cores = num_usable_cores();
  facts.cpu = cpu_model();
  facts.memory_bytes = host_memory_bytes();
  if (facts.memory_bytes <= 0)
    return error(code::kEnvironment, {}, "'/proc/meminfo' does not say how much memory there is", "probe needs a Linux host");
  facts.nic_bytes_per_s = fastest_nic_bytes_per_s();
  facts.gpus = find_gpus();
  std::fputs("measuring memory, loopback and matrix products\n", stderr);
  facts.triad_one_core_bytes_per_s = triad_bytes_per_s(1, part_s / 2);
  facts.triad_bytes_per_s = triad_bytes_per_s(facts.cores, part_s / 2);
  const Result<Loopback> loopback = measure_loopback(part_s);
  if (!loopback.ok()) return loopback.diagnostics;
  facts.loopback = *loopback;
  const std::string trainer = trainer_of(options);
  if (trainer.empty()) {
    facts.f32_flops_per_s = own_gemm_flops_per_s(part_s);
    return facts;
  }
  const Result<LibraryGemm> gemm = library_gemm(trainer, 2 * part_s);
  if (!gemm.ok()) return gemm.diagnostics;
  facts.f32_flops_per_s = gemm->f32_flops_per_s;
  facts.bf16_flops_per_s = gemm->bf16_flops_per_s;
  facts.gemm_by_library = true;
  return facts;
}

// The preset of a GPU as nvidia-smi names it ("NVIDIA H100 80GB HBM3"): any run of its words that is a name, with this memory.
std::optional<std::string> preset_of(const FoundGpu& found) {
  const Result<Presets> presets = load_presets();
  if (!presets.ok()) return std::nullopt;
  std::vector<std::string> words = {""};
  for (char c : found.name) {
    if (c == ' ' || c == '-')
      words.emplace_back();
    else
      words.back() += c;
  }
  for (size_t length = words.size(); length > 0; --length) {
    for (size_t first = 0; first + length <= words.size(); ++first) {
      const std::string name = fmt::format(
          "{}", fmt::join(words.begin() + static_cast<long>(first), words.begin() + static_cast<long>(first + length), " "));
      const Result<GpuChoice> choice = find_gpu(*presets, name);
      if (!choice.ok()) continue;
      const double ratio = static_cast<double>(found.memory_bytes) / static_cast<double>(choice->gpu.usable_memory_bytes);
      if (std::abs(ratio - 1) < 0.06) return choice->gpu.name;
    }
  }
  return std::nullopt;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  char text[16] = {};
  ::gmtime_r(&now, &utc);
  return std::strftime(text, sizeof(text), "%Y-%m-%d", &utc) > 0 ? text : "";
}

// Three digits, never an exponent.
std::string rate(double per_s, const char* unit) {
  const double giga = std::max(per_s / 1e9, 0.001);
  return giga < 100 ? fmt::format("{:.3g}{}", giga, unit) : fmt::format("{:.0f}{}", giga, unit);
}

std::string mib(int64_t bytes) { return fmt::format("{}MiB", bytes / kMiB); }

std::string machine_tail(const Facts& facts, const std::string& source) {
  const bool known = facts.nic_bytes_per_s > 0;
  return fmt::format(
      "nic: {{kind: ethernet, bandwidth: {:g}Gb/s, efficiency: {}}}{}\nhost_memory: {}\nhost_memory_bandwidth: {}\nsource: "
      "\"{}\"\ndate: \"{}\"\n",
      known ? facts.nic_bytes_per_s * 8 / 1e9 : 1.0, known ? 0.8 : 0.5, known ? "" : "  # assumed: no interface says its speed",
      mib(facts.memory_bytes), rate(facts.triad_bytes_per_s, "GB/s"), source, today());
}

std::string quoted(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 32; }, ' ');
  return text;
}

std::string cpu_machine(const Facts& facts) {
  const int64_t share_bytes = facts.memory_bytes / facts.cores;
  const double bf16 = facts.bf16_flops_per_s;
  std::string text = fmt::format(
      "# Written by `distsetup probe`: one rank per core. Use it as `hardware: {{machine: THIS FILE}}`.\n"
      "label: \"{}, {} {}\"\ngpu:\n  label: \"CPU core\"\n  vendor: cpu\n",
      quoted(facts.cpu.empty() ? "CPU" : facts.cpu), facts.cores, facts.cores == 1 ? "core" : "cores");
  text += fmt::format("  memory: {}\n  usable_memory: {}\n  context_memory: {}\n  memory_bandwidth: {}\n", mib(share_bytes),
                      mib(share_bytes * 9 / 10), mib(std::min<int64_t>(200 * kMiB, share_bytes / 10)),
                      rate(std::min(facts.triad_one_core_bytes_per_s, facts.triad_bytes_per_s / facts.cores), "GB/s"));
  if (bf16 > 0) text += fmt::format("  peak_bf16: {}\n", rate(bf16, "GFLOP/s"));
  text += fmt::format(
      "  peak_fp32: {}\n  gemm_efficiency: 1.0\n  attention_forward_efficiency: 0.3\n  attention_backward_efficiency: 0.2\n  num_sm: "
      "1\n",
      rate(facts.f32_flops_per_s, "GFLOP/s"));
  text +=
      fmt::format("  link: {{kind: shared_memory, bandwidth: {}}}\n  pcie_bandwidth: {}\ngpus_per_node: {}\nfabric: shared_memory\n",
                  rate(facts.loopback.bytes_per_s, "GB/s"), rate(facts.triad_one_core_bytes_per_s / 2, "GB/s"), facts.cores);
  const std::string gemm =
      facts.gemm_by_library ? "matrix products by libtorch, one thread" : "fp32 matrix products by a loop of our own, a lower bound";
  return text + machine_tail(facts, "measured: STREAM triad, TCP loopback between two processes, " + gemm +
                                        "; attention efficiencies are those of the preset cpu");
}

std::string gpu_machine(const Facts& facts, const std::string& preset) {
  return fmt::format(
             "# Written by `distsetup probe`. Use it as `hardware: {{machine: THIS FILE}}`.\nlabel: \"{} × {}\"\ngpu: "
             "{}\ngpus_per_node: {}\nfabric: pcie  # nvidia-smi topo -m tells: NV# means nvswitch or nvlink_mesh\n",
             facts.gpus.size(), quoted(facts.gpus[0].name), preset, facts.gpus.size()) +
         machine_tail(facts, "GPUs by nvidia-smi, their rates by the preset; host memory measured: STREAM triad");
}

Json facts_json(const Facts& facts) {
  Json gpus = Json::array();
  for (const FoundGpu& gpu : facts.gpus) gpus.push_back({{"name", gpu.name}, {"memory_bytes", gpu.memory_bytes}});
  return {{"schema_version", 1},
          {"cores", facts.cores},
          {"cpu", facts.cpu},
          {"memory_bytes", facts.memory_bytes},
          {"triad_bytes_per_s", facts.triad_bytes_per_s},
          {"triad_one_core_bytes_per_s", facts.triad_one_core_bytes_per_s},
          {"loopback_bytes_per_s", facts.loopback.bytes_per_s},
          {"loopback_round_trip_s", facts.loopback.round_trip_s},
          {"gemm_f32_flops_per_s", facts.f32_flops_per_s},
          {"gemm_bf16_flops_per_s", facts.bf16_flops_per_s},
          {"gemm_by_library", facts.gemm_by_library},
          {"nic_bytes_per_s", facts.nic_bytes_per_s},
          {"gpus", std::move(gpus)}};
}

}  // namespace

int run_probe(const ProbeOptions& options) {
  const Result<Facts> facts = measure(options);
  if (!facts.ok()) return report(facts.diagnostics), 5;
  std::string text;
  if (facts->gpus.empty()) {
    text = cpu_machine(*facts);
  } else if (const std::optional<std::string> preset = preset_of(facts->gpus[0])) {
    text = gpu_machine(*facts, *preset);
  } else {
    report({error(code::kUnknownGpu, {},
                  fmt::format("'{}' with {} is none of the known GPUs", facts->gpus[0].name, format_gib(facts->gpus[0].memory_bytes)),
                  "write presets/gpus/NAME.yaml for it (see presets/README.md) and pass --presets DIR to plan")});
    return 5;
  }
  if (options.json) text = dump_json(facts_json(*facts));
  if (options.output_path.empty()) return std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0 ? 1 : 0;
  const Result<Written> written = write_file_atomic(options.output_path, text, options.force ? Overwrite::kForce : Overwrite::kRefuse);
  if (!written.ok()) return report(written.diagnostics), 1;
  return 0;
}

}  // namespace distsetup
