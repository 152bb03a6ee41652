// On a GPU an operation takes what the same operation takes in other trainers (planner/time): matrix products by waves of tiles,
// attention by its kernel's rate, the rest its bytes. On CPU the longer of its FLOPs at a sustained share of the peak and its bytes at
// 0.8 of the memory bandwidth. Leaves out: the residual that a product adds to, ops that run beside each other.
#include "planner/native/op_time.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "model/flops.h"
#include "planner/native/plan_rates.h"
#include "planner/native/step_time.h"
#include "planner/time/attention.h"
#include "planner/time/gemm.h"

namespace distsetup {
namespace {

constexpr double kCpuMemoryEfficiency = 0.8;
constexpr double kCpuOpOverhead = 2e-6;  // seconds an op takes at least

class OpTimes {
 public:
  OpTimes(const Plan& plan, const UnitProgram& unit, const Symbols& symbols, Dtype compute)
      : h_(plan.hardware),
        unit_(unit),
        v_(*unit.variant),
        plan_(plan),
        symbols_(symbols),
        compute_(compute),
        gpu_(h_.accelerator == Accelerator::kCuda),
        constants_(time_constants(h_.rates)) {
    for (const TensorInstance& tensor : v_.tensors) {
      shapes_.push_back(shape_of(*tensor.decl, symbols));
      bytes_.push_back(num_bytes(shapes_.back(), tensor.decl->dtype == Dtype::kCompute ? compute : tensor.decl->dtype));
    }
    CHECK(!gpu_ || h_.rates.gemm_flops_per_s > 0, "a plan for GPUs without their rates");
  }

  // Of ops one after the other; a shift is under way beside those before the op that waits for it.
  // ends: filled with when each of them is done; null: nobody asks.
  double seconds(const std::vector<OpInstance>& ops, bool backward, std::vector<double>* ends = nullptr) const {
    double now_s = 0;
    std::map<int, double> arrives_s;  // by tensor
    for (const OpInstance& op : ops) {
      const int written = op.writes.empty() ? -1 : op.writes.front().index;
      if (op.op->kind == OpKind::kShift)
        arrives_s[written] = now_s + shift_s(op);
      else if (op.op->kind == OpKind::kWait)
        now_s = std::max(now_s, arrives_s.at(written));
      else
        now_s += seconds(op, backward);
      if (ends != nullptr) ends->push_back(now_s);
    }
    return now_s;
  }

 private:
  double seconds(const OpInstance& op, bool backward) const {
    const double here = gpu_ ? on_gpu(op, backward) : on_cpu(op);
    if (!is_communication(op.op->kind)) return here;
    const bool gathers = op.op->kind == OpKind::kAllGather;
    return here + collective_s(plan_, gathers ? InstructionOp::kAllGather : InstructionOp::kReduceScatter, op.op->group,
                               tensor_bytes(all_rows(op)));
  }
  // One of the ranks - 1 rounds of an all-gather.
  double shift_s(const OpInstance& op) const {
    const int ranks = group_size(plan_.mesh, op.op->group);
    return collective_s(plan_, InstructionOp::kAllGather, op.op->group, ranks * tensor_bytes(op.reads.front())) / (ranks - 1);
  }

  // Of a rank's rows, those that an op sees.
  static double share_of_rows(const OpInstance& op) { return 1.0 / op.op->chunks; }
  double symbol(const char* name) const { return static_cast<double>(symbols_.at(name)); }
  double element_bytes() const { return static_cast<double>(size_bytes(compute_)); }
  int64_t tensor_bytes(const Operand& o) const { return bytes_[static_cast<size_t>(o.index)]; }
  double columns(const Operand& o) const { return static_cast<double>(shapes_[static_cast<size_t>(o.index)].back()); }

  // That an op reads of a tensor: of all rows those of its chunk.
  double rows(const Operand& o, const OpInstance& op) const {
    const auto index = static_cast<size_t>(o.index);
    return static_cast<double>(shapes_[index].front()) * (has_all_rows(*v_.tensors[index].decl) ? share_of_rows(op) : 1);
  }

  // Rows of experts that several ranks share have room for the most that can come; as many come as go where all experts are asked
  // alike.
  double share_that_comes(const Operand& o) const {
    const std::vector<std::string>& shape = v_.tensors[static_cast<size_t>(o.index)].decl->shape;
    return shape.empty() || shape[0] != "Te" ? 1 : symbol("Tc") / symbol("Te");
  }

  // Every byte an op reads and writes: a lookup reads T rows of its table, counted as what it writes. A gather copies what this rank
  // sends, an exchange what it keeps; a reduction adds what has come, its own part, and what it adds to.
  double bytes(const OpInstance& op) const {
    double bytes = 0;
    if (op.op->kind == OpKind::kAllGather) return 2 * static_cast<double>(tensor_bytes(op.reads.front()));
    if (op.op->kind == OpKind::kAllToAll) {
      const int64_t ranks = symbols_.at(op.op->group == Group::kEp ? "ep" : "cp");
      return 2 * static_cast<double>(tensor_bytes(all_rows(op)) / ranks);
    }
    if (op.op->kind == OpKind::kReduceScatter)
      return static_cast<double>(tensor_bytes(op.writes.back()) +
                                 (1 + static_cast<int64_t>(op.reads.size())) * tensor_bytes(op.writes.front()));
    const auto count = [&](const Operand& o) {
      const auto index = static_cast<size_t>(o.index);
      const bool is_cut = o.kind == Operand::Kind::kTensor && has_all_rows(*v_.tensors[index].decl);
      if (o.kind == Operand::Kind::kTensor)
        bytes += static_cast<double>(tensor_bytes(o)) * share_that_comes(o) * (is_cut ? share_of_rows(op) : 1);
      const bool rows_only = op.op->kind == OpKind::kEmbedding && o.kind == Operand::Kind::kParameter;
      if ((o.kind == Operand::Kind::kParameter && !rows_only) || o.kind == Operand::Kind::kGradient)
        bytes +=
            unit_.slot_elements[index] * (v_.homes[index] == SlotHome::kQuantized ? bytes_of(Dtype::kNf4Double) : element_bytes());
    };
    for (const Operand& o : op.reads) count(o);
    for (const Operand& o : op.writes) count(o);
    return bytes;
  }

  // What a product reads first is T x k, or T x m beside T x n where it sums over the tokens (a weight gradient).
  double product_s(const OpInstance& op) const {
    const double tokens = rows(op.reads.front(), op), first = columns(op.reads.front()), element = element_bytes();
    const Operand& result = op.writes.front();
    if (result.kind == Operand::Kind::kGradient)
      return gemm_s(constants_.gemm, first, columns(op.reads[1]), tokens, element, element, SummedOver::kRows);
    return gemm_s(constants_.gemm, tokens, columns(result), first, element, element);
  }

  // Each expert with its share of the rows: what it reads first has them, and so has the result or, of a weight gradient, what is read
  // second.
  double grouped_s(const OpInstance& op) const {
    const TimeConstants& c = constants_;
    const double experts = symbol("E") / symbol("ep"), rows = symbol("Tc"), first = columns(op.reads.front()),
                 element = element_bytes();
    if (op.writes.front().kind == Operand::Kind::kGradient)
      return grouped_gradient_s(c.gemm, experts, rows, columns(op.reads[1]), first, element, element, c.grouped_share);
    return grouped_gemm_s(c.gemm, experts, rows, columns(op.writes.front()), first, element, c.grouped_share);
  }

  bool reads_logits(const OpInstance& op) const {
    const Operand& first = op.reads.front();
    return first.kind == Operand::Kind::kTensor && v_.tensors[static_cast<size_t>(first.index)].decl->logits;
  }

  double on_gpu(const OpInstance& op, bool backward) const {
    const TimeConstants& c = constants_;
    switch (op.op->kind) {
      case OpKind::kGemm: return product_s(op);
      case OpKind::kGroupedGemm: return grouped_s(op);
      case OpKind::kAttention: {
        // Each step of a ring has its share of the scores, and joins what it gives with what was there.
        const bool is_step = op.op->kernel.starts_with("ring_attention");
        const double length = symbol("S"), head = symbol("d"), steps = is_step ? symbol("cp") : 1;
        const double attended = mean_attended(length, static_cast<double>(op.op->attributes.window), false) / steps;
        const AttentionShape shape{symbol("T"), attended, length / steps, symbol("a"), head, head};
        const double joined_s = is_step ? c.gemm.kernel_s + bytes(op) / c.memory_bytes_per_s : 0;
        return joined_s + (backward && !op.recomputed ? attention_backward_s(c, shape) : attention_forward_s(c, shape));
      }
      case OpKind::kLoss:
        if (reads_logits(op))
          return c.gemm.kernel_s + share_of_rows(op) * symbol("T") * symbol("V") * c.loss_bytes_per_logit / c.memory_bytes_per_s;
        [[fallthrough]];
      default: return c.gemm.kernel_s + bytes(op) / c.memory_bytes_per_s;
    }
  }

  double on_cpu(const OpInstance& op) const {
    const double flops = op.op->flops.empty() ? 0 : static_cast<double>(evaluate(op.op->flops, symbols_));
    const double efficiency = op.op->kind == OpKind::kAttention ? h_.attention_efficiency : h_.gemm_efficiency;
    return kCpuOpOverhead + std::max(flops / (efficiency * h_.peak_flops_per_s), stream_s(h_, bytes(op)));
  }

  const HardwarePlan& h_;
  const UnitProgram& unit_;
  const ProgramVariant& v_;
  const Plan& plan_;
  const Symbols& symbols_;
  const Dtype compute_;
  const bool gpu_;
  const TimeConstants constants_;
  std::vector<std::vector<int64_t>> shapes_;  // per tensor of the variant
  std::vector<int64_t> bytes_;
};

double elements_of(const Schedule& s, const ProgramVariant& variant, int unit, int slot) {
  double n = 1;
  for (const int64_t dim : slot_of(s, variant, unit, slot).shape) n *= static_cast<double>(dim);
  return n;
}

}  // namespace

std::vector<UnitProgram> unit_programs(const Schedule& s) {
  std::vector<UnitProgram> out;
  for (int v = 0; v < static_cast<int>(s.variants.size()); ++v) {
    UnitProgram unit{s.programs, s.variants[static_cast<size_t>(v)], {}, 0};
    for (const std::vector<int>* model : {&s.unit_variant, &s.reference_variant}) {
      const auto first = std::find(model->begin(), model->end(), v);
      unit.num_units += std::count(first, model->end(), v);
      for (int slot = 0; first != model->end() && slot < static_cast<int>(unit.variant->slots.size()); ++slot)
        unit.slot_elements.push_back(elements_of(s, *unit.variant, static_cast<int>(first - model->begin()), slot));
    }
    out.push_back(std::move(unit));
  }
  return out;
}

ProgramTime program_time(const Plan& plan, const UnitProgram& unit, const Symbols& symbols, Dtype compute) {
  if (unit.slot_elements.empty()) return {};  // no unit runs it
  const OpTimes times(plan, unit, symbols, compute);
  return {times.seconds(unit.variant->forward, false), times.seconds(unit.variant->backward, true)};
}

std::vector<double> op_ends(const Plan& plan, const UnitProgram& unit, const Symbols& symbols, Dtype compute, bool backward) {
  std::vector<double> ends;
  if (unit.slot_elements.empty()) return ends;
  OpTimes(plan, unit, symbols, compute).seconds(backward ? unit.variant->backward : unit.variant->forward, backward, &ends);
  return ends;
}

double stream_s(const HardwarePlan& h, double bytes) {
  return bytes / (h.accelerator == Accelerator::kCuda ? h.rates.optimizer_bytes_per_s : kCpuMemoryEfficiency * h.memory_bytes_per_s);
}

}  // namespace distsetup
