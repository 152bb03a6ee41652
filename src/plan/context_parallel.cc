#include "plan/context_parallel.h"

#include <fmt/format.h>

#include "plan/packed_rows.h"
#include "plan/ring_attention.h"

namespace distsetup {
namespace {

Op op_of(const Op& attention, std::string name, std::string kernel, std::vector<std::string> reads, std::vector<std::string> writes) {
  Op op;
  op.name = attention.name + "_" + name;
  op.kernel = std::move(kernel);
  op.reads = std::move(reads);
  op.writes = std::move(writes);
  return op;
}

void add_gathered(Op op, bool packed, ProgramBuilder& b) {
  const bool split = op.reads.size() == 2;
  b.add(op_of(op, "pack", split ? "kv_pack_split" : "kv_pack", op.reads, {"kv"}));
  b.add(over_cp(op_of(op, "gather", "all_gather", {"kv"}, {"kv_all"})));
  b.add(op_of(op, "sort", "kv_sort", {"kv_all"}, {"kv_seq"}));
  op.kernel = "attention_shared";
  op.reads = {op.reads[0], "kv_seq"};
  b.add(packed ? over_documents(std::move(op)) : std::move(op));
}

void add_exchanged(Op op, bool packed, ProgramBuilder& b) {
  const bool split = op.reads.size() == 2;
  const std::string att = op.writes[0];
  b.add(op_of(op, "pack", split ? "heads_pack_split" : "heads_pack", op.reads, {"heads_out"}));
  b.add(over_cp(op_of(op, "spread", "all_to_all", {"heads_out"}, {"heads_in"})));
  b.add(op_of(op, "sort", "heads_sort", {"heads_in"}, {"heads_seq"}));
  Op whole = op;
  whole.kernel = "attention_whole";
  whole.reads = {"heads_seq"};
  whole.writes[0] = att + "_seq";
  b.add(packed ? over_documents(std::move(whole)) : std::move(whole));
  b.add(op_of(op, "unsort", "heads_unsort", {att + "_seq"}, {att + "_out"}));
  b.add(over_cp(op_of(op, "collect", "all_to_all", {att + "_out"}, {att + "_in"})));
  b.add(op_of(op, "unpack", "heads_unpack", {att + "_in"}, {att}));
}

}  // namespace

Op over_cp(Op op) {
  op.group = Group::kCp;
  return op;
}

bool is_attention(const Op& op) { return op.kernel == "attention" || op.kernel == "attention_split"; }

void add_shared_attention(Op op, const ProgramSplit& split, ProgramBuilder& b) {
  if (op.reads.empty() || op.reads.size() > 2 || op.writes.size() != 2) return b.add(std::move(op));  // which says what is wrong
  switch (split.cp_method) {
    case CpMethod::kAllGather: return add_gathered(std::move(op), split.packed, b);
    case CpMethod::kUlysses: return add_exchanged(std::move(op), split.packed, b);
    case CpMethod::kRing: return add_ring(op, split.cp, split.packed, b);
  }
}

void share_balance(Op& op, int cp, ProgramBuilder& b) {
  if (op.kernel == "count_routes") op.attributes.multiplier *= cp;  // of its adjoint
  if (op.kernel != "balance_loss" || op.reads.empty()) return;
  const std::string sums = op.reads[0], all = sums + "_of_cp";
  b.add(over_cp(op_of(op, "gather_cp", "gather_routes", {sums}, {all})));
  b.add(op_of(op, "sum_cp", "sum_routes", {all}, {sums}));
}

std::string ulysses_problem(const Geometry& g, int cp, CpMethod method) {
  if (cp == 1 || method != CpMethod::kUlysses || !g.attention_sinks) return "";
  return fmt::format(
      "ulysses over cp {}, whose ranks have some heads of all rows, with attention's sinks, which all heads of some rows "
      "take in",
      cp);
}

std::string shared_kernel_problem(const Plan& p, int cp, CpMethod method) {
  if (const std::string problem = ulysses_problem(p.model, cp, method); !problem.empty()) return problem;
  if (cp == 1 || method == CpMethod::kUlysses || p.hardware.accelerator == Accelerator::kCpu) return "";
  const int64_t window = p.model.sliding_window;
  if (window <= 0 || window >= p.train.sequence_length) return "";
  if (method == CpMethod::kRing)
    return fmt::format(
        "on GPUs the native trainer has no window in attention to a piece of the keys at a time, which ring needs; the "
        "model's is {} and cp {}",
        window, cp);
  if (p.precision.compute != Dtype::kF32) return "";
  // The memory-efficient kernel's backward counts the window of a chunk's queries from the wrong end (seen with libtorch 2.11).
  return fmt::format("in fp32 on GPUs the native trainer has no window over several ranks, the model's is {} and cp {}", window, cp);
}

std::string cut_problem(int64_t sequence_length, int cp) {
  if (cp == 1 || sequence_length % (2 * cp) == 0) return "";
  return fmt::format(
      "cp {} cuts each sequence into 2 × {} = {} chunks of one length, which a sequence of {} tokens is not a multiple of", cp, cp,
      2 * cp, sequence_length);
}

}  // namespace distsetup
