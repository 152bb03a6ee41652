#include "runtime/engine/ops_quantized.h"

#include <algorithm>
#include <array>

#include "runtime/engine/ops_table.h"
#include "runtime/engine/threads.h"
#include "runtime/kernels/cpu/kernels.h"
#include "weights/nf4.h"

namespace distsetup {
namespace {

// Blocks [begin, end) of a record: `to` has the matrix.
void unpack(const uint8_t* record, const Nf4Record& of, int64_t begin, int64_t end, float* to) {
  read_nf4_blocks(record, of, begin, end, to + begin * kNf4Block);
}
template <class E>
void unpack(const uint8_t* record, const Nf4Record& of, int64_t begin, int64_t end, E* to) {
  std::array<float, kNf4Block> block;
  for (int64_t b = begin; b < end; ++b) {
    read_nf4_blocks(record, of, b, b + 1, block.data());
    cpu::cast(block.data(), to + b * kNf4Block, std::min(kNf4Block, of.numel - b * kNf4Block));
  }
}

// p:W .. -> W
template <class E>
void dequantize_nf4(const Call& c) {
  E* to = out<E>(c, 0);
  for (const Argument& read : c.reads) {
    const Nf4Record record = nf4_record(numel(read), c.attributes->tensor_ranks);
    parallel_ranges(record.num_scales, kNf4Block * 16,
                    [&](int64_t begin, int64_t end) { unpack(static_cast<const uint8_t*>(read.data), record, begin, end, to); });
    to += record.numel;
  }
}

constexpr std::array kTable = {NativeOp{"dequantize_nf4", dequantize_nf4<float>, dequantize_nf4<Bf16>, dequantize_nf4<F16>}};

}  // namespace

bool bind_quantized_op(const std::string& kernel, Call& call) {
  call.function = find_op(kTable, kernel, call);
  return call.function != nullptr;
}

}  // namespace distsetup
