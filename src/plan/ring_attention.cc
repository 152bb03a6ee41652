#include "plan/ring_attention.h"

#include <fmt/format.h>

#include "plan/attention_rules.h"
#include "plan/context_parallel.h"
#include "plan/packed_rows.h"

namespace distsetup {
namespace {

using Builder = ProgramBuilder;

constexpr std::string_view kKeys = "kv";

// Keys and values that have come past `step` ranks.
std::string keys_after(int64_t step) { return step == 0 ? std::string(kKeys) : fmt::format("{}_{}", kKeys, step); }
std::string keys_again_after(int64_t step) { return step == 0 ? std::string(kKeys) : fmt::format("{}_again_{}", kKeys, step); }
std::string gradient_after(int64_t step) { return fmt::format("d{}_{}", kKeys, step); }

Op part_of(const Op& attention, std::string_view suffix, std::string_view kernel, std::vector<std::string> reads,
           std::vector<std::string> writes) {
  Op op = attention;
  op.name += suffix;
  op.kernel = kernel;
  op.reads = std::move(reads);
  op.writes = std::move(writes);
  return op;
}
Op at_step(Op op, int64_t step) {
  op.attributes.ring_step = step;
  return op;
}

// --- the table's functions

// rows that have q, kv [, sum, lse of the sum] -> sum, lse of the sum
void declare_sum(const Op& op, Builder& b) {
  const std::string rows = b.shape(op.reads[0])[0];
  b.declare(op.writes[0], {rows, "a*d"}, Dtype::kF32);
  b.declare(op.writes[1], {rows, "a"}, Dtype::kF32);
}
// rows that have q, kv, sum, lse of the sum -> att, lse
void declare_result(const Op& op, Builder& b) {
  const std::string rows = b.shape(op.reads[0])[0];
  b.declare(op.writes[0], {rows, "a*d"});
  b.declare(op.writes[1], {rows, "a"}, Dtype::kF32);
}
std::string step_work(const Op& op, std::string_view times) {
  return fmt::format("ceil_div({},cp)", shared_attention_work(op, times));
}
std::string step_flops(const Op& op, Builder&) { return step_work(op, "2"); }

class Backward {
 public:
  Backward(const Op& last, Builder& b) : last_(last), b_(b), ranks_(last.attributes.ring_step + 1) {}

  void add() {
    const std::string datt = b_.incoming(last_.writes[0]), q = last_.reads[0];
    const std::vector<std::string> kept = {datt, q, last_.writes[0], last_.writes[1]};
    shift(keys_again_after(0), keys_again_after(1), Dtype::kCompute);
    wait(keys_again_after(0), keys_again_after(1));
    for (int64_t step = 1; step < ranks_; ++step) {
      if (step + 1 < ranks_) shift(keys_again_after(step), keys_again_after(step + 1), Dtype::kCompute);
      if (step > 1) wait(gradient_after(step - 1), gradient_after(step));
      attend(kept, step);
      shift(gradient_after(step), gradient_after(step + 1), Dtype::kF32);
      if (step + 1 < ranks_) wait(keys_again_after(step), keys_again_after(step + 1));
    }
    wait(gradient_after(ranks_ - 1), gradient_after(ranks_));
    finish(kept);
  }

 private:
  Op op(std::string_view suffix, std::string_view kernel, std::vector<std::string> reads, std::vector<std::string> writes,
        OpKind kind) {
    Op made = part_of(last_, fmt::format("_b_{}", suffix), kernel, std::move(reads), std::move(writes));
    made.over.clear();
    made.kind = kind;
    made.flops = kind == OpKind::kAttention ? step_work(last_, "5") : "";
    return made;
  }
  void shift(const std::string& from, const std::string& to, Dtype dtype) {
    b_.declare(to, b_.shape(from), dtype);
    b_.backward(over_cp(op("shift_" + to, "ring_shift", {from}, {to}, OpKind::kShift)));
  }
  void wait(const std::string& from, const std::string& to) {
    b_.backward(over_cp(op("wait_" + to, "ring_wait", {from, to}, {to}, OpKind::kWait)));
  }
  void attend(const std::vector<std::string>& kept, int64_t step) {
    std::vector<std::string> reads = {kept[0], kept[1], keys_again_after(step), kept[2], kept[3]};
    const std::vector<std::string> writes = {sum(), gradient_after(step)};
    b_.declare(sum(), b_.shape(last_.writes[0]), Dtype::kF32);
    b_.declare(gradient_after(step), b_.shape(std::string(kKeys)), Dtype::kF32);
    if (step > 1) reads.insert(reads.end(), writes.begin(), writes.end());
    const std::string_view kernel = step == 1 ? "ring_attention_backward_first" : "ring_attention_backward";
    attend_at(op(fmt::to_string(step), kernel, std::move(reads), writes, OpKind::kAttention), step);
  }
  void finish(const std::vector<std::string>& kept) {
    const std::string keys(kKeys);
    Op home = op("0", "ring_attention_backward_last", {kept[0], kept[1], keys, kept[2], kept[3], sum(), gradient_after(ranks_)},
                 {b_.target(kept[1]), b_.target(keys)}, OpKind::kAttention);
    attend_at(std::move(home), 0);
  }
  void attend_at(Op op, int64_t step) {
    const bool is_packed = last_.reads.back() == kDocumentStarts;
    b_.backward(at_step(is_packed ? over_documents(std::move(op)) : std::move(op), step));
  }
  std::string sum() const { return "dq_sum"; }

  const Op& last_;
  Builder& b_;
  const int64_t ranks_;
};
// Of the last step, whose att and lse are those of all keys: with them the gradients of each step follow by themselves.
void ring_adjoint(const Op& op, Builder& b) { Backward(op, b).add(); }

}  // namespace

void add_ring(const Op& attention, int ranks, bool packed, ProgramBuilder& b) {
  const std::string keys(kKeys), q = attention.reads[0], sum = attention.writes[0] + "_sum", sum_lse = attention.writes[1] + "_sum";
  b.add(part_of(attention, "_pack", attention.reads.size() == 2 ? "kv_pack_split" : "kv_pack", attention.reads, {keys}));
  for (int step = 0; step < ranks; ++step) {
    const std::string here = keys_after(step), next = keys_after(step + 1);
    const bool is_last = step + 1 == ranks;
    if (!is_last) b.add(over_cp(part_of(attention, fmt::format("_shift_{}", step + 1), "ring_shift", {here}, {next})));
    Op part = part_of(attention, is_last ? "" : fmt::format("_{}", step), "ring_attention", {q, here, sum, sum_lse}, {sum, sum_lse});
    if (step == 0) {
      part.kernel = "ring_attention_first";
      part.reads = {q, here};
    }
    if (is_last) {
      part.kernel = "ring_attention_last";
      part.writes = attention.writes;
    }
    if (packed) part = over_documents(std::move(part));
    b.add(at_step(std::move(part), step));
    if (!is_last) b.add(over_cp(part_of(attention, fmt::format("_wait_{}", step + 1), "ring_wait", {here, next}, {next})));
  }
}

std::vector<KernelRule> ring_rules() {
  using enum OpKind;
  // ring_shift: x -> x of the rank before, under way until it is waited for; ring_wait: what it was sent from, what has come -> that
  return {{"ring_shift", kShift, 1, 1, {}, declare_same, nullptr, no_adjoint},
          {"ring_wait", kWait, 2, 1, {}, declare_same, nullptr, no_adjoint},
          {"ring_attention_first", kAttention, 2, 2, {}, declare_sum, step_flops, no_adjoint},
          {"ring_attention", kAttention, 4, 2, {}, declare_sum, step_flops, no_adjoint},
          {"ring_attention_last", kAttention, 4, 2, {{0, 2}, {1, 3}}, declare_result, step_flops, ring_adjoint},
          {"ring_attention_first_packed", kAttention, 3, 2, {}, declare_sum, step_flops, no_adjoint},
          {"ring_attention_packed", kAttention, 5, 2, {}, declare_sum, step_flops, no_adjoint},
          {"ring_attention_last_packed", kAttention, 5, 2, {{0, 2}, {1, 3}}, declare_result, step_flops, ring_adjoint}};
}

}  // namespace distsetup
