// The executor: a loop over instructions; programs are calls of bound functions, the other instructions a switch.
#include "runtime/engine/engine.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "plan/expand.h"
#include "plan/layout_ranges.h"
#include "plan/update_layout.h"
#include "runtime/engine/bind.h"
#include "runtime/engine/exchange.h"
#include "runtime/engine/feed.h"
#include "runtime/engine/frozen_shards.h"
#include "runtime/engine/gradient_sums.h"
#include "runtime/engine/host_shards.h"
#include "runtime/engine/memory_report.h"
#include "runtime/engine/step_meter.h"
#include "runtime/kernels/cpu/kernels.h"
#include "runtime/optim/initialize.h"
#include "runtime/optim/optimizer.h"

namespace distsetup {
struct Engine::State {
  State(const Plan& p, Schedule step, Device& d, Communicator& c, EngineOptions o);

  using Feed = std::function<void(int64_t micro_batch)>;
  void execute(BoundList& list, const Feed& feed);
  void run_instruction(BoundList& list, int index, int64_t repetition);
  void run_steps(BoundList& list, const Instruction& i);
  void run_op(const Step& step, const Call& call);
  void after_step(BoundList& list, int step);
  std::unique_ptr<Work> start(BoundList& list, const Instruction& i);
  void optimizer_step(const Instruction& i, const Call& call);
  void decide();
  void wait(int event);
  void feed(const Tokens& tokens, int64_t m) { distsetup::feed(tokens, m, context, *memory, device, own_tokens); }
  bool learns_preferences() const { return memory->has_run("reference_logps"); }
  void evaluate(const EvaluateInput& input, const std::function<void(int64_t micro_batch)>& after);
  bool is_metering() const { return meter.steps_left > 0; }
  bool is_profiled() const { return steps_done + 1 >= options.first_profiled_step && steps_done < options.last_profiled_step; }
  double scalar(const char* name) {
    double value = 0;
    device.copy_to_host(&value, memory->run(name), sizeof(value));
    communicator.check();  // on a device with streams a collective may have failed since it was issued
    return value;
  }
  void set_scalar(const char* name, double value) { device.copy_to_device(memory->run(name), &value, sizeof(value)); }
  void collect_times();
  std::span<float> shard(const char* name) const { return {static_cast<float*>(memory->run(name)), size_t(layout().shard_numel)}; }
  const Layout& layout() const { return *list(Phase::kStep).schedule.layout; }
  ElementRange owned_by(const UnitLayout& unit) const { return owned_range(unit, shard_index(layout(), unit, place)); }
  const BoundList& list(Phase phase) const { return lists.at(phase); }

  const Plan plan;
  Device& device;
  Communicator& communicator;
  EngineOptions options;
  Coordinates place;
  OpContext context;
  std::unique_ptr<RankMemory> memory;
  std::map<Phase, BoundList> lists;
  std::unique_ptr<Optimizer> optimizer;
  int64_t steps_done = 0, steps_skipped = 0;

  // Of the list that runs.
  struct StartedWork {
    std::unique_ptr<Work> work;                // null: nothing to wait for on the host, or waited for already
    const Instruction* instruction = nullptr;  // what signals the event; null: nothing yet
    int profiled = -1;                         // its entry in the profile
  };
  std::vector<StartedWork> events;
  StepStats stats;
  bool is_decided = false;  // whether the optimizer's step is taken
  std::vector<std::pair<InstructionOp, int>> timers;
  std::unique_ptr<Profile> profile;  // of a step that is profiled
  double rate = 0;
  std::vector<int64_t> own_tokens;  // of a micro-batch, where ranks share sequences
  std::unique_ptr<HostShards> host_shards;
  StepMeter meter;
  Shifts shifts;
};

Engine::State::State(const Plan& p, Schedule step, Device& d, Communicator& c, EngineOptions o)
    : plan(p), device(d), communicator(c), options(o) {
  CHECK(communicator.world() == plan.mesh.world(), "communicator {} plan {}", communicator.world(), plan.mesh.world());
  CHECK(options.metered_steps == 0 || meter_installed());
  meter.steps_left = options.metered_steps;
  place = coordinates(plan.mesh, communicator.rank());
  std::map<Phase, Schedule> schedules;
  schedules[Phase::kLoad] = compile_expanded(plan, Phase::kLoad, place.pp);
  schedules[Phase::kEvaluate] = compile_expanded(plan, Phase::kEvaluate, place.pp);
  schedules[Phase::kStep] = std::move(step);
  context = op_context(schedules[Phase::kStep], plan.model, place);
  std::vector<const Schedule*> all;
  for (const auto& [phase, s] : schedules) all.push_back(&s);
  memory = std::make_unique<RankMemory>(device, all);
  for (auto& [phase, s] : schedules) lists[phase] = bind(std::move(s), *memory, place, context, device.kernels());
  host_shards = std::make_unique<HostShards>(*memory, device, state_sizes(layout()), plan.train);
  fill_rope_tables(plan.model, context.packed ? own_positions(context.cp * context.S) : positions_of(context), *memory, device);
  const OptimizerMemory shards = {shard("master").data(), shard("gradient").data(),
                                  [this](const std::string& buffer) { return memory->run(buffer); }, layout().shard_numel};
  optimizer = make_optimizer(plan.train, decay_ranges(layout(), place), shards, device, {&layout(), place});
  if (!options.poison) return;
  for (const UnitLayout& unit : layout().units) {  // gradient padding: nobody may read it
    if (unit.is_frozen) continue;
    const int64_t valid = owned_by(unit).size();
    device.fill(shard("gradient").data() + unit.shard_offset + valid, 0xff, (unit.shard_numel - valid) * 4);
  }
}

void Engine::State::execute(BoundList& list, const Feed& feed) {
  const c10::InferenceMode guard;
  if (options.poison) device.fill(memory->arena(), 0xff, memory->arena_bytes());
  if (options.progress != nullptr) options.progress->list.store(&list.schedule, std::memory_order_relaxed);
  events.clear();
  events.resize(size_t(list.schedule.num_events));
  std::map<std::pair<InstructionOp, int>, int64_t> fed;  // micro-batches, by who reads them
  for (const Segment& segment : list.schedule.segments) {
    for (int64_t r = 0; r < segment.repeat; ++r) {
      for (int i = segment.first_instruction; i < segment.first_instruction + segment.num_instructions; ++i) {
        const Instruction& instruction = list.schedule.instructions[size_t(i)];
        if (reads_tokens(list.schedule, instruction)) feed(fed[{instruction.op, instruction.unit}]++);
        run_instruction(list, i, r);
      }
    }
  }
  for (const StartedWork& e : events) CHECK(e.work == nullptr, "{} was never waited for", name(e.instruction->op));
  collect_times();
  if (options.progress != nullptr) options.progress->list.store(nullptr, std::memory_order_relaxed);
}

void Engine::State::collect_times() {
  if (profile) stats.profile = std::exchange(profile, nullptr)->finish();
  if (timers.empty()) return;
  device.synchronize();
  for (const auto& [op, timer] : timers) stats.by_instruction[std::string(name(op))].seconds += device.timer_s(timer);
  timers.clear();
  device.forget_timers();
}

void Engine::State::run_instruction(BoundList& list, int index, int64_t repetition) {
  const Instruction& i = list.schedule.instructions[size_t(index)];
  if (options.progress != nullptr) options.progress->at(index);
  const int profiled = profile ? profile->at(index, i, repetition) : -1;
  for (const int event : i.waits) {
    wait(event);
    device.wait(i.stream, event);
  }
  // A collective starts after everything before it in the list; what comes later may overtake it until an instruction waits for it.
  if (i.stream != Stream::kCompute) device.follow(i.stream, Stream::kCompute);
  const double begin_s = now_s();
  const int timer = device.start_timer(i.stream);
  std::unique_ptr<Work> work = start(list, i);
  device.stop_timer(i.stream, timer);
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
    timers.push_back({i.op, timer});
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
    if (options.watch) options.watch(step, call);
    if (profile) profile->begin(step.op);
    if (is_metering())
      meter.run(
          list.schedule, i, n, [&] { run_op(step, call); }, stats.allocations);
    else
      run_op(step, call);
    if (profile) profile->end(meter.bytes.empty() ? -1 : meter.bytes[size_t(n)]);
    after_step(list, n);
  }
}

void Engine::State::run_op(const Step& step, const Call& call) {
  if (is_communication(step.program_op->kind))
    stats.wait_s += exchange(*step.program_op, call, communicator, device.kernels(), shifts);
  else
    call.function(call);
}

void Engine::State::after_step(BoundList& list, int step) {
  if (!options.poison) return;
  for (const BoundList::ByteRange& r : list.dies[size_t(step)]) device.fill(r.data, 0xff, r.num_bytes);
}

// Everything but waiting. Returns the collective that is under way, if the instruction is one.
std::unique_ptr<Work> Engine::State::start(BoundList& list, const Instruction& i) {
  std::unique_ptr<Work> work;
  if (i.num_steps == 0) return work;
  const Call& call = list.calls[size_t(i.first_step)];
  if (is_program(i.op)) return run_steps(list, i), nullptr;
  if (profile) profile->begin("");
  if (i.group == Group::kSelf && belongs_to_update(list.schedule, i)) {
    optimizer_step(i, call);
    return after_step(list, i.first_step), nullptr;
  }
  switch (i.op) {
    case InstructionOp::kCast: {
      const Argument& to = call.writes[0];
      if (call.reads[0].dtype != Dtype::kF32)  // what is frozen is held as it is gathered
        device.kernels().copy(i.stream, to.data, call.reads[0].data, num_bytes(to));
      else
        device.kernels().cast(i.stream, static_cast<const float*>(call.reads[0].data), to.data, to.dtype, numel(to));
      break;
    }
    case InstructionOp::kAllGather: work = communicator.all_gather(i.group, call.writes[0].data, num_bytes(call.reads[0])); break;
    case InstructionOp::kReduceScatter:
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
    case InstructionOp::kAccumulate: accumulate(call, layout(), i.unit, place, device.kernels()); break;
    case InstructionOp::kGradNorm: gradient_norm(call, layout(), place, device.kernels()); break;
    case InstructionOp::kOptimizerStep: optimizer_step(i, call); break;
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

// Whether the step is taken: asked once, by the first instruction that belongs to the optimizer.
void Engine::State::decide() {
  is_decided = true;
  stats.loss = scalar("loss");
  if (learns_preferences()) {
    device.copy_to_host(stats.preference.emplace().data(), memory->run("loss"), sizeof(PreferenceNumbers));
    communicator.check();
  }
  stats.gradient_norm = std::sqrt(scalar("sumsq"));
  if (communicator.world() == 1) stats.own_loss = stats.loss;
  const bool is_finite = std::isfinite(stats.loss) && std::isfinite(stats.gradient_norm);
  if (!options.takes_update && !is_finite)
    throw NonFiniteError(fmt::format("step {}: loss {}, gradient norm {}", steps_done + 1, stats.loss, stats.gradient_norm));
  stats.is_updated = !options.takes_update || options.takes_update(stats);
  if (!stats.is_updated) ++steps_skipped;
}

void Engine::State::optimizer_step(const Instruction& i, const Call& call) {
  if (!is_decided) decide();
  if (!stats.is_updated) return;
  const int64_t number = steps_done + 1 - steps_skipped;
  const double clip = clip_factor(stats.gradient_norm, plan.train.grad_clip);
  if (i.op == InstructionOp::kOptimizerStep)
    optimizer->step(number, rate, clip);
  else
    optimizer->prepare(i, call, number, rate, clip);
}

void Engine::State::evaluate(const EvaluateInput& input, const std::function<void(int64_t)>& after) {
  const Tokens tokens = {input.ids, input.targets, input.positions, input.reference_logps};
  const int64_t n = int64_t(input.ids.size()) / micro_batch_tokens(context);
  check_tokens(tokens, n, context, is_given_reference(list(Phase::kStep).schedule));
  CHECK(input.num_terms > 0);
  stats = {};
  set_scalar("loss_scale", 1.0 / double(input.num_terms));
  for (int64_t m = 0; m < n; ++m) {
    execute(lists.at(Phase::kEvaluate), [&](int64_t) { feed(tokens, m); });
    after(m);
  }
}

// --- the class

Engine::Engine(const Plan& plan, Device& device, Communicator& communicator, EngineOptions options)
    : Engine(plan, compile_expanded(plan, Phase::kStep, coordinates(plan.mesh, communicator.rank()).pp), device, communicator,
             options) {}

Engine::Engine(const Plan& plan, Schedule step, Device& device, Communicator& communicator, EngineOptions options) {
  const c10::InferenceMode guard;
  state_ = std::make_unique<State>(plan, std::move(step), device, communicator, options);
}
Engine::~Engine() = default;

std::span<float> Engine::checkpoint_copy() { return state_->host_shards->checkpoint_copy(state_->plan.checkpoint.async); }
std::span<float> Engine::master() { return state_->host_shards->of("master"); }
std::vector<StateValues> Engine::optimizer_states() { return state_->host_shards->optimizer_states(); }
std::span<const float> Engine::gradient() const { return state_->host_shards->of("gradient"); }
const Layout& Engine::layout() const { return state_->layout(); }
Coordinates Engine::place() const { return state_->place; }
bool Engine::writes_checkpoint() const { return group_index(layout().mesh, layout().replica_group, place()) == 0; }
int64_t Engine::steps_done() const { return state_->steps_done; }
void Engine::set_steps_done(int64_t steps, int64_t skipped) {
  state_->steps_done = steps;
  state_->steps_skipped = skipped;
}
const Schedule& Engine::schedule(Phase phase) const { return state_->list(phase).schedule; }

StoreFrozen Engine::frozen_store() {
  return frozen_store_of(*state_->memory, state_->device, layout(), state_->list(Phase::kStep).schedule.compute);
}

void Engine::initialize_parameters() {
  initialize_frozen(layout(), place(), uint64_t(state_->plan.train.seed), FrozenPart::kAll, frozen_store());
  initialize_trained();
}

void Engine::initialize_trained() {
  initialize_shard(layout(), place(), uint64_t(state_->plan.train.seed), master());
  for (const StateValues& s : optimizer_states()) std::fill(s.values.begin(), s.values.end(), 0.0f);
  set_steps_done(0);
}

void Engine::load() {
  state_->stats = {};
  state_->host_shards->upload();
  state_->execute(state_->lists.at(Phase::kLoad), [](int64_t) {});
}

StepStats Engine::step(const StepInput& input) {
  State& s = *state_;
  const Tokens tokens = {input.ids, input.targets, input.positions, input.reference_logps};
  check_tokens(tokens, s.plan.gradient_accumulation, s.context, is_given_reference(s.list(Phase::kStep).schedule));
  CHECK(input.num_terms > 0);
  const double begin_s = now_s();
  s.stats = {};
  s.is_decided = false;
  s.rate = input.learning_rate;
  s.host_shards->forget();
  s.set_scalar("loss_scale", 1.0 / double(input.num_terms));
  if (s.is_profiled()) s.profile = std::make_unique<Profile>(s.device);
  s.execute(s.lists.at(Phase::kStep), [&](int64_t m) { s.feed(tokens, m); });
  if (s.is_metering()) --s.meter.steps_left;
  ++s.steps_done;
  s.stats.seconds = now_s() - begin_s;
  return std::move(s.stats);
}

double Engine::evaluate(const EvaluateInput& input) {
  const c10::InferenceMode guard;  // on a device that is late, waiting for the loss runs what is left
  State& s = *state_;
  double loss = 0;
  s.evaluate(input, [&](int64_t) { loss += s.scalar("loss"); });
  return loss;
}

std::vector<float> Engine::sequence_logps(const EvaluateInput& input) {
  const c10::InferenceMode guard;
  State& s = *state_;
  const int64_t num_sequences = int64_t(input.ids.size()) / (s.context.cp * s.context.S), each = s.context.B;
  const std::vector<float> zeros(size_t(num_sequences), 0.0f);
  std::vector<float> logps = zeros;
  s.evaluate({input.ids, input.targets, input.num_terms, zeros}, [&](int64_t m) {
    if (s.place.pp + 1 == s.plan.mesh.pp) s.device.copy_to_host(logps.data() + m * each, s.memory->run("policy_logps"), each * 4);
  });
  return logps;
}

MemoryReport Engine::memory() const { return memory_report(schedule(Phase::kStep), *state_->memory, state_->meter); }

}  // namespace distsetup
