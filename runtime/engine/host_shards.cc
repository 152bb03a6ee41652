#include "runtime/engine/host_shards.h"

#include <algorithm>
#include <cstring>

#include "base/huge_pages.h"
#include "runtime/optim/block_codes.h"

namespace distsetup {
namespace {

struct HostCodes {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  explicit HostCodes(int64_t numel) : codes(static_cast<size_t>(numel)), scales((codes.size() + kScaleBlock - 1) / kScaleBlock) {}
  int64_t scale_bytes() const { return static_cast<int64_t>(scales.size() * sizeof(float)); }
};

}  // namespace

HostShards::HostShards(const RankMemory& memory, Device& device, const StateSizes& sizes, const TrainPlan& train)
    : memory_(memory), device_(device), sizes_(sizes), numel_(sizes.elements), states_(distsetup::optimizer_states(train)) {}

std::span<float> HostShards::of(const std::string& name, int64_t numel) {
  if (device_.host_memory() || memory_.is_on_host(name)) return {static_cast<float*>(memory_.run(name)), static_cast<size_t>(numel)};
  Mirror& mirror = mirror_of(name, numel);
  if (!mirror.valid) device_.copy_to_host(mirror.values.get(), memory_.run(name), numel * 4);
  mirror.valid = true;
  return mirror.span();
}

std::span<float> HostShards::unread(const std::string& name) {
  if (device_.host_memory() || memory_.is_on_host(name)) return of(name);
  Mirror& mirror = mirror_of(name, numel_);
  mirror.valid = true;
  return mirror.span();
}

// Not filled: the first touch of a page takes time, and whoever writes the values has several threads.
HostShards::Mirror& HostShards::mirror_of(const std::string& name, int64_t numel) {
  Mirror& mirror = mirrors_[name];
  if (mirror.numel == numel) return mirror;
  mirror = {std::make_unique_for_overwrite<float[]>(static_cast<size_t>(numel)), numel, false};
  ask_for_huge_pages(mirror.values.get(), numel * 4);
  return mirror;
}

void HostShards::download(void* to, const std::string& name, int64_t num_bytes) {
  if (memory_.is_on_host(name))
    std::memcpy(to, memory_.run(name), static_cast<size_t>(num_bytes));
  else
    device_.copy_to_host(to, memory_.run(name), num_bytes);
}

void HostShards::upload(const std::string& name, const void* from, int64_t num_bytes) {
  if (memory_.is_on_host(name))
    std::memcpy(memory_.run(name), from, static_cast<size_t>(num_bytes));
  else
    device_.copy_to_device(memory_.run(name), from, num_bytes);
}

std::span<float> HostShards::of_state(const OptimizerState& state) {
  const std::string name(state.name);
  if (state.dtype == Dtype::kF32) return of(name, sizes_.of(state.scope));
  Mirror& mirror = mirror_of(name, numel_);
  if (!mirror.valid) {
    HostCodes host(numel_);
    download(host.codes.data(), name, numel_);
    download(host.scales.data(), scale_buffer(state), host.scale_bytes());
    dequantize_blocks(host.codes.data(), host.scales.data(), numel_, state.is_signed, mirror.values.get());
    mirror.valid = true;
  }
  return mirror.span();
}

std::vector<StateValues> HostShards::optimizer_states() {
  std::vector<StateValues> out;
  for (const OptimizerState& state : states_) out.push_back({state.name, of_state(state), state.scope});
  return out;
}

void HostShards::clear_states() {
  for (const OptimizerState& state : states_) {
    const std::string name(state.name);
    const bool is_codes = state.dtype != Dtype::kF32;
    if (is_codes || device_.host_memory() || memory_.is_on_host(name)) {
      const std::span<float> values = of_state(state);
      std::fill(values.begin(), values.end(), 0.0f);
    } else {
      device_.fill(memory_.run(name), 0, sizes_.of(state.scope) * 4);
      mirrors_.erase(name);
    }
  }
}

std::span<float> HostShards::checkpoint_copy(bool is_async) {
  if (!is_async) return {};
  const std::string name(kCheckpointCopy);
  if (memory_.has_run(name))
    return {static_cast<float*>(memory_.run(name)), static_cast<size_t>(memory_.run_num_bytes(name)) / sizeof(float)};
  int64_t numel = numel_;
  for (const OptimizerState& state : states_) numel += sizes_.of(state.scope);
  checkpoint_copy_.resize(static_cast<size_t>(numel));
  return checkpoint_copy_;
}

void HostShards::upload_codes(const OptimizerState& state, const Mirror& mirror) {
  HostCodes host(numel_);
  requantize_blocks(mirror.values.get(), numel_, state.is_signed, host.codes.data(), host.scales.data());
  upload(std::string(state.name), host.codes.data(), numel_);
  upload(scale_buffer(state), host.scales.data(), host.scale_bytes());
}

void HostShards::upload() {
  for (const auto& [name, mirror] : mirrors_) {
    if (!mirror.valid) continue;
    const OptimizerState* in_8_bits = nullptr;
    for (const OptimizerState& state : states_)
      if (state.name == name && state.dtype != Dtype::kF32) in_8_bits = &state;
    if (in_8_bits != nullptr)
      upload_codes(*in_8_bits, mirror);
    else
      upload(name, mirror.values.get(), mirror.numel * 4);
  }
}

void HostShards::forget() {
  for (auto& [name, mirror] : mirrors_) {
    mirror.valid = false;
    if (device_.host_memory()) mirror = {};  // they would take from what the plan calls free
  }
}

}  // namespace distsetup
