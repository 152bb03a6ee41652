// Optimizers that see whole matrices: Adafactor's passes, and of Muon all but the products. See runtime/kernels/updates.h. Sums are
// formed in a fixed order.
#include "runtime/kernels/cuda/common.cuh"

namespace distsetup::cuda {
namespace {

// Of all threads of a block; every one gets it.
__device__ float block_total(float v) {
  __shared__ float of_warp[kBlock / kWarp];
  for (int d = kWarp / 2; d > 0; d /= 2) v += __shfl_xor_sync(kAllLanes, v, d);
  __syncthreads();  // of_warp may still be read from the call before
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = v;
  __syncthreads();
  float sum = 0;
  for (int w = 0; w < kBlock / kWarp; ++w) sum += of_warp[w];
  return sum;
}

// The own elements of a row.
struct RowPart {
  int64_t row, begin, end;
};
__device__ RowPart row_part(const AdafactorUpdate& u, int64_t first_row) {
  RowPart r;
  r.row = u.begin / u.columns + first_row;
  r.begin = r.row * u.columns > u.begin ? r.row * u.columns : u.begin;
  r.end = (r.row + 1) * u.columns < u.end ? (r.row + 1) * u.columns : u.end;
  return r;
}

// Rows of one element each, many of them: a vector.
__global__ void vector_sums_kernel(AdafactorUpdate u) {
  const int64_t i = u.begin + int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= u.end) return;
  const float g = u.gradients[i - u.begin], p = u.parameters[i - u.begin];
  u.row_sums[i] += g * g;
  u.squares[i] += p * p;
}

__global__ void row_sums_kernel(AdafactorUpdate u) {
  const RowPart r = row_part(u, blockIdx.x);
  float gradients = 0, parameters = 0;
  for (int64_t i = r.begin + threadIdx.x; i < r.end; i += kBlock) {
    const float g = u.gradients[i - u.begin], p = u.parameters[i - u.begin];
    gradients += g * g;
    parameters += p * p;
  }
  gradients = block_total(gradients);
  parameters = block_total(parameters);
  if (threadIdx.x != 0) return;
  u.row_sums[r.row] += gradients;
  u.squares[r.row] += parameters;
}

__global__ void column_sums_kernel(AdafactorUpdate u) {
  const int64_t c = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= u.columns) return;
  float sum = 0;
  for (int64_t i = u.begin / u.columns * u.columns + c; i < u.end; i += u.columns) {
    if (i < u.begin) continue;
    const float g = u.gradients[i - u.begin];
    sum += g * g;
  }
  u.column_sums[c] += sum;
}

// One block.
__global__ void means_kernel(AdafactorUpdate u) {
  const float squared_clip = u.clip * u.clip;
  float sum = 0;
  for (int64_t r = threadIdx.x; r < u.rows; r += kBlock) {
    u.row_means[r] = between(u.row_means[r], u.row_sums[r] * squared_clip / float(u.columns), u.weight);
    sum += u.row_means[r];
  }
  sum = block_total(sum);
  if (threadIdx.x == 0) *u.mean_of_rows = sum / float(u.rows);
  if (u.is_vector) return;
  for (int64_t c = threadIdx.x; c < u.columns; c += kBlock)
    u.column_means[c] = between(u.column_means[c], u.column_sums[c] * squared_clip / float(u.rows), u.weight);
}

__device__ float change(const AdafactorUpdate& u, int64_t row, int64_t i) {
  const float mean =
      u.is_vector ? u.row_means[row] : u.row_means[row] * u.column_means[i - row * u.columns] / fmaxf(*u.mean_of_rows, u.epsilon1);
  return u.gradients[i - u.begin] * u.clip / sqrtf(fmaxf(mean, u.epsilon1 * u.epsilon1));
}

__global__ void vector_squares_kernel(AdafactorUpdate u) {
  const int64_t i = u.begin + int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= u.end) return;
  const float d = change(u, i, i);
  u.update_squares[i] += d * d;
}

__global__ void row_squares_kernel(AdafactorUpdate u) {
  const RowPart r = row_part(u, blockIdx.x);
  float sum = 0;
  for (int64_t i = r.begin + threadIdx.x; i < r.end; i += kBlock) {
    const float d = change(u, r.row, i);
    sum += d * d;
  }
  sum = block_total(sum);
  if (threadIdx.x == 0) u.update_squares[r.row] += sum;
}

// One block.
__global__ void scale_kernel(AdafactorUpdate u) {
  float parameters = 0, updates = 0;
  for (int64_t r = threadIdx.x; r < u.rows; r += kBlock) parameters += u.squares[r], updates += u.update_squares[r];
  parameters = block_total(parameters);
  updates = block_total(updates);
  if (threadIdx.x != 0) return;
  const float n = float(u.rows) * float(u.columns);
  *u.scale = fmaxf(u.epsilon2, sqrtf(parameters / n)) * u.rate / fmaxf(1.0f, sqrtf(updates / n) / u.threshold);
}

__global__ void adafactor_step_kernel(AdafactorUpdate u) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = u.begin + int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < u.end; i += stride) {
    float& p = u.parameters[i - u.begin];
    p = p * u.keep - *u.scale * change(u, i / u.columns, i);
  }
}

__global__ void muon_momentum_kernel(MuonMomentum u) {
  Bf16* const directions = static_cast<Bf16*>(u.directions);
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < u.n; i += stride) {
    const float g = u.gradients[i] * u.clip, m = between(u.momenta[i], g, u.rest);
    u.momenta[i] = m;
    store(directions + i, u.nesterov ? between(g, m, u.momentum) : m);
  }
}

__global__ void decayed_step_kernel(DecayedStep u) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < u.n; i += stride)
    u.parameters[i] = u.parameters[i] * u.keep - u.rate * u.directions[i];
}

__global__ void norm_parts_kernel(const Bf16* x, int64_t n, float* parts) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  float sum = 0;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) sum += load(x + i) * load(x + i);
  sum = block_total(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// The norm and the least one are rounded to bf16, as torch has them.
__global__ void divide_by_norm_kernel(Bf16* x, int64_t n, const float* parts, int num_parts) {
  float sum = 0;
  for (int p = 0; p < num_parts; ++p) sum += parts[p];
  Bf16 norm, least;
  store(&norm, sqrtf(sum));
  store(&least, 1e-7f);
  const float by = fmaxf(load(&norm), load(&least));
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) store(x + i, load(x + i) / by);
}

unsigned some_blocks(int64_t n) {
  constexpr unsigned kMostBlocks = 1 << 16;
  const unsigned needed = grid(n, kBlock);
  return needed < kMostBlocks ? needed : kMostBlocks;
}

}  // namespace

void adafactor(AdafactorPass pass, const AdafactorUpdate& u, StreamHandle stream) {
  const int64_t n = u.end - u.begin;
  const unsigned rows = unsigned((u.end + u.columns - 1) / u.columns - u.begin / u.columns);
  switch (pass) {
    case AdafactorPass::kSums:
      if (u.is_vector) {
        launch(vector_sums_kernel, grid(n, kBlock), kBlock, stream, u);
        break;
      }
      launch(row_sums_kernel, rows, kBlock, stream, u);
      launch(column_sums_kernel, grid(u.columns, kBlock), kBlock, stream, u);
      break;
    case AdafactorPass::kMeans: launch(means_kernel, 1u, kBlock, stream, u); break;
    case AdafactorPass::kSquares:
      if (u.is_vector)
        launch(vector_squares_kernel, grid(n, kBlock), kBlock, stream, u);
      else
        launch(row_squares_kernel, rows, kBlock, stream, u);
      break;
    case AdafactorPass::kScale: launch(scale_kernel, 1u, kBlock, stream, u); break;
    case AdafactorPass::kStep: launch(adafactor_step_kernel, some_blocks(n), kBlock, stream, u); break;
  }
  check_launch("adafactor");
}

void muon_momentum(const MuonMomentum& update, StreamHandle stream) {
  launch(muon_momentum_kernel, some_blocks(update.n), kBlock, stream, update);
  check_launch("muon_momentum");
}

void decayed_step(const DecayedStep& update, StreamHandle stream) {
  launch(decayed_step_kernel, some_blocks(update.n), kBlock, stream, update);
  check_launch("decayed_step");
}

void normalize(void* values, int64_t n, float* scratch, int num_parts, StreamHandle stream) {
  launch(norm_parts_kernel, unsigned(num_parts), kBlock, stream, static_cast<const Bf16*>(values), n, scratch);
  launch(divide_by_norm_kernel, some_blocks(n), kBlock, stream, static_cast<Bf16*>(values), n, static_cast<const float*>(scratch),
         num_parts);
  check_launch("normalize");
}

}  // namespace distsetup::cuda
