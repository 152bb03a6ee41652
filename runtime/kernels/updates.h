// Updates of optimizers that libtorch has no fused kernel of, as a kernel gets them: memory of the device, numbers of one step.
//   lion        d = beta1 m + rest1 g;  p = keep p - rate sign(d);  m = beta2 m + rest2 g          with g = clip · gradient
//   adamw_8bit  m = beta1 m + rest1 g;  v = beta2 v + rest2 g²;  p = keep p - rate m / (sqrt(v) / correction2 + epsilon);  moments are
//               codes and scales (runtime/optim/block_codes.h), the parameter moves before they are rounded
#pragma once
#include <cstdint>

namespace distsetup {

struct LionUpdate {
  float* parameters = nullptr;
  const float* gradients = nullptr;
  float* moments = nullptr;
  int64_t n = 0;
  float clip = 1, keep = 1, rate = 0, beta1 = 0, rest1 = 0, beta2 = 0, rest2 = 0;
};

struct ScaledCodes {
  uint8_t* codes = nullptr;
  float* scales = nullptr;        // one for each kScaleBlock elements
  const float* values = nullptr;  // what the 256 codes stand for; memory of the host
};
// Elements that no range has keep their values; their moments are read and written as they are.
struct UpdateRange {
  int64_t begin = 0, end = 0;
  bool decay = true;
};
struct AdamW8bitUpdate {
  float* parameters = nullptr;
  const float* gradients = nullptr;
  ScaledCodes first, second;
  int64_t n = 0;
  const UpdateRange* ranges = nullptr;  // ascending, memory of the host
  int64_t num_ranges = 0;
  float clip = 1, keep = 1, rate = 0, correction2 = 1, epsilon = 0, beta1 = 0, rest1 = 0, beta2 = 0, rest2 = 0;  // keep: where decayed
};

}  // namespace distsetup
