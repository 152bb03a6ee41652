// Updates of optimizers that libtorch has no fused kernel of, as a kernel gets them: memory of the device, numbers of one step.
//   adamw       m = m + rest1 (g - m);  v = v + rest2 (g² - v);  p = keep p - rate m / (sqrt(v) / correction2 + epsilon): torch's,
//   which
//               writes the clipped gradient back too, a byte in eight (CUDA)
//   lion        d = beta1 m + rest1 g;  p = keep p - rate sign(d);  m = beta2 m + rest2 g          with g = clip · gradient
//   adamw_8bit  m = beta1 m + rest1 g;  v = beta2 v + rest2 g²;  p = keep p - rate m / (sqrt(v) / correction2 + epsilon);  moments are
//               codes and scales (runtime/optim/block_codes.h), the parameter moves before they are rounded
//   adafactor   torch.optim.Adafactor of one parameter, in the passes of AdafactorPass; what ranks add up lies between them
//   muon        m += rest (g - m);  d = nesterov ? g + momentum (m - g) : m, rounded to bf16          with g = clip · gradient
//   step        p = keep p - rate d, with d in fp32
#pragma once
#include <cstdint>

namespace distsetup {

struct AdamWUpdate {
  float* parameters = nullptr;
  const float* gradients = nullptr;
  float *first = nullptr, *second = nullptr;  // moments
  int64_t n = 0;
  float clip = 1, keep = 1, rate = 0, correction2 = 1, epsilon = 0, rest1 = 0, rest2 = 0;
};
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

// start + weight (end - start), from the nearer end, as torch.lerp has it.
#ifdef __CUDACC__
__host__ __device__
#endif
    inline float
    between(float start, float end, float weight) {
  return weight < 0.5f ? start + weight * (end - start) : end - (end - start) * (1 - weight);
}

// A rank's elements `begin` to `end` of a parameter, row-major; none where they are equal. A vector is a column of `rows` elements.
// Sums, means and squares are of the whole parameter.
struct AdafactorUpdate {
  float* parameters = nullptr;  // of element `begin`
  const float* gradients = nullptr;
  int64_t begin = 0, end = 0, rows = 0, columns = 1;
  bool is_vector = false;
  float *row_sums = nullptr, *column_sums = nullptr;    // of squared gradients
  float *row_means = nullptr, *column_means = nullptr;  // what is kept between steps; a vector has those of rows alone
  float *squares = nullptr, *update_squares = nullptr;  // of parameters and of updates, by row
  float *mean_of_rows = nullptr, *scale = nullptr;      // one number each
  float clip = 1, keep = 1, weight = 1, rate = 0, epsilon1 = 0, epsilon2 = 0, threshold = 1;
};
enum class AdafactorPass {
  kSums,     // row_sums, column_sums, squares of the own elements; adds to what is there
  kMeans,    // row_means, column_means, mean_of_rows from the sums of all
  kSquares,  // update_squares of the own elements; adds to what is there
  kScale,    // scale from the squares of all
  kStep,     // parameters
};

struct MuonMomentum {
  const float* gradients = nullptr;
  float* momenta = nullptr;
  void* directions = nullptr;  // bf16
  int64_t n = 0;
  float clip = 1, momentum = 0, rest = 1;
  bool nesterov = true;
};
struct DecayedStep {
  float* parameters = nullptr;
  const float* directions = nullptr;
  int64_t n = 0;
  float keep = 1, rate = 0;
};
// A matrix of bf16 as it lies, row-major, or its transpose.
struct MatrixView {
  void* data = nullptr;
  int64_t rows = 0, columns = 0;
  bool is_transposed = false;
};

}  // namespace distsetup
