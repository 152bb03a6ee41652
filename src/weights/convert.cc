// Half precision is done with integers: not every processor has instructions for it, and disks are slower than either way.
#include "weights/convert.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>

namespace distsetup {
namespace {

struct TypeName {
  StoredType type;
  std::string_view dtype;
  int64_t bytes;
};
constexpr TypeName kTypeNames[] = {{StoredType::kF32, "F32", 4}, {StoredType::kBf16, "BF16", 2}, {StoredType::kF16, "F16", 2}};

constexpr uint32_t kInfinity = 0x7f800000, kQuiet = 0x00400000;

float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

float from_f16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | kInfinity | fraction << 13);
  if (exponent == 0) {  // zero, or a multiple of 2^-24
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

// Drops `shift` bits of `value`, rounded to nearest, ties to even.
uint32_t rounded(uint32_t value, int shift) {
  const uint32_t half = 1u << (shift - 1), odd = (value >> shift) & 1;
  return (value + half - 1 + odd) >> shift;
}

uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits | kQuiet) >> 16);
  return static_cast<uint16_t>(rounded(bits, 16));
}

uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > kInfinity) return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  if (magnitude >= 0x47800000) return static_cast<uint16_t>(sign | 0x7c00);  // 65536 and more
  if (magnitude < 0x38800000) {                                              // below 2^-14: a multiple of 2^-24
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;          // exact
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyint(scaled)));
  }
  return static_cast<uint16_t>(sign | rounded(magnitude - (112u << 23), 13));  // a carry out of the fraction is right too
}

template <class Bits, class Convert>
void widen_all(const void* source, int64_t count, float* target, int64_t stride, Convert convert) {
  const char* p = static_cast<const char*>(source);
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, p + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
    target[i * stride] = convert(bits);
  }
}

}  // namespace

bool stored_type_of(std::string_view dtype, StoredType& type) {
  for (const TypeName& one : kTypeNames) {
    if (one.dtype != dtype) continue;
    type = one.type;
    return true;
  }
  return false;
}

std::string_view dtype_of(StoredType type) { return kTypeNames[static_cast<size_t>(type)].dtype; }
int64_t size_of(StoredType type) { return kTypeNames[static_cast<size_t>(type)].bytes; }

void widen(StoredType type, const void* source, int64_t count, float* target, int64_t stride) {
  switch (type) {
    case StoredType::kF32: return widen_all<float>(source, count, target, stride, [](float value) { return value; });
    case StoredType::kBf16: return widen_all<uint16_t>(source, count, target, stride, from_bf16);
    case StoredType::kF16: return widen_all<uint16_t>(source, count, target, stride, from_f16);
  }
}

bool narrow(StoredType type, const float* source, int64_t count, void* target) {
  if (type == StoredType::kF32) {
    std::memcpy(target, source, static_cast<size_t>(count) * sizeof(float));
    return true;
  }
  bool fits = true;
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t bits = type == StoredType::kBf16 ? to_bf16(source[i]) : to_f16(source[i]);
    std::memcpy(static_cast<char*>(target) + i * 2, &bits, 2);
    const uint16_t infinity = type == StoredType::kBf16 ? 0x7f80 : 0x7c00;
    fits = fits && ((bits & 0x7fff) != infinity || std::isinf(source[i]));
  }
  return fits;
}

}  // namespace distsetup
