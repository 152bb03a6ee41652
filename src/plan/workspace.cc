// Bytes library calls take for themselves; our own kernels take nothing. Sources:
//   cpu:  flash attention allocates its block scratch from ATen (aten/src/ATen/native/cpu/FlashAttentionKernel.cpp): per thread,
//         scores of query block by key block, row maxima and sums, an fp32 output block; in bf16 the scores again, rounded.
//         fp32 GEMMs take nothing that the allocator sees. bf16 GEMMs take oneDNN scratch (brgemm: packed operands, fp32
//         accumulators): the bounds here were fitted to 1,843 shapes metered on AVX-512 with libtorch 2.11 and one thread, and
//         lie above every one of them, mostly within 64 KiB. More threads take about as many times more. fp16 products are fp32's of
//         operands that are widened first, attention in fp16 is a kernel of our own.
//   cuda: cuBLAS keeps its workspace from the first product on, 32 MiB on Hopper and later (aten/src/ATen/cuda/
//         CublasHandlePool.cpp; 8,519,680 bytes before, here counted alike): beside whatever else runs. Attention returns fresh
//         tensors, which are copied into the arena; with fewer kv heads dk and dv are first made for every head. In bf16 the
//         backward keeps an fp32 accumulator of dq (cuDNN's as FlashAttention's: measured on an H100 for four shapes, to the MiB); a
//         deterministic one keeps one per split, as many splits as give each multiprocessor a (sample, head) of its own
//         (flash_attn/flash_api.cpp, mha_bwd: nsplits); no GPU has more multiprocessors than kMostSms. In
//         fp32 the memory-efficient kernel takes k and v repeated for every head (runtime/kernels/cuda/ops.cc).
#include "plan/workspace.h"

#include <algorithm>

namespace distsetup {
namespace {

constexpr int64_t kCublasWorkspaceBytes = 32 * (int64_t{1} << 20);
constexpr int64_t kMostSms = 192;
// Of a product of all experts by CUTLASS's grouped kernel: four tensor maps of 128 bytes for each multiprocessor, and for each of up
// to 512 experts its sizes, pointers and strides, 60 bytes, and where its rows end (aten/src/ATen/native/cuda/GroupMM.cu).
constexpr int64_t kGroupedBytes = 256 * 1024;

struct FlashBlocks {
  int64_t queries = 0, keys = 0;
};
FlashBlocks flash_blocks(int64_t S) { return {std::min<int64_t>(S >= 768 ? 256 : S >= 192 ? 64 : 32, S), std::min<int64_t>(512, S)}; }

int64_t cpu_attention_forward(const Symbols& s, bool bf16) {
  const auto [q, kv] = flash_blocks(s.at("S"));
  return (q * kv + 2 * q + q * s.at("d")) * 4 + (bf16 ? q * kv * 2 : 0);
}

int64_t cpu_attention_backward(const Symbols& s, bool bf16) {
  const auto [q, kv] = flash_blocks(s.at("S"));
  const int64_t scores = (2 * q * kv + q) * 4;
  if (!bf16) return scores;
  const int64_t packed_q = (q + 31) / 32 * 32;  // a GEMM of oneDNN per block
  const int64_t gemm =
      std::min<int64_t>(kv, 256) * (4 * std::clamp<int64_t>(s.at("d"), 32, 64) + 2 * packed_q) + 128 * packed_q + 1156;
  return scores + 2 * q * kv * 2 + gemm;
}

int64_t round_up_64(int64_t n) { return (n + 63) / 64 * 64; }
int64_t accumulator_columns(int64_t N) {  // columns are split into equal parts of at most 1024
  const int64_t parts = (N + 1023) / 1024;
  return round_up_64((N + parts - 1) / parts);
}

// y[M, N] = x[M, K] · w, w in either order.
int64_t cpu_gemm_bf16(int64_t M, int64_t N, int64_t K) {
  if (M >= 1024 && K >= 4096) return 672896 + 1024 * accumulator_columns(N);
  return std::min<int64_t>(K, 1024) * std::min<int64_t>(128, 2 * round_up_64(N)) + std::min<int64_t>(M, 256) * 256 + 5120;
}

// y[M, N] = xᵀ · w with x[K, M].
int64_t cpu_gemm_bf16_transposed(int64_t M, int64_t N, int64_t K) {
  const int64_t rows = std::min<int64_t>(M, 256);
  if (K <= 512) return 66688 + rows * K * 21 / 8 + 64 * rows;
  return 66688 + 1088 * rows + 4 * rows * accumulator_columns(N);
}

// The products of an adapter's second matrix, [N, rank].
int64_t cpu_columns_bf16(const Step& step) {
  const int64_t rows = step.reads[0].shape[0];
  const std::vector<int64_t>& w = step.kernel == "columns_dw" ? step.writes[0].shape : step.reads[1].shape;
  if (step.kernel == "columns_dw") return cpu_gemm_bf16_transposed(w[0], w[1], rows);
  return step.kernel == "columns_add" ? cpu_gemm_bf16(rows, w[0], w[1]) : cpu_gemm_bf16(rows, w[1], w[0]);
}

// In fp16 both operands and the result of a product are widened (runtime/engine/ops_aten.cc).
int64_t cpu_product_f16(const Step& step) {
  const bool is_columns = step.kernel.starts_with("columns"), is_dw = step.kernel.ends_with("_dw");
  const bool is_grouped = step.kernel.starts_with("grouped_linear");  // of one expert, which may have all rows
  if (!is_columns && !is_grouped && !step.kernel.starts_with("linear")) return 0;
  const int64_t rows = step.reads[0].shape[0], experts = is_grouped ? step.reads[2].shape[0] - 1 : 1;
  const std::vector<int64_t>& w = is_dw ? step.writes[0].shape : step.reads[1].shape;
  return (rows * w[0] / experts + rows * w[1] + w[0] / experts * w[1]) * size_bytes(Dtype::kF32);
}

// Of one expert's rows at a time: at most all of them.
int64_t cpu_grouped_bf16(const Step& step) {
  const int64_t rows = step.reads[0].shape[0], inner = step.reads[0].shape[1], experts = step.reads[2].shape[0] - 1;
  const std::vector<int64_t>& out = step.writes[0].shape;
  if (step.kernel != "grouped_linear_dw") return std::max(cpu_gemm_bf16(rows, out[1], inner), cpu_gemm_bf16(1, out[1], inner));
  const int64_t m = out[0] / experts;
  return std::max(cpu_gemm_bf16_transposed(m, out[1], rows), cpu_gemm_bf16_transposed(m, out[1], std::min<int64_t>(rows, 512)));
}

// Newton-Schulz of the matrices of a unit, whose products have one side for rows and columns.
int64_t cpu_orthogonalize(const Step& step, const Schedule& schedule) {
  int64_t most = 0;
  const UnitLayout& unit = schedule.layout->units[static_cast<size_t>(step.unit)];
  for (const Parameter& p : unit.parameters) {
    if (!is_hidden_matrix(unit.kind, p)) continue;
    const int64_t rows = p.shape[0], columns = p.shape[1], m = std::min(rows, columns);
    const bool is_tall = rows > columns;
    most = std::max({most, is_tall ? cpu_gemm_bf16_transposed(m, m, rows) : cpu_gemm_bf16(m, m, columns), cpu_gemm_bf16(m, m, m),
                     is_tall ? cpu_gemm_bf16(rows, m, m) : cpu_gemm_bf16(m, columns, m)});
  }
  return most;
}

int64_t cpu_workspace(const Step& step, const Schedule& schedule) {
  const bool bf16 = schedule.compute == Dtype::kBf16;
  if (step.program_op != nullptr &&
      has_own_attention(step.kernel, step.program_op->attributes, schedule.symbols.at("S"), schedule.compute))
    return 0;
  if (step.kernel == name(InstructionOp::kOrthogonalize)) return cpu_orthogonalize(step, schedule);
  if (step.kernel.starts_with("attention"))
    return step.kernel.ends_with("_backward") ? cpu_attention_backward(schedule.symbols, bf16)
                                              : cpu_attention_forward(schedule.symbols, bf16);
  if (schedule.compute == Dtype::kF16) return cpu_product_f16(step);
  if (bf16 && step.kernel.starts_with("columns")) return cpu_columns_bf16(step);
  if (bf16 && step.kernel.starts_with("grouped_linear")) return cpu_grouped_bf16(step);
  if (!bf16 || !step.kernel.starts_with("linear")) return 0;
  const std::vector<int64_t>&in = step.reads[0].shape, &out = step.writes[0].shape;
  return step.kernel == "linear_dw" ? cpu_gemm_bf16_transposed(out[0], out[1], in[0]) : cpu_gemm_bf16(out[0], out[1], in[1]);
}

constexpr int64_t kCudnnSeedBytes = 64;  // two numbers that nothing reads without dropout

// attention_shared: of a rank's own queries with whole sequences (context parallelism), the two chunks of each one after the other;
// the larger one sees at most all keys. ring_attention: of the own tokens at most, with as many keys. attention_whole: cp times the
// tokens with as many times fewer heads.
int64_t cuda_attention(const Symbols& s, bool bf16, std::string_view kernel, bool deterministic) {
  const bool backward = kernel.find("_backward") != std::string_view::npos, shared = kernel.starts_with("attention_shared");
  const bool of_pieces = kernel.starts_with("ring_attention");  // whose log-sum-exps are put into another order
  const int64_t T = shared ? s.at("T") / 2 : s.at("T"), keys_T = shared ? s.at("T") * s.at("cp") : T;
  const int64_t element = bf16 ? 2 : 4, queries = T * s.at("a") * s.at("d"), keys = keys_T * s.at("kv") * s.at("d");
  const int64_t sums = T * s.at("a") * 4, expanded = s.at("kv") < s.at("a") ? 2 * keys_T * s.at("a") * s.at("d") * element : 0;
  const bool is_packed = kernel.find("_packed") != std::string_view::npos;
  constexpr int64_t kBlockRows = 128;
  const int64_t starts = is_packed ? (kDocumentsAtOnce + 1) * 4 : 0;
  if (!backward) return starts + sums + queries * element + (bf16 ? kCudnnSeedBytes : expanded);
  const int64_t fresh = (queries + 2 * keys) * element + expanded;
  if (!bf16) return fresh + expanded + sums * (of_pieces ? 2 : 1);
  const int64_t heads = s.at("a") / (kernel.starts_with("attention_whole") ? s.at("cp") : 1);
  if (is_packed) {  // what is kept of documents in blocks of 128 rows, heads in widths of 32 (flash_attn/flash_api.cpp,
                    // mha_varlen_bwd)
    const int64_t more =
        kBlockRows * std::min(kDocumentsAtOnce, T) + (deterministic ? (kMostSms / heads + 1) * (s.at("S") + kBlockRows) : 0);
    const int64_t width = (s.at("d") + 31) / 32 * 32;
    return fresh + starts + (T + more) * s.at("a") * (width + 1) * 4 + sums;
  }
  const int64_t groups = std::max<int64_t>(1, s.at("B") * heads);
  const int64_t splits = deterministic ? (kMostSms + groups - 1) / groups : 1;
  return fresh + splits * queries * 4 + sums * (of_pieces ? 2 : 1);
}

}  // namespace

int64_t workspace_bytes(const Step& step, const Schedule& schedule, Accelerator accelerator) {
  if (accelerator == Accelerator::kCpu) return cpu_workspace(step, schedule);
  const bool attention = step.kernel.starts_with("attention") || step.kernel.starts_with("ring_attention");
  const bool bf16 = schedule.compute != Dtype::kF32;
  if (step.kernel.starts_with("grouped_linear")) return kCublasWorkspaceBytes + kGroupedBytes;
  return kCublasWorkspaceBytes + (attention ? cuda_attention(schedule.symbols, bf16, step.kernel, schedule.deterministic) : 0);
}

}  // namespace distsetup
