// A GPU and a machine as numbers. Values come from presets/gpus and presets/machines (keys and units: presets/README.md), or from
// what `distsetup probe` measured.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "base/value.h"

namespace distsetup {

struct Link {
  std::string kind;        // nvlink4, xgmi, pcie5, shared_memory
  double bytes_per_s = 0;  // per GPU and direction
  bool operator==(const Link&) const = default;
};

struct Gpu {
  std::string name;                  // preset id: "h100_sxm"
  std::string label;                 // "H100 SXM 80 GB"
  std::vector<std::string> aliases;  // "H100", "H100-80GB"
  std::string vendor;                // nvidia, amd, cpu
  int64_t memory_bytes = 0;          // as marketed
  int64_t usable_memory_bytes = 0;   // as the driver reports to torch: the capacity that plans are measured against
  int64_t context_bytes = 0;         // of the driver's context, before the first tensor
  std::string sold_like;             // the GPU whose machines are those of this one too, where no machine is listed for it; or empty
  double memory_bytes_per_s = 0;
  // Dense peaks with fp32 accumulation; 0 = the type is not supported.
  double peak_bf16_flops_per_s = 0;
  double peak_fp16_flops_per_s = 0;
  double peak_tf32_flops_per_s = 0;
  double peak_fp32_flops_per_s = 0;
  double peak_fp8_flops_per_s = 0;
  // Sustained share of the peak: of large GEMMs, of attention (causal FLOPs counted half).
  double gemm_efficiency = 0;
  double attention_forward_efficiency = 0;
  double attention_backward_efficiency = 0;
  int64_t num_sm = 0;           // streaming multiprocessors or compute units
  int64_t l2_bytes = 0;         // the last cache before the memory; 0 = not known
  Link link;                    // to the other GPUs of the node
  bool p2p = true;              // GPUs reach each other's memory without the host
  double pcie_bytes_per_s = 0;  // to the host, per direction
  std::string source;           // text with date
  bool operator==(const Gpu&) const = default;
};

struct Machine {
  std::string name;  // preset id: "aws_p5_48xlarge"
  std::string label;
  std::vector<std::string> aliases;
  std::string gpu;                // preset id; of an inline GPU its name
  std::optional<Gpu> inline_gpu;  // `gpu:` as a map instead of a name: what `distsetup probe` measured
  int64_t gpus_per_node = 0;
  std::string fabric;          // inside the node: nvswitch, nvlink_mesh, xgmi, pcie, shared_memory
  std::string nic_kind;        // between nodes: infiniband, roce, efa, tcpx, tcpxo, ethernet
  double nic_bytes_per_s = 0;  // of the whole node, one direction
  double nic_efficiency = 0;   // share of it that large collectives reach
  int64_t host_memory_bytes = 0;
  double host_memory_bytes_per_s = 0;  // 0 = not known
  double price_usd_per_hour = 0;       // of the node, on demand; 0 = not known
  std::string price_date;
  std::string source;
  bool operator==(const Machine&) const = default;
};

Result<Gpu> gpu_from_value(const Value& value, const std::string& name);
Result<Machine> machine_from_value(const Value& value, const std::string& name);

}  // namespace distsetup
