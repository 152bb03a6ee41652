#include "plan/host_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "plan/optimizer.h"
#include "plan/update_layout.h"

namespace distsetup {
namespace {

// Of units whose parameters are on their way up at once, beside the one that is being rounded.
constexpr size_t kMostRaised = 1;

// Does the optimizer keep nothing that two units share? Blocks of 8-bit states may lie in both; Adafactor's sums are of all.
bool steps_by_unit(const TrainPlan& train) { return train.optimizer != "adamw_8bit" && keeps_elements(train.optimizer); }

}  // namespace

std::string offload_words(const OffloadPlan& offload) {
  std::string text;
  for (const auto& [place, words] :
       {std::pair{OffloadPlace::kNvme, "on a local disk"}, std::pair{OffloadPlace::kHost, "on the host"}}) {
    std::vector<std::string> what;
    if (offload.optimizer == place) what.emplace_back("optimizer");
    if (offload.parameters == place) what.emplace_back("parameters");
    if (offload.activations == place) what.emplace_back("activations");
    if (what.empty()) continue;
    const std::string last = what.back();
    what.pop_back();
    text += fmt::format("{}{}{}{} {}", text.empty() ? "" : ", ", fmt::join(what, ", "), what.empty() ? "" : " and ", last, words);
  }
  return text;
}

OffloadProblem offload_problem(const Plan& plan) {
  const OffloadPlan& o = plan.offload;
  if (o.parameters == OffloadPlace::kNvme || o.activations == OffloadPlace::kNvme)
    return {fmt::format("the native trainer has the optimizer alone on a disk, the plan says {}",
                        o.parameters == OffloadPlace::kNvme ? "parameters" : "activations"),
            o.parameters == OffloadPlace::kNvme ? "--offload-parameters host" : "--offload-activations host"};
  if (has_host_parameters(plan) && (plan.strategy.sharding == Sharding::kZero1 || plan.strategy.sharding == Sharding::kZero2))
    return {
        fmt::format("parameters come from the host unit by unit, and {} has all of them on each device", name(plan.strategy.sharding)),
        "--sharding zero3"};
  if (has_host_parameters(plan) && !has_host_optimizer(plan) && tuning_of(plan.train).trains_all())
    return {"parameters on the host are those that the optimizer leaves there, and the plan has the optimizer on the device",
            "--offload-optimizer host"};
  if (o.optimizer_ratio != 1)
    return {fmt::format("the native trainer offloads all of the optimizer or nothing, the plan says a share of {}", o.optimizer_ratio),
            "--offload-optimizer-ratio 1"};
  if (o.optimizer == OffloadPlace::kNone) return {};
  return {};
}

void HostWriter::begin(const UpdateBuffers& buffers) {
  b_ = buffers;
  host_sumsq_ = w_.run_buffer("host_sumsq", BufferClass::kGradient, 1, Dtype::kF64);
  const Place place = w_.plan_.offload.optimizer == OffloadPlace::kNvme ? Place::kDisk : Place::kHost;
  for (const int b : b_.states) w_.s_.buffers[b].place = place;
  w_.s_.buffers[b_.master].place = place;
  w_.s_.buffers[b_.gradient].place = w_.s_.buffers[host_sumsq_].place = Place::kHostPinned;
}

int HostWriter::host_span(std::string name, int u, Dtype dtype) {
  const int b = w_.add_buffer(std::move(name), BufferClass::kCommunication, w_.unit(u).shard_numel * size_bytes(dtype), dtype,
                              BufferLifetime::kSpan, u);
  w_.s_.buffers[b].place = Place::kHostPinned;
  return b;
}

Instruction& HostWriter::on_host(InstructionOp op, int u) {
  Instruction& i = w_.emit(op, u);
  i.bucket = u;
  i.stream = Stream::kHost;
  i.dtype = Dtype::kF32;
  if (next_wait_ >= 0) i.waits = {std::exchange(next_wait_, -1)};
  return i;
}

void HostWriter::follow_compute() {
  Instruction& i = w_.emit(InstructionOp::kWait, -1);
  i.signals = next_wait_ = w_.new_event();
}

void HostWriter::gradient(int u, int source, int event, bool adds) {
  finish_gradient();
  const Dtype dtype = w_.s_.buffers[source].dtype;
  const bool is_straight = !adds && dtype == Dtype::kF32;
  const int target = is_straight ? b_.gradient : host_span(fmt::format("H{}", u), u, dtype);
  Instruction& i = w_.emit_copy(u, source, target, w_.unit(u).shard_numel * size_bytes(dtype), dtype);
  i.bucket = u;
  if (!is_straight) i.allocates = {target};
  if (event >= 0) i.waits = {event};
  gradient_ = {u, source, is_straight ? -1 : target, i.signals, adds};
}

void HostWriter::finish_gradient() {
  if (gradient_.unit < 0) return;
  const Copy copy = std::exchange(gradient_, {});
  if (copy.to >= 0) {
    Instruction& i = on_host(InstructionOp::kAccumulate, copy.unit);
    i.waits = {copy.event};
    i.uses = {copy.to, b_.gradient};
    i.frees = {copy.to};
    i.accumulate = copy.adds;
  }
  copied_ = copy.to >= 0 ? -1 : copy.event;  // copies are done in turn
  Instruction& i = w_.emit(InstructionOp::kFree, -1);
  if (copy.to < 0) i.waits = {copy.event};  // else the host has
  i.frees = {copy.from};
}

void HostWriter::norm(Group group) {
  Instruction& norm = on_host(InstructionOp::kGradNorm, -1);
  norm.uses = {b_.gradient, host_sumsq_};
  if (copied_ >= 0) norm.waits = {std::exchange(copied_, -1)};
  const int copied = w_.emit_copy(-1, host_sumsq_, b_.sumsq, size_bytes(Dtype::kF64), Dtype::kF64).signals;
  w_.emit(InstructionOp::kWait, -1).waits = {copied};
  if (group_size(w_.plan_.mesh, group) > 1) {
    Instruction& sum = w_.emit(InstructionOp::kAllReduce, -1);
    sum.group = group;
    sum.bytes = size_bytes(Dtype::kF64);
    sum.dtype = Dtype::kF64;
    sum.uses = {b_.sumsq};
  }
  follow_compute();
}

void HostWriter::sum_over_ranks(int sums) {
  const Group group = w_.s_.layout->shard_group;
  if (group_size(w_.plan_.mesh, group) == 1) return;
  const Buffer host = w_.s_.buffers[sums];
  const int raised = w_.add_buffer(host.name + "_sent", host.buffer_class, host.bytes, host.dtype, BufferLifetime::kSpan);
  Instruction& up = w_.emit_copy(-1, sums, raised, host.bytes, host.dtype);
  up.allocates = {raised};
  const int arrived = up.signals;
  Instruction& sum = w_.emit(InstructionOp::kAllReduce, -1);
  sum.waits = {arrived};
  sum.group = group;
  sum.bytes = host.bytes;
  sum.dtype = host.dtype;
  sum.stream = Stream::kReduce;  // what follows waits for it
  sum.uses = {raised};
  next_wait_ = w_.emit_copy(-1, raised, sums, host.bytes, host.dtype).signals;
  Instruction& done = w_.emit(InstructionOp::kFree, -1);
  done.waits = {next_wait_};
  done.frees = {raised};
}

int HostWriter::update_span(std::string name, int64_t numel, Dtype dtype, int u) {
  const int b =
      w_.add_buffer(std::move(name), BufferClass::kOptimizerState, numel * size_bytes(dtype), dtype, BufferLifetime::kSpan, u);
  w_.s_.buffers[b].place = Place::kHostPinned;
  return b;
}

int HostWriter::momentum(int u, int target) {
  const int64_t numel = w_.unit(u).shard_numel;
  const int own = update_span(fmt::format("M{}", u), numel, Dtype::kBf16, u);
  Instruction& made = on_host(InstructionOp::kMomentum, u);
  made.uses = {b_.gradient, b_.sumsq, b_.states[0], own};
  made.allocates = {own};
  made.dtype = Dtype::kBf16;
  Instruction& up = w_.emit_copy(u, own, target, numel * size_bytes(Dtype::kBf16), Dtype::kBf16);
  up.bucket = u;
  up.allocates = {target};
  momenta_[u] = own;
  return up.signals;
}

void HostWriter::take_directions(int u, int from) {
  const int64_t numel = w_.unit(u).shard_numel;
  const int arrived = update_span(fmt::format("D{} of the host", u), numel, Dtype::kF32, u);
  Instruction& down = w_.emit_copy(u, from, arrived, numel * size_bytes(Dtype::kF32), Dtype::kF32);
  down.bucket = u;
  down.allocates = {arrived};
  const int event = down.signals;
  Instruction& taken = on_host(InstructionOp::kAccumulate, u);
  taken.waits = {event};
  taken.uses = {arrived, b_.gradient};
  taken.frees = {arrived, momenta_.at(u)};  // which went up long before
  w_.emit(InstructionOp::kFree, -1).frees = {from};
}

void HostWriter::prepare_step() {
  if (w_.plan_.train.optimizer == kMuon) write_muon(w_, b_, *this);
  if (w_.plan_.train.optimizer != kAdafactor) return;
  const FactoredLayout factored = factored_layout(*w_.s_.layout);
  const auto host_sums = [this](std::string_view name, int64_t numel) {
    return update_span(std::string(name), numel, Dtype::kF32, -1);
  };
  const int sums = host_sums(kFactorSumsBuffer, factored.sums_numel());
  Instruction& first = on_host(InstructionOp::kFactorSums, -1);
  first.uses = {b_.gradient, b_.master, sums};
  first.allocates = {sums};
  sum_over_ranks(sums);
  const int squares = host_sums(kUpdateSquaresBuffer, factored.num_rows);
  Instruction& second = on_host(InstructionOp::kFactorMeans, -1);
  second.uses = {b_.gradient, b_.sumsq, sums, b_.states[0], squares};
  second.allocates = {squares};
  sum_over_ranks(squares);
  prepared_ = {sums, squares};
}

void HostWriter::step(int u) {
  if (has_stepped_ && !steps_by_unit(w_.plan_.train)) return;
  Instruction& i = on_host(InstructionOp::kOptimizerStep, steps_by_unit(w_.plan_.train) ? u : -1);
  has_stepped_ = true;
  i.uses = {b_.master, b_.gradient};
  i.uses.insert(i.uses.end(), b_.states.begin(), b_.states.end());
  i.uses.insert(i.uses.end(), prepared_.begin(), prepared_.end());
  i.frees = prepared_;
  i.uses.push_back(b_.sumsq);
}

int HostWriter::parameters(int u, int target) {
  while (raised_.size() > kMostRaised) release_oldest();
  const Dtype dtype = w_.s_.compute;
  const int rounded = host_span(fmt::format("U{}", u), u, dtype);
  Instruction& cast = on_host(InstructionOp::kCast, u);
  cast.uses = {b_.master, rounded};
  cast.allocates = {rounded};
  cast.dtype = dtype;
  Instruction& up = w_.emit_copy(u, rounded, target, w_.unit(u).shard_numel * size_bytes(dtype), dtype);
  up.bucket = u;
  raised_.push_back({u, rounded, target, up.signals});
  return raised_.back().event;
}

void HostWriter::round(int u, int target) {
  Instruction& cast = on_host(InstructionOp::kCast, u);
  cast.uses = {b_.master, target};
  cast.dtype = w_.s_.compute;
}

void HostWriter::release_oldest() {
  const Copy copy = raised_.front();
  raised_.erase(raised_.begin());
  Instruction& i = on_host(InstructionOp::kFree, -1);
  i.waits = {copy.event};
  i.frees = {copy.from};
}

void HostWriter::finish_parameters() {
  Instruction& i = w_.emit(InstructionOp::kFree, -1);
  for (const Copy& copy : raised_) i.frees.push_back(copy.from);
  raised_.clear();
}

}  // namespace distsetup
