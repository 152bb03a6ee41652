#include "planner/frameworks/delta_rule.h"

#include "model/count.h"

namespace distsetup {
namespace {

constexpr int64_t kChunk = 64;
constexpr double kRows = 63;                      // of a chunk, solved one by one
constexpr double kNumbersAbove = 63 * 64 / 2.0;   // of all rows, before the diagonal
constexpr double kSquares = 63 * 64 * 127 / 6.0;  // numbers of all copies of the rows above

// Kernels, by the statements of the function. A row: two copies, a product, its sum, an addition, the assignment; backward the
// gradients of both factors and of the broadcast, those of five slices (zeros, and the slice into them), the assignment's two copies
// and two fills, and three sums of what comes together.
constexpr double kRowForward = 6, kRowBackward = 18;
// A chunk: five products of matrices and the operations between them; backward two products each, and every slice of a whole tensor
// becomes zeros of that whole tensor, with the slice in them, that are added to the others'.
constexpr double kChunkForward = 18, kChunkBackward = 67;
// Once: norms of q and k, casts, padding, decays, the system.
constexpr double kOnceForward = 51, kOnceBackward = 75;

// Of whole tensors as large as the values, what backward moves for each chunk: of q, k, v, the decayed keys and half as much of
// decays, zeros written, then two read and one written; of the output a copy.
constexpr double kWholePasses = 4.5 * 4 + 2;

}  // namespace

double delta_layers_share(const Setup& s) {
  if (s.model.delta_heads == 0 || s.model.num_layers == 0) return 0;
  int64_t layers = 0;
  for (int64_t i = 0; i < s.model.num_layers; ++i) layers += has_window(s.model, i) ? 1 : 0;
  return static_cast<double>(layers) / static_cast<double>(s.model.num_layers);
}

DeltaRuleWork delta_rule_work(const Setup& s) {
  DeltaRuleWork work;
  if (!s.torch_delta_rule || s.model.delta_heads == 0) return work;
  const double width = static_cast<double>(s.model.scan_channels) / static_cast<double>(s.model.delta_heads);  // of a head
  const double heads = static_cast<double>(s.model.delta_heads) / s.tp, c = kChunk;
  const int64_t length = s.sequence_length / s.cp, chunks = (length + kChunk - 1) / kChunk;
  const double units = static_cast<double>(s.micro_batch * chunks) * heads;  // chunks of all heads and sequences
  const double whole = 4 * c * width, square = 4 * c * c;                    // bytes of a chunk: of its values, of its decays
  const double state = 4 * width * width;
  // Kept: q, k, v; k and v times beta; decayed keys, before and behind the system; new values; q and k times what decays in the chunk;
  // the state; decays twice, what they are multiplied by twice, the system, attention in the chunk.
  work.kept_bytes = units * (10 * whole + state + 6 * square + 4 * (kNumbersAbove + kSquares));
  // Each copy is read and written, multiplied by its row, and summed up; some forty passes over values and twenty over decays.
  work.forward_bytes = units * (20 * kSquares + 40 * whole + 20 * square + 6 * state);
  const double of_rows = 24 * kSquares + 10 * kRows * square;
  work.backward_bytes =
      units * (of_rows + 80 * whole + 40 * square + 12 * state) + static_cast<double>(chunks) * kWholePasses * units * whole;
  work.flops = units * (10 * c * c * width + 6 * c * width * width);
  work.forward_kernels = kRows * kRowForward + static_cast<double>(chunks) * kChunkForward + kOnceForward;
  work.backward_kernels = kRows * kRowBackward + static_cast<double>(chunks) * kChunkBackward + kOnceBackward;
  return work;
}

}  // namespace distsetup
