#include "runtime/engine/engine.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "plan/expand.h"
#include "runtime/engine/engine_state.h"
#include "runtime/engine/frozen_shards.h"
#include "runtime/engine/memory_report.h"
#include "runtime/optim/initialize.h"

namespace distsetup {

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
bool Engine::writes_checkpoint() const {
  // With ddp the ranks that share experts are replicas of all else.
  const Group copies = layout().mesh.ep > 1 ? Group::kDpReplicate : layout().replica_group;
  return group_index(layout().mesh, copies, place()) == 0;
}
int64_t Engine::steps_done() const { return state_->steps_done; }
void Engine::set_steps_done(int64_t steps, int64_t skipped) {
  state_->steps_done = steps;
  state_->steps_skipped = skipped;
}
const std::optional<LossScaleState>& Engine::loss_scale() const { return state_->loss_scale; }
void Engine::set_loss_scale(const LossScaleState& state) {
  if (state_->loss_scale && state_->plan.precision.loss_scale.fixed == 0) state_->loss_scale = state;
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
  initialize_shard(layout(), place(), uint64_t(state_->plan.train.seed), state_->host_shards->unread("master"));
  state_->host_shards->clear_states();
  set_steps_done(0);
}

void Engine::load() {
  state_->stats = {};
  state_->host_shards->upload();
  state_->execute(state_->lists.at(Phase::kLoad), [](int64_t) {});
}

StepStats Engine::step(const StepInput& input) {
  State& s = *state_;
  const Tokens tokens = s.tokens_of(input.ids, input.targets, input.positions, input.reference_logps, s.plan.gradient_accumulation);
  CHECK(input.num_terms > 0);
  const double begin_s = now_s();
  s.stats = {};
  s.is_decided = false;
  s.rate = input.learning_rate;
  s.host_shards->forget();
  s.set_loss_terms(input.num_terms, s.scale(), router_share(s.plan));
  if (s.is_profiled()) s.profile = std::make_unique<Profile>(s.device);
  s.execute(s.lists.at(Phase::kStep), [&](int64_t m) { s.feed(tokens, m); });
  if (s.is_metering()) --s.meter.steps_left;
  ++s.steps_done;
  ++s.steps_here;
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

int64_t Engine::peak_bytes() const { return metered_peak_bytes(state_->meter); }
MemoryReport Engine::memory() const { return memory_report(schedule(Phase::kStep), *state_->memory, state_->meter); }

}  // namespace distsetup
