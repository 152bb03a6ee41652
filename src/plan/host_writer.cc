#include "plan/host_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "plan/optimizer.h"

namespace distsetup {
namespace {

// Of units whose parameters are on their way up at once, beside the one that is being rounded.
constexpr size_t kMostRaised = 1;

// Does the optimizer keep nothing that two units share? Blocks of 8-bit states may lie in both.
bool steps_by_unit(const TrainPlan& train) { return train.optimizer != "adamw_8bit"; }

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
  if (!keeps_elements(plan.train.optimizer))
    return {fmt::format("{} sees whole matrices, which ranks bring together on their devices: the host has no part in that",
                        plan.train.optimizer),
            "--optimizer adamw"};
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

void HostWriter::step(int u) {
  if (has_stepped_ && !steps_by_unit(w_.plan_.train)) return;
  Instruction& i = on_host(InstructionOp::kOptimizerStep, steps_by_unit(w_.plan_.train) ? u : -1);
  has_stepped_ = true;
  i.uses = {b_.master, b_.gradient};
  i.uses.insert(i.uses.end(), b_.states.begin(), b_.states.end());
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
