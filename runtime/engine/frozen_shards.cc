#include "runtime/engine/frozen_shards.h"

#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "runtime/kernels/cpu/kernels.h"

namespace distsetup {

StoreFrozen frozen_store_of(const RankMemory& memory, Device& device, const Layout& layout, Dtype compute) {
  const auto to = [&memory](std::string_view buffer, int64_t offset_bytes) {
    return static_cast<char*>(memory.run(std::string(buffer))) + offset_bytes;
  };
  const auto copy = [&memory, &device](std::string_view buffer, void* to, const void* from, int64_t num_bytes) {
    if (memory.is_on_host(std::string(buffer))) return void(std::memcpy(to, from, size_t(num_bytes)));
    device.copy_to_device(to, from, num_bytes);
  };
  const auto store_values = [&layout, compute, to, copy](int64_t offset, std::span<const float> values) {
    const int64_t count = int64_t(values.size());
    CHECK(offset >= 0 && offset + count <= layout.frozen_numel, "{} + {}", offset, count);
    const auto store_rounded = [&]<class E>(E*) {
      std::vector<E> rounded(values.size());
      cpu::cast(values.data(), rounded.data(), count);
      copy(kFrozenBuffer, to(kFrozenBuffer, offset * 2), rounded.data(), count * 2);
    };
    if (compute == Dtype::kBf16) return store_rounded(static_cast<Bf16*>(nullptr));
    if (compute == Dtype::kF16) return store_rounded(static_cast<F16*>(nullptr));
    copy(kFrozenBuffer, to(kFrozenBuffer, offset * 4), values.data(), count * 4);
  };
  const auto store_bytes = [&layout, to, copy](int64_t offset, std::span<const uint8_t> bytes) {
    CHECK(offset >= 0 && offset + int64_t(bytes.size()) <= layout.quantized_bytes, "{} + {}", offset, bytes.size());
    copy(kQuantizedBuffer, to(kQuantizedBuffer, offset), bytes.data(), int64_t(bytes.size()));
  };
  return {store_values, store_bytes};
}

}  // namespace distsetup
