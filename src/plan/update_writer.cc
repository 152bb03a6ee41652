#include "plan/update_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "plan/host_writer.h"
#include "plan/update_layout.h"

namespace distsetup {
namespace {

class UpdateWriter {
 public:
  UpdateWriter(ScheduleWriter& writer, const UpdateBuffers& buffers, HostWriter* host = nullptr)
      : w_(writer),
        b_(buffers),
        host_(host),
        group_(writer.s_.layout->shard_group),
        ranks_(group_size(writer.s_.layout->mesh, group_)) {}

  std::vector<int> adafactor() {
    const FactoredLayout factored = factored_layout(*w_.s_.layout);
    const int sums = span(std::string(kFactorSumsBuffer), factored.sums_numel(), Dtype::kF32);
    Instruction& first = w_.emit(InstructionOp::kFactorSums, -1);
    first.uses = {b_.gradient, b_.master, sums};
    first.allocates = {sums};
    first.dtype = Dtype::kF32;
    all_reduce(sums);
    const int squares = span(std::string(kUpdateSquaresBuffer), factored.num_rows, Dtype::kF32);
    Instruction& second = w_.emit(InstructionOp::kFactorMeans, -1);
    second.uses = {b_.gradient, b_.sumsq, sums, b_.states[0], squares};
    second.allocates = {squares};
    second.dtype = Dtype::kF32;
    all_reduce(squares);
    return {sums, squares};
  }

  void muon() {
    matrices_ = hidden_matrices(*w_.s_.layout);
    std::vector<int> units;
    for (int u = 0; u < static_cast<int>(matrices_.size()); ++u)
      if (!matrices_[static_cast<size_t>(u)].empty()) units.push_back(u);
    for (size_t k = 0; k < units.size(); ++k) {
      if (k == 0) start(units[0]);
      const Moving current = next_;
      if (k + 1 < units.size()) start(units[k + 1]);
      orthogonalize(current);
      collect();
      send_back(current);
    }
    collect();
  }

 private:
  // A unit's directions on their way: the gathered buffer, what is received of it, and the event to wait for.
  struct Moving {
    int unit = -1, buffer = -1, received = -1, event = -1;
  };

  int span(std::string name, int64_t numel, Dtype dtype, BufferClass of = BufferClass::kOptimizerState, int unit = -1) {
    return w_.add_buffer(std::move(name), of, numel * size_bytes(dtype), dtype, BufferLifetime::kSpan, unit);
  }

  void all_reduce(int buffer) {
    if (ranks_ == 1) return;
    Instruction& i = w_.emit(InstructionOp::kAllReduce, -1);
    i.group = group_;
    i.bytes = w_.s_.buffers[static_cast<size_t>(buffer)].bytes;
    i.dtype = Dtype::kF32;
    i.stream = Stream::kReduce;  // what follows waits for it
    i.uses = {buffer};
  }

  int64_t message_bytes(int u) const { return w_.unit(u).shard_numel * ranks_ * size_bytes(Dtype::kBf16); }

  void start(int u) {
    next_ = {u, span(fmt::format("O{}", u), w_.unit(u).shard_numel * ranks_, Dtype::kBf16, BufferClass::kOptimizerState, u), -1, -1};
    if (host_ == nullptr) {
      Instruction& own = w_.emit(InstructionOp::kMomentum, u);
      own.bucket = u;
      own.uses = {b_.gradient, b_.sumsq, b_.states[0], next_.buffer};
      own.allocates = {next_.buffer};
      own.dtype = Dtype::kBf16;
    } else {
      next_.event = host_->momentum(u, next_.buffer);
    }
    if (ranks_ == 1) return;
    const int copied = next_.event;
    Instruction& gather = collective(InstructionOp::kAllGather, next_);
    gather.stream = Stream::kGather;
    if (copied >= 0) gather.waits = {copied};
  }

  Instruction& collective(InstructionOp op, Moving& of) {
    Instruction& i = w_.emit(op, of.unit);
    i.bucket = of.unit;
    i.group = group_;
    i.bytes = message_bytes(of.unit);
    i.dtype = Dtype::kBf16;
    i.uses = {of.buffer};
    i.signals = of.event = w_.new_event();
    return i;
  }

  // X Xᵀ, its polynomial, and the matrix that the next step reads: as large as the largest needs.
  void orthogonalize(const Moving& of) {
    int64_t square = kNormParts * size_bytes(Dtype::kF32) / size_bytes(Dtype::kBf16), whole = 0;
    for (const HiddenMatrix& m : matrices_[static_cast<size_t>(of.unit)]) {
      const int64_t side = std::min(m.rows, m.columns);
      square = std::max(square, side * side);
      whole = std::max(whole, m.rows * m.columns);
    }
    const std::vector<int> scratch = {span("muon_gram", square, Dtype::kBf16), span("muon_polynomial", square, Dtype::kBf16),
                                      span("muon_next", whole, Dtype::kBf16)};
    Instruction& i = w_.emit(InstructionOp::kOrthogonalize, of.unit);
    i.bucket = of.unit;
    i.uses = {of.buffer};
    i.uses.insert(i.uses.end(), scratch.begin(), scratch.end());
    i.allocates = i.frees = scratch;
    i.dtype = Dtype::kBf16;
    if (of.event >= 0) i.waits = {of.event};
  }

  void send_back(Moving of) {
    if (ranks_ > 1) {
      of.received = span(fmt::format("R{}", of.unit), w_.unit(of.unit).shard_numel * (ranks_ - 1), Dtype::kBf16,
                         BufferClass::kCommunication, of.unit);
      Instruction& i = collective(InstructionOp::kReduceScatter, of);
      i.stream = Stream::kReduce;
      i.allocates = {of.received};
    }
    pending_ = of;
  }

  void collect() {
    if (pending_.unit < 0) return;
    const int u = pending_.unit;
    const int target = host_ == nullptr
                           ? b_.gradient
                           : span(fmt::format("D{}", u), w_.unit(u).shard_numel, Dtype::kF32, BufferClass::kOptimizerState, u);
    Instruction& i = w_.emit(InstructionOp::kAccumulate, u);
    i.bucket = u;
    i.dtype = Dtype::kBf16;
    i.uses = {pending_.buffer};
    i.frees = {pending_.buffer};
    if (ranks_ > 1) {
      i.uses.push_back(pending_.received);
      i.frees.push_back(pending_.received);
      i.waits = {pending_.event};
    }
    i.uses.push_back(target);
    pending_ = {};
    if (host_ == nullptr) return;
    i.allocates = {target};
    host_->take_directions(u, target);
  }

  ScheduleWriter& w_;
  const UpdateBuffers& b_;
  HostWriter* const host_;
  const Group group_;
  const int64_t ranks_;
  std::vector<std::vector<HiddenMatrix>> matrices_;
  Moving next_, pending_;  // gathered; on its way back
};

}  // namespace

std::vector<int> write_update(ScheduleWriter& writer, const UpdateBuffers& buffers) {
  if (writer.plan_.train.optimizer == kAdafactor) return UpdateWriter(writer, buffers).adafactor();
  if (writer.plan_.train.optimizer == kMuon) UpdateWriter(writer, buffers).muon();
  return {};
}

void write_muon(ScheduleWriter& writer, const UpdateBuffers& buffers, HostWriter& host) {
  UpdateWriter(writer, buffers, &host).muon();
}

}  // namespace distsetup
