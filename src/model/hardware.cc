// Reads the YAML of a GPU or a machine: strict keys, units required, every number inside a range that makes sense.
#include "model/hardware.h"

#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "base/map_reader.h"
#include "base/quantity.h"

namespace distsetup {
namespace {

constexpr double kMostGemmEfficiency = 1.25;

enum class Need { kRequired, kOptional };

// One map with quantities. Diagnostics point at the value.
struct QuantityReader {
  const Value& map;
  MapReader& reader;
  Diagnostics& diagnostics;

  // Reads `key` as text, parses it with `parse`, requires a positive number.
  template <class T, class Parse>
  void quantity(const char* key, T& out, Need need, Parse parse) {
    if (need == Need::kRequired) reader.require(key);
    std::string text;
    if (!reader.get(key, text)) return;
    const Value* value = map.find(key);
    const Location at = value ? value->location : map.location;
    Result<T> parsed = parse(text, at);
    append(diagnostics, std::move(parsed.diagnostics));
    if (!parsed.value) return;
    out = *parsed.value;
    if (!(out > 0)) diagnostics.push_back(error(code::kOutOfRange, at, fmt::format("{} is '{}', expected more than 0", key, text)));
  }
  void bytes(const char* key, int64_t& out, Need need = Need::kRequired) {
    quantity(key, out, need, [](const std::string& text, const Location& at) { return parse_bytes(text, at); });
  }
  void bytes_per_s(const char* key, double& out, Need need = Need::kRequired) {
    quantity(key, out, need, [](const std::string& text, const Location& at) { return parse_bytes_per_s(text, at); });
  }
  void flops_per_s(const char* key, double& out) {
    quantity(key, out, Need::kOptional, [](const std::string& text, const Location& at) { return parse_flops_per_s(text, at); });
  }
  void efficiency(const char* key, double& out, double most = 1) {
    reader.require(key);
    if (!reader.get(key, out) || (out > 0 && out <= most)) return;
    const Value* value = map.find(key);
    diagnostics.push_back(error(code::kOutOfRange, value ? value->location : map.location,
                                fmt::format("{} is {}, expected more than 0 and at most {}", key, out, most)));
  }
  void count(const char* key, int64_t& out) {
    reader.require(key);
    if (!reader.get(key, out) || (out >= 1 && out <= 1'000'000)) return;
    const Value* value = map.find(key);
    diagnostics.push_back(
        error(code::kOutOfRange, value ? value->location : map.location, fmt::format("{} is {}, expected 1 to 1,000,000", key, out)));
  }
};

// `source` and `date` end as one text.
void read_source(MapReader& reader, std::string& source) {
  std::string date;
  reader.get("source", source);
  if (reader.get("date", date)) source += (source.empty() ? "" : ", ") + date;
}

Diagnostic not_a_map(const Value& value, const char* kind, const std::string& name) {
  return error(code::kWrongType, value.location, fmt::format("{} '{}' is not a map of keys", kind, name));
}

}  // namespace

Result<Gpu> gpu_from_value(const Value& value, const std::string& name) {
  if (value.kind != Value::Kind::kMap) return not_a_map(value, "GPU", name);
  Diagnostics diagnostics;
  Gpu gpu;
  gpu.name = name;
  MapReader reader(value, fmt::format("GPU '{}'", name), diagnostics);
  QuantityReader in{value, reader, diagnostics};
  reader.get("label", gpu.label);
  if (gpu.label.empty()) gpu.label = name;
  reader.get("aliases", gpu.aliases);
  reader.require("vendor");
  reader.get("vendor", gpu.vendor);
  reader.get("sold_like", gpu.sold_like);
  in.bytes("memory", gpu.memory_bytes);
  in.bytes("usable_memory", gpu.usable_memory_bytes);
  in.bytes("context_memory", gpu.context_bytes);
  in.bytes_per_s("memory_bandwidth", gpu.memory_bytes_per_s);
  in.flops_per_s("peak_bf16", gpu.peak_bf16_flops_per_s);
  in.flops_per_s("peak_fp16", gpu.peak_fp16_flops_per_s);
  in.flops_per_s("peak_tf32", gpu.peak_tf32_flops_per_s);
  reader.require("peak_fp32");
  in.flops_per_s("peak_fp32", gpu.peak_fp32_flops_per_s);
  in.flops_per_s("peak_fp8", gpu.peak_fp8_flops_per_s);
  in.efficiency("gemm_efficiency", gpu.gemm_efficiency, kMostGemmEfficiency);
  in.efficiency("attention_forward_efficiency", gpu.attention_forward_efficiency);
  in.efficiency("attention_backward_efficiency", gpu.attention_backward_efficiency);
  in.count("num_sm", gpu.num_sm);
  if (value.find("l2_cache") != nullptr) in.bytes("l2_cache", gpu.l2_bytes);
  reader.require("link");
  if (const Value* link = reader.child("link"); link != nullptr && link->kind == Value::Kind::kMap) {
    MapReader link_reader(*link, "link", diagnostics);
    link_reader.require("kind");
    link_reader.get("kind", gpu.link.kind);
    QuantityReader{*link, link_reader, diagnostics}.bytes_per_s("bandwidth", gpu.link.bytes_per_s);
    link_reader.finish();
  } else if (link != nullptr) {
    diagnostics.push_back(error(code::kWrongType, link->location, "link is not a map, expected {kind: ..., bandwidth: ...}"));
  }
  reader.get("p2p", gpu.p2p);
  in.bytes_per_s("pcie_bandwidth", gpu.pcie_bytes_per_s);
  read_source(reader, gpu.source);
  reader.finish();
  if (!has_error(diagnostics) && gpu.context_bytes >= gpu.usable_memory_bytes) {
    diagnostics.push_back(error(code::kOutOfRange, value.location,
                                fmt::format("context_memory {} is not below usable_memory {}", format_bytes(gpu.context_bytes),
                                            format_bytes(gpu.usable_memory_bytes))));
  }
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(gpu), std::move(diagnostics)};
}

Result<Machine> machine_from_value(const Value& value, const std::string& name) {
  if (value.kind != Value::Kind::kMap) return not_a_map(value, "machine", name);
  Diagnostics diagnostics;
  Machine machine;
  machine.name = name;
  MapReader reader(value, fmt::format("machine '{}'", name), diagnostics);
  QuantityReader in{value, reader, diagnostics};
  reader.get("label", machine.label);
  if (machine.label.empty()) machine.label = name;
  reader.get("aliases", machine.aliases);
  reader.require("gpu");
  if (const Value* gpu = reader.child("gpu"); gpu != nullptr && gpu->kind == Value::Kind::kMap) {
    machine.gpu = name + "_gpu";
    Result<Gpu> inline_gpu = gpu_from_value(*gpu, machine.gpu);
    append(diagnostics, std::move(inline_gpu.diagnostics));
    machine.inline_gpu = std::move(inline_gpu.value);
  } else {
    reader.get("gpu", machine.gpu);
  }
  in.count("gpus_per_node", machine.gpus_per_node);
  reader.require("fabric");
  reader.get("fabric", machine.fabric);
  reader.require("nic");
  if (const Value* nic = reader.child("nic"); nic != nullptr && nic->kind == Value::Kind::kMap) {
    MapReader nic_reader(*nic, "nic", diagnostics);
    QuantityReader nic_in{*nic, nic_reader, diagnostics};
    nic_reader.require("kind");
    nic_reader.get("kind", machine.nic_kind);
    nic_in.bytes_per_s("bandwidth", machine.nic_bytes_per_s);
    nic_in.efficiency("efficiency", machine.nic_efficiency);
    nic_reader.finish();
  } else if (nic != nullptr) {
    diagnostics.push_back(
        error(code::kWrongType, nic->location, "nic is not a map, expected {kind: ..., bandwidth: ..., efficiency: ...}"));
  }
  in.bytes("host_memory", machine.host_memory_bytes);
  in.bytes_per_s("host_memory_bandwidth", machine.host_memory_bytes_per_s, Need::kOptional);
  if (reader.get("price_usd_per_hour", machine.price_usd_per_hour) && !(machine.price_usd_per_hour > 0)) {
    diagnostics.push_back(error(code::kOutOfRange, value.location,
                                fmt::format("price_usd_per_hour is {}, expected more than 0", machine.price_usd_per_hour)));
  }
  reader.get("price_date", machine.price_date);
  read_source(reader, machine.source);
  reader.finish();
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(machine), std::move(diagnostics)};
}

}  // namespace distsetup
