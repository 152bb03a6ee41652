#include "runtime/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "plan/update_layout.h"
#include "runtime/engine/threads.h"
#include "runtime/kernels/cpu/bf16.h"
#include "runtime/optim/fused.h"

namespace distsetup {
namespace {

// torch/optim/_muon.py: DEFAULT_A, DEFAULT_B, DEFAULT_C.
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;

Bf16 to_bf16(float v) {
  Bf16 out;
  from_float(v, &out);
  return out;
}

class Muon final : public Optimizer {
 public:
  Muon(const TrainPlan& train, const OptimizerMemory& memory, const OptimizerPlace& place, Device& device)
      : train_(train),
        memory_(memory),
        layout_(*place.layout),
        device_(device),
        of_matrices_(place.of_matrices != nullptr ? *place.of_matrices : device),
        matrices_(hidden_matrices(layout_)) {
    index_ = group_index(layout_.mesh, layout_.shard_group, place.at);
    momenta_ = static_cast<float*>(memory.state("momentum_buffer"));
    std::vector<DecayRange> rest;
    std::vector<int64_t> second_begins;
    for (const MuonRange& range : muon_ranges(layout_, place.at)) {
      if (range.is_hidden) {
        ranges_.push_back({range.unit, range.begin, range.end, rate_factor(train.muon, *range.parameter), range.parameter->decay});
        continue;
      }
      rest.push_back({range.begin, range.end, range.parameter->decay});
      second_begins.push_back(range.rest_begin);
    }
    OptimizerMemory of_adamw = memory;
    of_adamw.state = [state = memory.state](const std::string& name) { return state(name == "exp_avg" ? "momentum_buffer" : name); };
    adamw_ = make_adamw_beside(train, rest, second_begins, of_adamw, device.accelerator(), device.index());
  }

  void prepare(const Instruction& i, const Call& call, int64_t, double, double clip) override {
    switch (i.op) {
      case InstructionOp::kMomentum: return momentum(i.unit, call, clip);
      case InstructionOp::kOrthogonalize: return orthogonalize(i.unit, call);
      case InstructionOp::kAccumulate: return collect(i.unit, call);
      default: CHECK(false, "Muon has nothing to do at {}", name(i.op));
    }
  }

  void step(int64_t step, double learning_rate, double clip) override {
    for (const Range& range : ranges_) {
      DecayedStep u;
      u.parameters = memory_.master + range.begin;
      u.directions = memory_.gradient + range.begin;
      u.n = range.end - range.begin;
      u.keep = static_cast<float>(range.decay ? 1 - learning_rate * train_.weight_decay : 1.0);
      u.rate = static_cast<float>(learning_rate * range.rate_factor);
      device_.kernels().decayed_step(u);
    }
    const double share = train_.learning_rate > 0 ? train_.muon.adam_learning_rate / train_.learning_rate : 1;
    adamw_->step(step, learning_rate * share, clip);
  }

 private:
  struct Range {
    int unit = 0;
    int64_t begin = 0, end = 0;
    double rate_factor = 1;
    bool decay = true;
  };

  // call.writes[0]: this rank's chunk of the unit.
  void momentum(int unit, const Call& call, double clip) {
    for (const Range& range : ranges_) {
      if (range.unit != unit) continue;
      const int64_t at = range.begin - layout_.units[static_cast<size_t>(unit)].shard_offset;
      MuonMomentum u;
      CHECK(at + range.end - range.begin <= numel(call.writes[0]), "unit {}", unit);
      u.gradients = memory_.gradient + range.begin;
      u.momenta = momenta_ + range.begin;
      u.directions = static_cast<char*>(call.writes[0].data) + at * size_bytes(Dtype::kBf16);
      u.n = range.end - range.begin;
      u.clip = static_cast<float>(clip);
      u.momentum = static_cast<float>(train_.momentum);
      u.rest = static_cast<float>(1 - train_.momentum);
      u.nesterov = train_.muon.nesterov;
      device_.kernels().muon_momentum(u);
    }
  }

  // Zeros where another rank has the matrix: the reduction adds nothing to them.
  void orthogonalize(int unit, const Call& call) {
    char* const whole = static_cast<char*>(call.reads[0].data);
    for (const HiddenMatrix& m : matrices_[static_cast<size_t>(unit)]) {
      char* const at = whole + m.parameter->offset * size_bytes(Dtype::kBf16);
      if (m.owner != index_)
        of_matrices_.fill(at, 0, m.rows * m.columns * size_bytes(Dtype::kBf16));
      else
        newton_schulz({at, m.rows, m.columns}, call.writes[1].data, call.writes[2].data, call.writes[3].data,
                      train_.muon.newton_schulz_steps, of_matrices_.kernels());
    }
  }

  // call.writes[0]: the unit's gradient, or what the host takes in its place: that comes in fp32, and is copied.
  void collect(int unit, const Call& call) {
    const UnitLayout& of = layout_.units[static_cast<size_t>(unit)];
    const bool is_shared = call.reads.size() == 2;
    for (const Range& range : ranges_) {
      if (range.unit != unit) continue;
      const int64_t from = range.begin - of.shard_offset, at = from * size_bytes(Dtype::kBf16);
      float* const to = static_cast<float*>(call.writes[0].data) + from;
      if (call.reads[0].dtype == Dtype::kF32) {
        std::copy_n(static_cast<const float*>(call.reads[0].data) + from, range.end - range.begin, to);
        continue;
      }
      of_matrices_.kernels().sum_chunks(
          to, static_cast<char*>(call.reads[0].data) + at, is_shared ? static_cast<char*>(call.reads[1].data) + at : nullptr,
          Dtype::kBf16, is_shared ? of.shard_ranks : 1, is_shared ? index_ : 0, of.shard_numel, range.end - range.begin,
          /*accumulate=*/false);
    }
  }

  const TrainPlan train_;
  const OptimizerMemory memory_;
  const Layout& layout_;
  Device &device_, &of_matrices_;
  const std::vector<std::vector<HiddenMatrix>> matrices_;
  int index_ = 0;  // in the shard group
  float* momenta_ = nullptr;
  std::vector<Range> ranges_;  // of matrices
  std::unique_ptr<Optimizer> adamw_;
};

}  // namespace

void newton_schulz(const MatrixView& matrix, void* gram, void* polynomial, void* next, int64_t steps, const Kernels& kernels) {
  const bool is_tall = matrix.rows > matrix.columns;
  const int64_t side = std::min(matrix.rows, matrix.columns), n = matrix.rows * matrix.columns;
  kernels.normalize(matrix.data, n, static_cast<float*>(gram));
  const MatrixView a = {gram, side, side}, b = {polynomial, side, side};
  MatrixView from = matrix, to = {next, matrix.rows, matrix.columns};
  for (int64_t step = 0; step < steps; ++step) {
    MatrixView turned = from;
    turned.is_transposed = true;
    if (is_tall)
      kernels.multiply_add(a, a, turned, from, 0, 1);
    else
      kernels.multiply_add(a, a, from, turned, 0, 1);
    kernels.multiply_add(b, a, a, a, kB, kC);
    if (is_tall)
      kernels.multiply_add(to, from, from, b, kA, 1);
    else
      kernels.multiply_add(to, from, b, from, kA, 1);
    std::swap(from, to);
  }
  kernels.copy(Stream::kCompute, matrix.data, from.data, n * size_bytes(Dtype::kBf16));
}

void muon_momentum_on_host(const MuonMomentum& u) {
  constexpr int64_t kBytesOfWork = 14;
  auto* const directions = static_cast<Bf16*>(u.directions);
  parallel_ranges(u.n, kBytesOfWork, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float g = u.gradients[i] * u.clip, m = between(u.momenta[i], g, u.rest);
      u.momenta[i] = m;
      directions[i] = to_bf16(u.nesterov ? between(g, m, u.momentum) : m);
    }
  });
}

void decayed_step_on_host(const DecayedStep& u) {
  parallel_ranges(u.n, 12, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) u.parameters[i] = u.parameters[i] * u.keep - u.rate * u.directions[i];
  });
}

void normalize_on_host(void* values, int64_t n) {
  constexpr float kLeast = 1e-7f;  // torch/optim/_muon.py: EPS
  auto* const x = static_cast<Bf16*>(values);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(to_float(x[i])) * to_float(x[i]);
  const float norm = std::max(to_float(to_bf16(static_cast<float>(std::sqrt(sum)))), to_float(to_bf16(kLeast)));
  parallel_ranges(n, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) x[i] = to_bf16(to_float(x[i]) / norm);
  });
}

std::unique_ptr<Optimizer> make_muon(const TrainPlan& train, const OptimizerMemory& memory, const OptimizerPlace& place,
                                     Device& device) {
  CHECK(place.layout != nullptr, "Muon needs a layout");
  return std::make_unique<Muon>(train, memory, place, device);
}

}  // namespace distsetup
