#include "planner/resolve/resolve_hardware.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/names.h"
#include "base/quantity.h"
#include "model/presets.h"
#include "planner/resolve/hardware_facts.h"
#include "planner/resolve/problem.h"

namespace distsetup {
namespace {

constexpr std::string_view kAssumedGpu = "h100_sxm";
constexpr int kAssumedGpusPerNode = 8;
constexpr std::string_view kTableGpus[] = {"a100_sxm_80", "h200_sxm", "b200", "mi300x", "l40s", "rtx_4090"};

class HardwareResolver {
 public:
  HardwareResolver(const Spec& spec, const Presets& presets, const Inputs& inputs, Dtype compute)
      : spec_(spec), presets_(presets), inputs_(inputs), compute_(compute) {}

  ResolvedHardware run() {
    hardware();
    return std::move(out_);
  }

  // The GPU that is named, by itself or by its machine; nothing: it cannot be read. `count`: in the GPU's name, 8xH100.
  std::optional<Gpu> chosen_gpu(int64_t* count) {
    if (!named_machine()) return std::nullopt;
    const auto name = spec_.text("hardware.gpu");
    if (!name.has_value() && is_machine_named_ && machine_->inline_gpu.has_value()) return machine_->inline_gpu;
    return load_gpu(name.value_or(is_machine_named_ ? machine_->gpu : std::string(kAssumedGpu)), count);
  }

 private:
  void fail(const char* code, std::string_view path, std::string message, std::string help = "") {
    const Setting* setting = spec_.find(path);
    Diagnostic d = error(code, spec_.at(path), std::move(message), std::move(help));
    if (setting != nullptr) d.length = std::max<int>(1, static_cast<int>(setting->text.size()));
    out_.diagnostics.push_back(std::move(d));
  }
  void assume(std::string text) { out_.assumptions.push_back(std::move(text)); }
  void used(std::string_view folder, std::string_view id) { out_.used_texts += preset_text(presets_, folder, id); }

  std::optional<Gpu> load_gpu(std::string_view name, int64_t* count) {
    Result<GpuChoice> choice = find_gpu(presets_, name, spec_.at("hardware.gpu"));
    append(out_.diagnostics, choice.diagnostics);
    if (!choice.ok()) return std::nullopt;
    if (count != nullptr) *count = choice->count;
    used("gpus", choice->gpu.name);
    return choice->gpu;
  }

  const std::vector<Machine>& machines_with(const std::string& gpu) {
    const auto [it, fresh] = machines_.try_emplace(gpu);
    if (!fresh) return it->second;
    for (const std::string& id : preset_ids(presets_, "machines")) {
      const PresetFile* file = find_preset(presets_, "machines", id);
      if (file->is_embedded && file->text.find("gpu: " + gpu + "\n") == std::string_view::npos) continue;
      const Result<Value> value = read_preset(*file);
      if (!value.ok()) continue;
      const Result<Machine> machine = machine_from_value(*value, id);
      if (machine.ok() && machine->gpu == gpu) it->second.push_back(*machine);
    }
    return it->second;
  }

  // The machine whose network and host memory stand for a GPU when none is named: its vendor's reference system first.
  std::optional<Machine> typical_machine(const Gpu& gpu) {
    std::optional<Machine> best;
    int best_rank = 0;
    const bool has_own = gpu.sold_like.empty() || !machines_with(gpu.name).empty();
    for (const Machine& machine : machines_with(has_own ? gpu.name : gpu.sold_like)) {
      const std::string& id = machine.name;
      const int rank = id.starts_with("dgx_") ? 3 : id.starts_with("pcie_") || id.starts_with("local_") ? 2 : 1;
      if (rank <= best_rank) continue;
      best_rank = rank;
      best = machine;
    }
    if (best.has_value()) used("machines", best->name);
    return best;
  }

  // A reference system has no price: then that of the cheapest machine with this GPU that is for rent.
  HardwarePlan hardware_plan(const Gpu& gpu, const std::optional<Machine>& machine, int gpus_per_node) {
    HardwarePlan h = make_hardware_plan(gpu, machine.has_value() ? &*machine : nullptr, gpus_per_node, compute_,
                                        spec_.boolean("train.deterministic").value_or(false));
    if (h.price_usd_per_gpu_hour > 0 || spec_.find("hardware.machine") != nullptr) return h;
    for (const Machine& other : machines_with(gpu.name)) {
      const double price = other.price_usd_per_hour / static_cast<double>(std::max<int64_t>(other.gpus_per_node, 1));
      if (price <= 0 || (h.price_usd_per_gpu_hour > 0 && price >= h.price_usd_per_gpu_hour)) continue;
      h.price_usd_per_gpu_hour = price;
      h.price_source = other.label + ", " + other.price_date;
      priced_by_ = other.name;
    }
    if (!priced_by_.empty()) used("machines", priced_by_);
    return h;
  }

  // --gpus counts those of one node: more than any machine has is a number of all GPUs.
  bool has_too_many(const Gpu& gpu, int64_t per_node) {
    constexpr int64_t kMostOverPcie = 16;
    int64_t most = gpu.link.kind.starts_with("pcie") ? kMostOverPcie : 0;
    for (const Machine& machine : machines_with(gpu.name)) most = std::max<int64_t>(most, machine.gpus_per_node);
    if (most == 0 || gpu.vendor == "cpu" || per_node <= most) return false;
    const int64_t nodes = (per_node + most - 1) / most;
    fail(code::kMeshInvalid, "hardware.gpus_per_node",
         fmt::format("{} GPUs in one node: {} machines have {}", per_node, gpu.label, most),
         fmt::format("did you mean --nodes {} --gpus {}; a machine of your own: --machine FILE", nodes, most));
    return true;
  }

  // The one that is named or given as a file; false: it cannot be read.
  bool named_machine() {
    const auto name = spec_.text("hardware.machine");
    if (!name.has_value()) return true;
    const bool is_file = inputs_.machine.has_value();
    Result<Machine> found = is_file ? Result<Machine>(*inputs_.machine) : find_machine(presets_, *name, spec_.at("hardware.machine"));
    append(out_.diagnostics, found.diagnostics);
    if (!found.ok()) return false;
    machine_ = *found;
    is_machine_named_ = true;
    if (is_file)
      out_.used_texts += inputs_.machine_text;
    else
      used("machines", machine_->name);
    return true;
  }

  // The GPU, how many a node has, and how many nodes. Nothing: said why.
  std::optional<Gpu> gpu_and_counts() {
    const auto gpu_name = spec_.text("hardware.gpu");
    const auto given_per_node = spec_.integer("hardware.gpus_per_node");
    int64_t count = 0;
    const std::optional<Gpu> gpu = chosen_gpu(&count);
    if (!gpu.has_value()) return std::nullopt;
    if (!gpu_name.has_value() && !is_machine_named_) assume(fmt::format("GPU {}", gpu->label));
    if (count > 0 && given_per_node.has_value() && count != *given_per_node)
      fail(code::kConflict, "hardware.gpus_per_node",
           fmt::format("{} GPUs per node, but '{}' says {}", *given_per_node, *gpu_name, count), fmt::format("--gpus {}", count));
    if (!is_machine_named_) machine_ = typical_machine(*gpu);
    if (!is_machine_named_ && has_too_many(*gpu, given_per_node.value_or(count))) return std::nullopt;
    int64_t per_node = given_per_node.value_or(count);
    if (per_node == 0) per_node = machine_.has_value() ? machine_->gpus_per_node : kAssumedGpusPerNode;
    out_.assumed = !gpu_name.has_value() && !is_machine_named_ && !given_per_node.has_value() &&
                   !spec_.integer("hardware.nodes").has_value() && !spec_.integer("hardware.total_gpus").has_value();
    out_.gpus_per_node_given = given_per_node.has_value() || count > 0;
    const bool per_node_assumed = !out_.gpus_per_node_given && !is_machine_named_;
    if (!nodes(per_node, per_node_assumed, out_.gpus_per_node_given)) return std::nullopt;
    if (per_node_assumed && per_node_ == per_node) assume(fmt::format("{} GPUs per node", per_node_));
    return per_node_ > 0 ? gpu : std::nullopt;
  }

  // Its numbers, and those that are given in their place.
  void fill_plan(const Gpu& gpu) {
    HardwarePlan& h = out_.plan;
    h = hardware_plan(gpu, machine_, per_node_);
    if (machine_.has_value()) out_.host_memory_bytes_per_s = machine_->host_memory_bytes_per_s;
    out_.gpus[gpu.name] = gpu;
    if (const auto price = spec_.number("hardware.price"); price.has_value()) {
      h.price_usd_per_gpu_hour = *price;
      h.price_source = spec_.at("hardware.price").file.empty() ? "given" : "given, " + spec_.at("hardware.price").file;
    }
    if (const auto memory = spec_.integer("hardware.memory"); memory.has_value()) h.memory_bytes = *memory;
    if (const auto rate = spec_.number("hardware.host_memory_bandwidth"); rate.has_value()) out_.host_memory_bytes_per_s = *rate * 1e9;
    out_.nvme_bytes_per_s = spec_.number("hardware.nvme_bandwidth").value_or(0) * 1e9;
    take_given(h);
  }

  // PyTorch has bf16 on GPUs without its units too, in fp32's (torch.cuda.is_bf16_supported, including_emulation): whoever asks for it
  // gets that, under a trainer of PyTorch's operations that is named, and not one that stands in for the bundled one.
  void emulate_bf16(Gpu gpu) {
    const std::string trainer = spec_.text("trainer.name").value_or(std::string(kNative));
    const bool is_named = !spec_.at("trainer.name").file.empty();
    const bool runs_pytorch = is_named && trainer != kNative && trainer != "megatron";
    if (compute_ != Dtype::kBf16 || gpu.vendor != "nvidia" || gpu.peak_bf16_flops_per_s > 0 || !runs_pytorch) return;
    gpu.peak_bf16_flops_per_s = gpu.peak_fp32_flops_per_s;
    fill_plan(gpu);
    assume(fmt::format("bf16 on {} by emulation, at fp32's rate at best and not measured (--precision fp16 has units of its own)",
                       gpu.label));
  }

  // What is assumed of it.
  void say_network(const HardwarePlan& h) {
    const bool is_rate_given = spec_.number("hardware.network_bandwidth").has_value();
    const bool is_kind_given = spec_.text("hardware.network_kind").has_value();
    const std::string kind = h.nic_kind == "ethernet" ? "Ethernet without RDMA" : h.nic_kind;
    if (is_rate_given && !is_kind_given) assume(fmt::format("network taken for {} (--network-kind states another)", kind));
    if (is_rate_given || is_machine_named_) return;
    if (machine_.has_value())
      assume(fmt::format("network of {:.0f} Gb/s per GPU, as in {} (--network-bandwidth states another)", h.network_bytes_per_s * 8e-9,
                         machine_->label));
    else
      assume(fmt::format("network of {:.0f} Gb/s per node, {} (--network-bandwidth and --network-kind state another)",
                         h.nic_bytes_per_s * 8e-9, kind));
  }

  void say_assumptions(const Gpu& gpu) {
    const HardwarePlan& h = out_.plan;
    if (spec_.text("hardware.gpu").has_value() && is_machine_named_ && machine_->gpu != gpu.name) {
      assume(fmt::format("{} in place of the GPUs of {}", gpu.label, machine_->label));
      out_.diagnostics.push_back(
          warning(code::kConflict, spec_.at("hardware.gpu"),
                  fmt::format("{} has other GPUs than {}: network, host and cores are that machine's", machine_->label, gpu.label),
                  "leave --machine away for a machine that has them; a machine of your own: --machine FILE"));
    }
    const bool many_nodes = out_.node_counts.size() > 1 || out_.node_counts.front() > 1;
    if (many_nodes) say_network(h);
    if (const auto margin = spec_.number("hardware.margin"); margin.value_or(0) > 0)
      assume(fmt::format("{:g} % of each GPU's memory left free", 100 * *margin));
    if (h.accelerator == Accelerator::kCpu && !spec_.find("hardware.memory"))
      assume(fmt::format("{} of memory per rank (--gpu-memory states another)", format_gib(h.memory_bytes)));
  }

  void hardware() {
    const std::optional<Gpu> gpu = gpu_and_counts();
    if (!gpu.has_value()) return;
    fill_plan(*gpu);
    emulate_bf16(*gpu);
    if (out_.plan.peak_flops_per_s <= 0) {
      fail(code::kUnsupportedFeature, "hardware.gpu", fmt::format("{} does not compute in {}", gpu->label, name(compute_)),
           compute_ == Dtype::kF8           ? "--precision bf16"
           : gpu->peak_fp16_flops_per_s > 0 ? "--precision fp16, or fp32"
                                            : "--precision fp32");
      return;
    }
    say_assumptions(*gpu);
    other_hardware();
  }

  // What holds whatever the GPU is.
  void take_given(HardwarePlan& h) const {
    if (const auto memory = spec_.integer("hardware.host_memory"); memory.has_value()) h.host_memory_bytes = *memory;
    const GivenNetwork network = {spec_.number("hardware.network_bandwidth").value_or(0),
                                  spec_.text("hardware.network_kind").value_or("")};
    if (network.gbit_per_s > 0 || !network.kind.empty()) set_network(h, machine_.has_value() ? &*machine_ : nullptr, network);
    h.memory_bytes = static_cast<int64_t>(static_cast<double>(h.memory_bytes) * (1 - spec_.number("hardware.margin").value_or(0)));
  }

  // Another GPU than the plan's in machines of its own; nothing: it is the plan's, or cannot compute so.
  std::optional<HardwarePlan> hardware_of(std::string_view name) {
    const std::optional<Gpu> g = load_gpu(name, nullptr);
    if (!g.has_value() || g->name == out_.plan.gpu) return std::nullopt;
    const std::optional<Machine> m = typical_machine(*g);
    HardwarePlan o = hardware_plan(*g, m, m.has_value() ? static_cast<int>(m->gpus_per_node) : kAssumedGpusPerNode);
    if (o.peak_flops_per_s <= 0) return std::nullopt;
    take_given(o);
    out_.gpus[g->name] = *g;
    return o;
  }

  // Where another was given, the one that is assumed otherwise is compared as well. No plan depends on it: it is not in the digest.
  void compare_assumed_gpu() {
    const std::string used_before = out_.used_texts;
    if (std::optional<HardwarePlan> o = hardware_of(kAssumedGpu); o.has_value()) out_.compared.push_back(std::move(*o));
    out_.used_texts = used_before;
  }

  // GPUs to compare with when none was given, and those with more memory, which a fix may name: the usual ones first.
  void other_hardware() {
    const HardwarePlan& h = out_.plan;
    compare_assumed_gpu();
    for (const std::string_view other : kTableGpus) {
      std::optional<HardwarePlan> found = hardware_of(other);
      if (!found.has_value()) continue;
      HardwarePlan& o = *found;
      if (o.memory_bytes > h.memory_bytes && h.accelerator == Accelerator::kCuda) out_.larger.push_back(o);
      if (out_.assumed) out_.other.push_back(o);
      out_.compared.push_back(std::move(o));
    }
    const auto by_memory = [](const HardwarePlan& a, const HardwarePlan& b) { return a.memory_bytes < b.memory_bytes; };
    std::stable_sort(out_.larger.begin(), out_.larger.end(), by_memory);
    const auto usual = static_cast<std::ptrdiff_t>(out_.larger.size());
    if (h.accelerator == Accelerator::kCuda) largest_gpus();
    std::stable_sort(out_.larger.begin() + usual, out_.larger.end(), by_memory);
    const auto has_vendor = [&](const HardwarePlan& o) { return out_.gpus.at(o.gpu).vendor == out_.gpus.at(h.gpu).vendor; };
    std::stable_partition(out_.larger.begin() + usual, out_.larger.end(), has_vendor);
    if (spec_.find("hardware.memory") != nullptr) out_.larger.clear();  // the number would hold for them as well
  }

  // Does an embedded preset of a GPU say in its line that it has no more memory than this? The rest of it need not be read then.
  bool says_no_more(const std::string& id, int64_t bytes) const {
    constexpr std::string_view kKey = "\nusable_memory: ";
    const PresetFile* file = find_preset(presets_, "gpus", id);
    const size_t at = file->is_embedded ? file->text.find(kKey) : std::string_view::npos;
    if (at == std::string_view::npos) return false;
    const std::string_view rest = file->text.substr(at + kKey.size());
    const Result<int64_t> memory = parse_bytes(rest.substr(0, rest.find('\n')));
    return memory.ok() && *memory <= bytes;
  }

  // All others with more memory than any usual one, and machines of at least as many. No plan that fits depends on them: they are not
  // in the digest.
  void largest_gpus() {
    const std::string used_before = out_.used_texts;
    int64_t most = out_.plan.memory_bytes;
    for (const HardwarePlan& o : out_.larger) most = std::max(most, o.memory_bytes);
    for (const std::string& id : preset_ids(presets_, "gpus")) {
      const auto is_usual = std::find(std::begin(kTableGpus), std::end(kTableGpus), id) != std::end(kTableGpus);
      if (is_usual || id == out_.plan.gpu || says_no_more(id, most)) continue;
      const std::optional<Gpu> g = load_gpu(id, nullptr);
      if (!g.has_value() || g->usable_memory_bytes <= most) continue;
      const std::optional<Machine> m = typical_machine(*g);
      if (!m.has_value() || m->gpus_per_node < per_node_) continue;
      HardwarePlan o = hardware_plan(*g, m, static_cast<int>(m->gpus_per_node));
      if (o.peak_flops_per_s <= 0) continue;
      take_given(o);
      out_.gpus[g->name] = *g;
      out_.larger.push_back(std::move(o));
    }
    out_.used_texts = used_before;
  }

  // Node counts to try, and GPUs per node (a total below an assumed node is one smaller node).
  bool nodes(int64_t per_node, bool per_node_assumed, bool per_node_given) {
    const auto given = spec_.integer("hardware.nodes");
    const auto total = spec_.integer("hardware.total_gpus");
    per_node_ = static_cast<int>(per_node);
    out_.nodes_given = total.has_value() || given.has_value();
    if (total.has_value()) {
      if (per_node_assumed && *total < per_node) per_node_ = static_cast<int>(*total);
      if (*total % per_node_ != 0) {
        fail(code::kMeshInvalid, "hardware.total_gpus", fmt::format("{} GPUs are not whole nodes of {}", *total, per_node_),
             fmt::format("--total-gpus {}", (*total / per_node_ + 1) * per_node_));
        return false;
      }
      if (given.has_value() && *given * per_node_ != *total) {
        fail(code::kMeshInvalid, "hardware.total_gpus",
             fmt::format("{} nodes × {} GPUs = {}, not {}", *given, per_node_, *given * per_node_, *total),
             fmt::format("--total-gpus {}", *given * per_node_));
        return false;
      }
      out_.node_counts = {static_cast<int>(*total / per_node_)};
      return true;
    }
    if (given.has_value()) {
      out_.node_counts = {static_cast<int>(*given)};
      return true;
    }
    const Setting* setting = spec_.find("hardware.nodes");
    const bool asked = setting != nullptr && setting->is_auto();
    const bool one_node = per_node_given || same_name(spec_.text("hardware.gpu").value_or(""), "cpu");
    if (one_node && !asked) {
      assume("1 node");
      out_.node_counts = {1};
      return true;
    }
    out_.node_counts = node_counts_from(1);
    if (!asked) assume("the fewest nodes that fit");
    return true;
  }

  const Spec& spec_;
  const Presets& presets_;
  const Inputs& inputs_;
  const Dtype compute_;
  std::map<std::string, std::vector<Machine>> machines_;  // by GPU
  std::string priced_by_;
  std::optional<Machine> machine_;  // named, or the one that stands for the GPU
  bool is_machine_named_ = false;
  ResolvedHardware out_;
  int per_node_ = 0;
};

}  // namespace

std::string preset_text(const Presets& presets, std::string_view folder, std::string_view id) {
  const PresetFile* file = find_preset(presets, folder, id);
  if (file == nullptr) return "";
  std::string text(file->text);
  if (!file->is_embedded) {
    const Result<std::string> read = read_file(file->path);
    if (read.ok()) text = *read;
  }
  return fmt::format("{}/{}\n{}\n", folder, id, text);
}

ResolvedHardware resolve_hardware(const Spec& spec, const Presets& presets, const Inputs& inputs, Dtype compute) {
  return HardwareResolver(spec, presets, inputs, compute).run();
}

AssumedCompute assumed_compute(const Spec& spec, const Presets& presets, const Inputs& inputs, bool has_fp16) {
  if (spec.find("hardware.gpu") == nullptr && spec.find("hardware.machine") == nullptr) return {};
  // What is wrong with the names is said by resolve_hardware.
  const std::optional<Gpu> gpu = HardwareResolver(spec, presets, inputs, Dtype::kBf16).chosen_gpu(nullptr);
  if (!gpu.has_value() || gpu->vendor == "cpu" || gpu->peak_bf16_flops_per_s > 0) return {};
  const bool in_fp16 = has_fp16 && gpu->peak_fp16_flops_per_s > 0;
  return {in_fp16 ? Dtype::kF16 : Dtype::kF32, fmt::format("{} does not compute in bf16", gpu->label)};
}

}  // namespace distsetup
