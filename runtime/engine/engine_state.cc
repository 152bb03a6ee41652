#include "runtime/engine/engine_state.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <tuple>

#include "base/check.h"
#include "base/clock.h"
#include "plan/expand.h"
#include "plan/recorded_step.h"
#include "plan/router_balance.h"
#include "plan/update_layout.h"
#include "runtime/device/cpu_device.h"
#include "runtime/engine/gradient_sums.h"
#include "runtime/engine/node_hops.h"

namespace distsetup {

Engine::State::State(const Plan& p, Schedule step, Device& d, Communicator& c, EngineOptions o)
    : plan(p), device(d), communicator(c), options(o) {
  CHECK(communicator.world() == plan.mesh.world(), "communicator {} plan {}", communicator.world(), plan.mesh.world());
  CHECK(options.metered_steps == 0 || meter_installed());
  if (plan.train.cuda_graphs && !device.can_record())
    throw std::invalid_argument("the plan asks for CUDA graphs, and " + device.description() + " cannot record");
  meter.steps_left = options.metered_steps;
  if (plan.precision.compute == Dtype::kF16) loss_scale = initial_loss_scale(plan.precision.loss_scale);
  place = coordinates(plan.mesh, communicator.rank());
  std::map<Phase, Schedule> schedules;
  schedules[Phase::kLoad] = compile_expanded(plan, Phase::kLoad, place.pp);
  schedules[Phase::kEvaluate] = compile_expanded(plan, Phase::kEvaluate, place.pp);
  schedules[Phase::kStep] = std::move(step);
  context = op_context(schedules[Phase::kStep], plan.model, place);
  context.documents = &documents;
  std::vector<const Schedule*> all;
  for (const auto& [phase, s] : schedules) all.push_back(&s);
  memory = std::make_unique<RankMemory>(device, all, RunSizes::kEqual, options.offload_folder);
  for (auto& [phase, s] : schedules) lists[phase] = bind(std::move(s), *memory, place, context, device.kernels());
  host_shards = std::make_unique<HostShards>(*memory, device, state_sizes(layout()), plan.train);
  fill_rope_tables(plan.model, context.packed ? own_positions(context.cp * context.S) : positions_of(context),
                   plan.train.sequence_length, *memory, device);
  make_optimizers();
  if (!options.poison) return;
  for (const UnitLayout& unit : layout().units) {  // gradient padding: nobody may read it
    if (unit.is_frozen) continue;
    const int64_t valid = owned_by(unit).size();
    poison(shard("gradient").data() + unit.shard_offset + valid, (unit.shard_numel - valid) * 4, memory->is_on_host("gradient"));
  }
}

void Engine::State::make_optimizers() {
  const bool is_on_host = memory->is_on_host("master");
  if (is_on_host) host = make_cpu_device();
  const OptimizerMemory shards = {shard("master").data(), shard("gradient").data(),
                                  [this](const std::string& buffer) { return memory->run(buffer); }, layout().shard_numel};
  const std::vector<DecayRange> all = decay_ranges(layout(), place);
  for (const Instruction& i : list(Phase::kStep).schedule.instructions) {
    if (i.op != InstructionOp::kOptimizerStep) continue;
    std::vector<DecayRange> ranges = all;
    if (i.unit >= 0) {
      const UnitLayout& unit = layout().units[size_t(i.unit)];
      std::erase_if(ranges, [&unit](const DecayRange& range) {
        return range.begin < unit.shard_offset || range.begin >= unit.shard_offset + unit.shard_numel;
      });
    }
    optimizers[i.unit] = make_optimizer(plan.train, ranges, shards, is_on_host ? *host : device, {&layout(), place, &device});
  }
}

void Engine::State::poison(void* data, int64_t num_bytes, bool is_on_host) {
  if (!is_on_host) return device.fill(data, 0xff, num_bytes);
  if (num_bytes > 0) std::memset(data, 0xff, size_t(num_bytes));
}

void Engine::State::execute(BoundList& list, const Feed& feed) {
  const c10::InferenceMode guard;
  if (options.poison) poison(memory->arena(), memory->arena_bytes(), false);
  if (options.poison && memory->host_arena() != nullptr) {
    device.synchronize();  // copies of the list before may still read it
    poison(memory->host_arena(), memory->host_arena_bytes(), true);
  }
  if (guards_arenas()) memory->close_arenas();
  if (options.progress != nullptr) options.progress->list.store(&list.schedule, std::memory_order_relaxed);
  events.clear();
  events.resize(size_t(list.schedule.num_events));
  std::map<std::tuple<InstructionOp, int, bool>, int64_t> fed;  // micro-batches, by who reads them
  const auto feed_for = [&](const Instruction& i) {
    if (reads_tokens(list.schedule, i)) feed(fed[{i.op, i.unit, is_reference(i)}]++);
  };
  for (const Segment& segment : list.schedule.segments) {
    const int recorded = records(list) ? recorded_end(list.schedule, segment) : segment.first_instruction;
    for (int64_t r = 0; r < segment.repeat; ++r) {
      int i = segment.first_instruction;
      for (; i < recorded; ++i) feed_for(list.schedule.instructions[size_t(i)]);
      if (recorded > segment.first_instruction) replay(list, segment.first_instruction, recorded);
      for (; i < segment.first_instruction + segment.num_instructions; ++i) {
        feed_for(list.schedule.instructions[size_t(i)]);
        run_instruction(list, i, r);
      }
    }
  }
  for (const StartedWork& e : events) CHECK(e.work == nullptr, "{} was never waited for", name(e.instruction->op));
  collect_times();
  if (options.progress != nullptr) options.progress->list.store(nullptr, std::memory_order_relaxed);
}

// Of steps that are looked into each instruction has to run by itself; and the first ones make libraries take what they need.
bool Engine::State::records(const BoundList& list) const {
  constexpr int64_t kPlainSteps = 2;
  return plan.train.cuda_graphs && list.schedule.phase == Phase::kStep && steps_here >= kPlainSteps && !is_metering() && !profile &&
         !options.watch;
}

// Instructions first to end - 1, as they were recorded when they ran here first. All streams meet before and after: events of the one
// side mean nothing on the other.
void Engine::State::replay(BoundList& list, int first, int end) {
  const auto instruction = [&](int i) -> const Instruction& { return list.schedule.instructions[size_t(i)]; };
  std::set<Stream> beside;
  for (int i = first; i < end; ++i)
    if (instruction(i).stream != Stream::kCompute) beside.insert(instruction(i).stream);
  if (options.progress != nullptr) options.progress->at(first);
  std::shared_ptr<const Recording>& recording = recordings[first];
  if (recording == nullptr) {
    const StepStats so_far = stats;
    is_recording = true;
    device.begin_recording();
    communicator.begin_recording();
    for (int i = first; i < end; ++i) run_instruction(list, i, 0);
    for (const Stream stream : beside) device.follow(Stream::kCompute, stream);
    communicator.end_recording();
    recording = device.end_recording();
    is_recording = false;
    stats = so_far;
  }
  for (const Stream stream : beside) device.follow(Stream::kCompute, stream);
  const int timer = device.start_timer(Stream::kCompute);
  device.replay(*recording);
  device.stop_timer(Stream::kCompute, timer);
  for (const Stream stream : beside) device.follow(stream, Stream::kCompute);
  communicator.replayed();
  for (int i = first; i < end; ++i)
    if (instruction(i).signals >= 0) events[size_t(instruction(i).signals)] = {nullptr, &instruction(i), -1};
  if (timer >= 0) timers.push_back({kReplay, timer});
  ++stats.by_instruction[std::string(kReplay)].count;
}

void Engine::State::collect_times() {
  if (profile) stats.profile = std::exchange(profile, nullptr)->finish();
  if (timers.empty()) return;
  device.synchronize();
  for (const auto& [op, timer] : timers) stats.by_instruction[std::string(op)].seconds += device.timer_s(timer);
  timers.clear();
  device.forget_timers();
}

void Engine::State::run_instruction(BoundList& list, int index, int64_t repetition) {
  const Instruction& i = list.schedule.instructions[size_t(index)];
  if (options.progress != nullptr) options.progress->at(index);
  const int profiled = profile ? profile->at(index, i, repetition) : -1;
  const bool is_host = i.stream == Stream::kHost;
  for (const int event : i.waits) {
    wait(event);
    is_host ? device.wait_on_host(event) : device.wait(i.stream, event);
  }
  // A collective starts after everything before it in the list; what comes later may overtake it until an instruction waits for it.
  if (i.stream != Stream::kCompute && !is_host) device.follow(i.stream, Stream::kCompute);
  const double begin_s = now_s();
  const bool is_timed = !is_host && !is_recording;
  const int timer = is_timed ? device.start_timer(i.stream) : -1;
  std::unique_ptr<Work> work = start(list, i);
  if (is_timed) device.stop_timer(i.stream, timer);
  if (i.signals >= 0) {
    device.record(i.stream, i.signals);
    CHECK(events[size_t(i.signals)].work == nullptr, "event {} is signalled again before it was waited for", i.signals);
    events[size_t(i.signals)] = {std::move(work), &i, profiled};
  } else if (work) {
    const double blocked_s = now_s();
    work->wait();
    if (i.stream != Stream::kCompute) device.follow(Stream::kCompute, i.stream);
    stats.wait_s += now_s() - blocked_s;
    if (profile) profile->waited(profiled, now_s() - blocked_s);
  }
  OpSeconds& total = stats.by_instruction[std::string(name(i.op))];
  if (timer >= 0)
    timers.push_back({name(i.op), timer});
  else
    total.seconds += now_s() - begin_s;
  ++total.count;
}

void Engine::State::wait(int event) {
  StartedWork& e = events[size_t(event)];
  CHECK(e.instruction != nullptr, "event {} is waited for before it is signalled", event);
  if (e.work == nullptr) return;
  const double begin_s = now_s();
  e.work->wait();
  e.work.reset();
  const double s = now_s() - begin_s;
  if (profile) profile->waited(e.profiled, s);
  stats.wait_s += s;
  stats.by_instruction[std::string(name(e.instruction->op))].seconds += s;
}

void Engine::State::run_steps(BoundList& list, const Instruction& i) {
  for (int n = i.first_step; n < i.first_step + i.num_steps; ++n) {
    const Call& call = list.calls[size_t(n)];
    const Step& step = list.schedule.steps[size_t(n)];
    before_step(list, n);
    if (options.watch) options.watch(step, call);
    if (profile) profile->begin(step.op);
    metered(list, i, n, [&] { run_op(step, call); });
    if (profile) profile->end(meter.bytes.empty() ? -1 : meter.bytes[size_t(n)]);
    after_step(list, n);
  }
}

void Engine::State::metered(BoundList& list, const Instruction& i, int step, const std::function<void()>& op) {
  if (!is_metering()) return op();
  meter.run(list.schedule, i, step, op, stats.allocations);
}

void Engine::State::run_op(const Step& step, const Call& call) {
  if (exchanges_rows(*step.program_op)) {
    const Argument& of = call.reads[1];
    row_starts.resize(size_t(numel(of)));
    device.copy_to_host(row_starts.data(), of.data, num_bytes(of));
    stats.wait_s += exchange_rows(*step.program_op, call, row_starts, communicator, device.kernels());
  } else if (is_communication(step.program_op->kind))
    stats.wait_s += exchange(*step.program_op, call, communicator, device.kernels(), shifts);
  else
    call.function(call);
}

void Engine::State::after_step(BoundList& list, int step) {
  if (!options.poison && !guards_arenas()) return;
  const Schedule& s = list.schedule;
  const bool is_host = s.instructions[size_t(s.steps[size_t(step)].instruction)].stream == Stream::kHost;
  for (const BoundList::ByteRange& r : list.dies[size_t(step)]) {
    if (r.is_on_host && !is_host) device.synchronize();  // they are free when the stream is here, and it is late
    options.poison ? poison(r.data, r.num_bytes, r.is_on_host) : close_bytes(r.data, r.num_bytes);
  }
}

// Everything but waiting. Returns the collective that is under way, if the instruction is one.
std::unique_ptr<Work> Engine::State::start(BoundList& list, const Instruction& i) {
  std::unique_ptr<Work> work;
  if (i.num_steps == 0) return work;
  const Call& call = list.calls[size_t(i.first_step)];
  if (is_program(i.op)) return run_steps(list, i), nullptr;
  before_step(list, i.first_step);
  if (profile) profile->begin("");
  if (i.group == Group::kSelf && belongs_to_update(list.schedule, i)) {
    metered(list, i, i.first_step, [&] { optimizer_step(i, call); });
    return after_step(list, i.first_step), nullptr;
  }
  switch (i.op) {
    case InstructionOp::kCast: {
      const Argument& to = call.writes[0];
      if (call.reads[0].dtype != Dtype::kF32)  // what is frozen is held as it is gathered
        kernels_of(i).copy(i.stream, to.data, call.reads[0].data, num_bytes(to));
      else
        kernels_of(i).cast(i.stream, static_cast<const float*>(call.reads[0].data), to.data, to.dtype, numel(to));
      break;
    }
    case InstructionOp::kAllGather: work = communicator.all_gather(i.group, call.writes[0].data, num_bytes(call.reads[0])); break;
    case InstructionOp::kReduceScatter:
      if (i.hop != Hop::kOnly) {
        work = start_hop(i, call, communicator);
        break;
      }
      work = communicator.exchange(i.group, call.reads[0].data, call.writes[0].data,
                                   num_bytes(call.reads[0]) / communicator.size(i.group));
      break;
    case InstructionOp::kAllReduce:
      if (call.reads[0].data == memory->run("loss")) stats.own_loss = scalar("loss");
      if (call.reads[0].dtype == Dtype::kF64)
        work = communicator.all_reduce_sum(i.group, static_cast<double*>(call.reads[0].data), numel(call.reads[0]));
      else
        work = communicator.all_reduce_sum(i.group, static_cast<float*>(call.reads[0].data), numel(call.reads[0]));
      break;
    case InstructionOp::kSend:
    case InstructionOp::kRecv: work = transfer(list.schedule, i, call, communicator); break;
    case InstructionOp::kAccumulate:
      if (i.hop == Hop::kOnly)
        accumulate(call, layout(), i.unit, place, kernels_of(i));
      else
        accumulate_hop(i, call, layout(), place, kernels_of(i));
      break;
    case InstructionOp::kGradNorm: gradient_norm(call, layout(), place, kernels_of(i)); break;
    case InstructionOp::kCopyToHost:
    case InstructionOp::kCopyToDevice: copy(list.schedule, i, call); break;
    case InstructionOp::kOptimizerStep: metered(list, i, i.first_step, [&] { optimizer_step(i, call); }); break;
    case InstructionOp::kZero:
      // Before the first step run buffers are zeroed when they are allocated: by now they hold the model.
      if (list.schedule.phase == Phase::kLoad) break;
      for (const Argument& w : call.writes) device.fill(w.data, 0, num_bytes(w));
      break;
    default: break;  // Wait, Free: nothing to do here
  }
  if (profile) profile->end(-1);
  after_step(list, i.first_step);
  return work;
}

// Of a unit's gradient what this rank has of it: nobody writes the padding.
void Engine::State::copy(const Schedule& schedule, const Instruction& i, const Call& call) {
  const Argument &from = call.reads[0], &to = call.writes[0];
  const bool is_gradient = i.op == InstructionOp::kCopyToHost && i.unit >= 0 && !moves_activation(schedule, i);
  const int64_t count = is_gradient ? owned_by(layout().units[size_t(i.unit)]).size() : numel(from);
  device.copy(i.stream, to.data, from.data, count * size_bytes(from.dtype));
}

// Whether the step is taken: asked once, by the first instruction that belongs to the optimizer. Loss and gradient are those of the
// scaled loss until here.
void Engine::State::decide() {
  is_decided = true;
  stats.loss = scalar("loss") / scale();
  stats.own_loss = communicator.world() == 1 ? stats.loss : stats.own_loss / scale();
  if (learns_preferences()) {
    device.copy_to_host(stats.preference.emplace().data(), memory->run("loss"), sizeof(PreferenceNumbers));
    communicator.check();
    for (double& number : *stats.preference) number /= scale();
  }
  stats.gradient_norm = std::sqrt(scalar("sumsq")) / scale();
  const bool has_loss = std::isfinite(stats.loss), has_norm = std::isfinite(stats.gradient_norm);
  if (loss_scale) {
    const LossScalePlan& of = plan.precision.loss_scale;
    stats.loss_scale = loss_scale->scale;
    stats.is_overflow = of.fixed == 0 && has_loss && !has_norm;
    if (stats.is_overflow && is_smallest(of, *loss_scale))
      throw NonFiniteError(
          fmt::format("step {}: the gradient overflows fp16 although the loss scale is {:g}, the smallest there may be",
                      steps_done + 1, loss_scale->scale));
    loss_scale = next_loss_scale(of, *loss_scale, !has_norm);
    stats.next_loss_scale = loss_scale->scale;
  }
  if (!options.takes_update && !(has_loss && has_norm) && !stats.is_overflow)
    throw NonFiniteError(fmt::format("step {}: loss {}, gradient norm {}", steps_done + 1, stats.loss, stats.gradient_norm));
  stats.is_updated = !options.takes_update || options.takes_update(stats);
  if (stats.is_overflow) stats.is_updated = false;
  if (!stats.is_updated) ++steps_skipped;
}

void Engine::State::optimizer_step(const Instruction& i, const Call& call) {
  if (!is_decided) decide();
  if (!stats.is_updated) return;
  const int64_t number = steps_done + 1 - steps_skipped;
  const double clip = clip_factor(stats.gradient_norm, plan.train.grad_clip) / std::max(1.0, stats.loss_scale);
  if (i.op != InstructionOp::kOptimizerStep) return optimizers.at(-1)->prepare(i, call, number, rate, clip);
  const std::vector<UnitLayout>& units = layout().units;
  const size_t next = static_cast<size_t>(i.unit + 1);  // a step of all units at once has none
  if (i.unit >= 0 && next < units.size()) memory->read_ahead(units[next]);
  optimizers.at(i.unit)->step(number, rate, clip);
  if (const double by = plan.model.router_bias_rate; by > 0) correct_routers(i.unit, by);
  if (i.unit >= 0) memory->write_back(units[next - 1]);
}

// A few numbers of each layer: the host moves them. unit: as of the instruction, -1 for all.
void Engine::State::correct_routers(int unit, double by) {
  Device& where = host ? *host : device;
  for (const ElementRange& range : balance_ranges(layout(), place, unit)) {
    const auto n = size_t(range.end - range.begin);
    float* const master = shard("master").data() + range.begin;
    std::vector<float> above(n), values(n);
    where.copy_to_host(above.data(), shard("gradient").data() + range.begin, int64_t(n * sizeof(float)));
    where.copy_to_host(values.data(), master, int64_t(n * sizeof(float)));
    move_corrections({{0, int64_t(n)}}, by, above.data(), values.data());
    where.copy_to_device(master, values.data(), int64_t(n * sizeof(float)));
  }
}

Tokens Engine::State::tokens_of(std::span<const int64_t> ids, std::span<const int64_t> targets, std::span<const int64_t> positions,
                                std::span<const float> reference_logps, int64_t num_micro_batches) {
  const bool is_given = is_given_reference(list(Phase::kStep).schedule);
  const Tokens tokens = {ids, targets, positions, is_given ? reference_logps : std::span<const float>()};
  check_tokens(tokens, num_micro_batches, context, is_given);
  return tokens;
}

void Engine::State::evaluate(const EvaluateInput& input, const std::function<void(int64_t)>& after) {
  const int64_t n = int64_t(input.ids.size()) / micro_batch_tokens(context);
  const Tokens tokens = tokens_of(input.ids, input.targets, input.positions, input.reference_logps, n);
  CHECK(input.num_terms > 0);
  stats = {};
  set_loss_terms(input.num_terms, 1, 0);  // a held-out loss is that of the tokens alone
  for (int64_t m = 0; m < n; ++m) {
    execute(lists.at(Phase::kEvaluate), [&](int64_t) { feed(tokens, m); });
    after(m);
  }
}

}  // namespace distsetup
