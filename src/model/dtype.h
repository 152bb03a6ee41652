// What a value is held or computed in.
#pragma once
#include <cstdint>

namespace distsetup {

enum class Dtype {
  kCompute,  // of a program: the type that its plan computes in, put in its place when sizes are evaluated
  kF64,
  kF32,
  kBf16,
  kF16,
  kF8,
  kI64,
  kInt8,
  kInt4,
  kNf4,
  kNf4Double  // NF4 whose scales are quantised too
};

// Of a type whose values take whole bytes and have no scales beside them; CHECKs on others.
int64_t size_bytes(Dtype dtype);
// Per value, block scales of quantised types included; CHECKs on kCompute.
double bytes_of(Dtype dtype);

}  // namespace distsetup
