// Values between fp32 and the types that published weights are stored in. Rounding is to nearest, ties to even, as PyTorch rounds.
#pragma once
#include <cstdint>
#include <string_view>

namespace distsetup {

enum class StoredType { kF32, kBf16, kF16 };

// "F32", "BF16", "F16" of a safetensors header; false: another one.
bool stored_type_of(std::string_view dtype, StoredType& type);
std::string_view dtype_of(StoredType type);
int64_t size_of(StoredType type);

// `source` holds count values of the type; value i goes to target[i · stride]. Exact.
void widen(StoredType type, const void* source, int64_t count, float* target, int64_t stride = 1);
// The other way. False: a finite value is beyond the largest of the type, which only F16 has in reach.
bool narrow(StoredType type, const float* source, int64_t count, void* target);

}  // namespace distsetup
