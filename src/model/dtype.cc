#include "model/dtype.h"

#include "base/check.h"

namespace distsetup {

double bytes_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF64:
    case Dtype::kI64: return 8;
    case Dtype::kF32: return 4;
    case Dtype::kBf16:
    case Dtype::kF16: return 2;
    case Dtype::kF8:
    case Dtype::kInt8: return 1;
    case Dtype::kInt4: return 0.5 + 2.0 / 128;                         // GPTQ: one fp16 scale per group of 128
    case Dtype::kNf4: return 0.5 + 4.0 / 64;                           // bitsandbytes: one fp32 scale per 64
    case Dtype::kNf4Double: return 0.5 + 1.0 / 64 + 4.0 / (64 * 256);  // 8-bit scales, one fp32 per 256 of them
    case Dtype::kCompute: break;
  }
  CHECK(false, "dtype is symbolic");
  return 0;
}

int64_t size_bytes(Dtype dtype) {
  CHECK(dtype != Dtype::kInt4 && dtype != Dtype::kNf4 && dtype != Dtype::kNf4Double, "values of this dtype share their bytes");
  return static_cast<int64_t>(bytes_of(dtype));
}

}  // namespace distsetup
