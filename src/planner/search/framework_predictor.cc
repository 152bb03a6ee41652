#include "planner/search/framework_predictor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/quantity.h"
#include "model/count.h"
#include "model/dtype.h"
#include "planner/frameworks/memory.h"
#include "planner/frameworks/state_bytes.h"
#include "planner/report/need.h"
#include "planner/report/uncertainty.h"
#include "planner/resolve/hardware_facts.h"
#include "planner/search/framework_setup.h"
#include "planner/time/constants.h"
#include "planner/time/embedded_calibration.h"
#include "planner/time/step.h"

namespace distsetup {
namespace {

// "states: 16 B per parameter (parameter 2, gradient 2, optimizer 12) × 8,030,261,248: at least 14.0 GiB per GPU here".
std::string states_reason(const Setup& s) {
  const int64_t parameters = count_parameters(s.model).total;
  if (s.finetune != Finetune::kFull)
    return fmt::format("states: {} frozen parameters at {:.3g} B and adapters of rank {}", format_count(parameters),
                       bytes_of(s.frozen_dtype), s.lora.rank);
  const StateBytes b = state_bytes(s);
  return fmt::format(
      "states: {:.4g} B per parameter (parameter {:.3g}, gradient {:.3g}, optimizer {:.4g}) × {}: at least {} per GPU here",
      b.parameter + b.gradient + b.optimizer, b.parameter, b.gradient, b.optimizer, format_count(parameters),
      format_bytes(bound_bytes(s)));
}

MemoryPlan memory_plan(const Setup& s, const MemoryNeed& need, const Candidate& c, int64_t capacity_bytes) {
  const MemoryEstimate& m = need.memory;
  MemoryPlan out;
  out.peak_allocated_bytes = m.allocated_bytes;
  out.peak_reserved_bytes = m.reserved_bytes > 0 ? m.reserved_bytes : m.allocated_bytes;
  out.device_bytes = need.bytes;
  out.unconstrained_device_bytes = m.device_bytes;
  out.capacity_bytes = capacity_bytes;
  out.fit_probability = c.fit_probability;
  out.live_bytes = m.allocated_bytes;
  out.peak_instruction = m.peak_phase;
  out.terms = m.terms;
  out.by_phase = m.by_phase;
  out.by_rank_class = {{c.choice.pp > 1 ? "fullest stage" : "all ranks", need.bytes, 0}};
  out.host_bytes_per_node = m.host_bytes_per_node;
  out.checkpoint_bytes = m.checkpoint_bytes;
  const auto needed = static_cast<double>(need.bytes);
  const Interval device = interval_90(needed, need_spread(s, needed, embedded_calibration()));
  out.device_low_bytes = static_cast<int64_t>(device.low);
  out.device_high_bytes = static_cast<int64_t>(device.high);
  if (m.device_bytes <= need.bytes) return out;
  const Interval taken = taken_interval(s, m, device, embedded_calibration());
  out.unconstrained_low_bytes = static_cast<int64_t>(taken.low);
  out.unconstrained_high_bytes = static_cast<int64_t>(taken.high);
  return out;
}

// An estimate's shares are of the 16-bit peak, whatever computes; a plan's of the peak that it names.
double share_of_named_peak(const Setup& s, double named) {
  const bool half = s.compute == Dtype::kF16 || s.gpu.peak_bf16_flops_per_s <= 0;
  const double of_16_bits = half ? s.gpu.peak_fp16_flops_per_s : s.gpu.peak_bf16_flops_per_s;
  return named > 0 && of_16_bits > 0 ? of_16_bits / named : 1;
}

TimePlan time_plan(const Setup& s, const TimeEstimate& e, double named_peak) {
  TimePlan time;
  time.step_s = e.step_s;
  time.tokens_per_s_per_gpu = e.tokens_per_s_per_gpu;
  time.tokens_per_s = e.tokens_per_s_per_gpu * s.world();
  const double share = share_of_named_peak(s, named_peak);
  time.mfu = e.mfu * share;
  const Interval speed = interval_of(s, Predicted::kTokensPerSecond, e.tokens_per_s_per_gpu, 0.9);
  time.step_low_s = e.step_s * e.tokens_per_s_per_gpu / std::max(speed.high, 1e-12);
  time.step_high_s = e.step_s * e.tokens_per_s_per_gpu / std::max(speed.low, 1e-12);
  time.hfu = e.hfu * share;
  for (const auto& [what, seconds] : {std::pair{"Gemm", e.gemm_s},
                                      {"Attention", e.attention_s},
                                      {"Elementwise", e.elementwise_s},
                                      {"Loss", e.loss_s},
                                      {"Recompute", e.recompute_s},
                                      {"Communication", e.communication_exposed_s},
                                      {"PipelineBubble", e.bubble_s},
                                      {"OptimizerStep", e.optimizer_s},
                                      {"Offload", e.offload_exposed_s},
                                      {"Launch", e.launch_s}}) {
    if (seconds > 0) time.by_instruction.push_back({what, seconds});
  }
  return time;
}

class FrameworkPredictor final : public Predictor {
 public:
  explicit FrameworkPredictor(const Problem& problem) : p_(problem) {
    rules_.structure_tie = kStructureTie;
    rules_.hybrid_is_an_axis = true;
  }

  void start(int nodes) override {
    setup_ = base_setup(p_, nodes);
    constants_.clear();
    known_.clear();
    lent_host_bytes_ = 0;
    counts_ = {};
  }

  void bound(Candidate& c) override {
    distsetup::apply(p_, c.choice, setup_);
    c.device_bytes = bound_bytes(setup_) + p_.base.hardware.context_bytes;
    c.fit_probability = c.device_bytes > capacity() ? 0 : 1;
    c.verdict = verdict_of(c.fit_probability);
    ++counts_.legal;
    counts_.bounded_out += c.verdict == Verdict::kDoesNotFit;
  }

  void time(Candidate& c) override {
    const TimeEstimate e = estimate(c.choice);
    c.step_s = e.step_s;
    c.tokens_per_s_per_gpu = e.tokens_per_s_per_gpu;
    c.s_per_token = 1 / e.tokens_per_s_per_gpu;
    c.timed = true;
    ++counts_.timed;
  }

  // Simulated bytes, and the best verdict that they leave.
  void simulate(Candidate& c) override {
    const Known& known = simulated(c.choice);
    const int64_t allocated = known.simulated->allocated_bytes;
    c.simulated = true;
    c.device_bytes = c.tie_bytes = std::max(c.device_bytes, allocated + p_.base.hardware.context_bytes);
    judge(c, *known.simulated, known.at_best);  // the replay says more
  }

  void finish(Candidate& c) override {
    if (c.verdict == Verdict::kDoesNotFit) return;  // no replay makes it smaller
    const Known& known = replayed(c.choice);
    c.finished = true;
    c.device_bytes = c.tie_bytes = known.need->bytes;
    judge(c, known.need->memory, known.probability);
  }

  void lend_host(int64_t bytes) override { lent_host_bytes_ = bytes; }

  bool fits_amply(const Candidate&) const override { return false; }
  bool grows_with_micro_batch(const Choice&) const override { return true; }
  MemoryKey key(const Choice& c) const override { return memory_key(p_, c); }
  SearchCounts counts(const std::vector<Candidate>&) const override { return counts_; }

  Plan plan(const Candidate& c) override {
    Plan plan = plan_of(p_, setup_.nodes, c.choice);
    plan.hardware.rates = {};  // of the bundled trainer
    const Known& known = replayed(c.choice);
    const TimeEstimate e = estimate(c.choice);
    plan.memory = memory_plan(setup_, *known.need, c, plan.hardware.memory_bytes);
    plan.memory.fit_probability = missing_host_bytes(known.need->memory) > 0 ? 0 : known.probability;
    plan.time = time_plan(setup_, e, plan.hardware.peak_flops_per_s);
    plan.verdict = verdict_of(plan.memory.fit_probability);
    return plan;
  }

  void explain(const Candidate& c, const SearchCounts& n, const std::optional<TooFewNodes>& too_few, Plan& plan) override {
    distsetup::apply(p_, c.choice, setup_);
    plan.reasons.push_back(states_reason(setup_));
    plan.reasons.push_back(fmt::format("searched {} combinations: {} ruled out by their states, {} timed, {} simulated, {} replayed",
                                       format_count(n.legal), format_count(n.bounded_out), format_count(n.timed),
                                       format_count(n.simulated), format_count(n.finished)));
    for (std::string& reason : distance_reasons(setup_)) plan.reasons.push_back(std::move(reason));
    if (too_few.has_value()) plan.reasons.push_back(too_few_words(too_few->nodes));
    if (c.verdict == Verdict::kDoesNotFit) {
      const bool host_alone = c.missing_host_bytes > 0 && c.device_bytes <= capacity();
      plan.reasons.emplace_back(host_alone ? kHostMissesByLeast : kMissesByLeast);
    }
    plan.diagnostics.push_back(note("DS0604", {}, fmt::format("planned for {}{}", p_.trainer.label, why_this_trainer())));
  }

 private:
  // What choices with one key share.
  struct Known {
    std::shared_ptr<const MemoryEstimate> simulated;
    std::shared_ptr<const MemoryNeed> need;
    // That it fits on the GPUs: if it needs no more than what was simulated; by its need.
    double at_best = 0, probability = 0;
  };

  std::string why_this_trainer() const {
    if (!p_.chosen_for.empty())
      return fmt::format(", which target {} is for; --trainer native plans for the bundled one", p_.chosen_for);
    if (p_.trainer.name == kUnknownProgram)
      return ": --trainer NAME plans for the trainer that it is like, --program NAME with its layers (distsetup list programs)";
    return p_.stands_in.empty() ? ": the bundled trainer does not run this plan" : ", " + p_.stands_in;
  }

  int64_t capacity() const { return p_.base.hardware.memory_bytes; }

  int64_t missing_host_bytes(const MemoryEstimate& memory) const {
    const HardwarePlan& hardware = p_.base.hardware;
    return hardware.host_memory_bytes <= 0 ? 0 : std::max<int64_t>(0, memory.host_bytes_per_node - usable_host_bytes(hardware));
  }

  void judge(Candidate& c, const MemoryEstimate& memory, double on_device) const {
    c.missing_host_bytes = missing_host_bytes(memory);
    c.fit_probability = c.missing_host_bytes > lent_host_bytes_ ? 0 : on_device;
    c.verdict = verdict_of(c.fit_probability);
  }

  const Known& simulated(const Choice& choice) {
    Known& known = known_[key(choice)];
    if (known.simulated != nullptr) return known;
    distsetup::apply(p_, choice, setup_);
    known.simulated = std::make_shared<const MemoryEstimate>(simulate_memory(setup_));
    known.at_best = fit_probability(setup_, static_cast<double>(known.simulated->allocated_bytes + setup_.gpu.context_bytes));
    ++counts_.simulated;
    return known;
  }

  const Known& replayed(const Choice& choice) {
    simulated(choice);
    Known& known = known_[key(choice)];
    if (known.need != nullptr) return known;
    distsetup::apply(p_, choice, setup_);
    MemoryNeed need = replay_need(setup_);
    // Near the peak the replay may see less than the simulation of all phases.
    need.bytes = std::max(need.bytes, known.simulated->allocated_bytes + setup_.gpu.context_bytes);
    need.memory.device_bytes = std::max(need.memory.device_bytes, need.bytes);
    known.probability = std::min(known.at_best, fit_probability(setup_, static_cast<double>(need.bytes)));
    known.need = std::make_shared<const MemoryNeed>(std::move(need));
    ++counts_.finished;
    return known;
  }

  TimeEstimate estimate(const Choice& choice) {
    distsetup::apply(p_, choice, setup_);
    const std::pair depends_on(choice.sharding, choice.tp > 1);
    auto found = constants_.find(depends_on);
    if (found == constants_.end()) found = constants_.emplace(depends_on, time_constants(setup_, embedded_calibration())).first;
    return estimate_time(setup_, found->second);
  }

  const Problem& p_;
  Setup setup_;  // the problem's; a choice is applied to it when it is looked at
  // By sharding, and whether tensor-parallel ranks split a layer: what else they depend on is no choice.
  std::map<std::pair<Sharding, bool>, TimeConstants> constants_;
  std::map<MemoryKey, Known> known_;
  int64_t lent_host_bytes_ = 0;
  SearchCounts counts_;
};

}  // namespace

std::unique_ptr<Predictor> framework_predictor(const Problem& problem) { return std::make_unique<FrameworkPredictor>(problem); }

// No model but Megatron's tells methods of context parallelism apart.
MemoryKey memory_key(const Problem& p, const Choice& choice) {
  if (p.setup.traits().memory_reads_schedule) return memory_key(choice);
  Choice c = choice;
  c.cp_method = CpMethod::kRing;
  // Whether there is a second micro-batch, and how many a pipeline has in flight.
  if (p.setup.sample_lengths.mean <= 0 && c.gradient_accumulation > 1)
    c.gradient_accumulation = std::clamp<int64_t>(c.gradient_accumulation, 2, std::max(2, c.pp * (c.virtual_stages > 1 ? 3 : 1)));
  return memory_key(c);
}

}  // namespace distsetup
