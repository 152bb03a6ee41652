// Which combinations are legal for a trainer, and a combination as the Setup that models take and the Plan that is printed.
#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "model/parallel_rules.h"
#include "planner/frameworks/memory.h"
#include "planner/frameworks/validate.h"
#include "planner/report/uncertainty.h"
#include "planner/resolve/releases.h"
#include "planner/search/trainer_search.h"
#include "planner/time/step.h"

namespace distsetup {
namespace {

class Space {
 public:
  Space(const Problem& problem, int nodes) : p_(problem), t_(*problem.trainer), g_(problem.base.model), nodes_(nodes) {}

  std::vector<TrainerChoice> run() {
    const int per_node = p_.base.hardware.gpus_per_node, world = nodes_ * per_node;
    for (const int64_t tp : divisors(world)) {
      if (!wanted(tp, t_.tp) || tp > per_node || !splits_heads(tp)) continue;
      for (const int64_t pp : divisors(world / tp)) {
        if (!wanted(pp, t_.pp) || pp > g_.num_layers) continue;
        for (const int64_t stages : virtual_stages(pp)) {
          for (const int64_t cp : divisors(world / tp / pp)) {
            if (!wanted(cp, t_.cp) || !splits_sequence(cp)) continue;
            TrainerChoice c;
            c.tp = static_cast<int>(tp), c.pp = static_cast<int>(pp), c.cp = static_cast<int>(cp);
            c.virtual_stages = static_cast<int>(stages);
            experts(c, static_cast<int>(world / tp / pp / cp));
          }
        }
      }
    }
    return std::move(out_);
  }

 private:
  static bool wanted(int64_t value, int pin) { return pin == 0 || value == pin; }

  bool splits_heads(int64_t tp) const {
    const bool latent = g_.attention == Attention::kLatent;
    return g_.num_heads % tp == 0 && (latent || g_.num_kv_heads % tp == 0) && g_.feed_forward % tp == 0;
  }

  // Stages need not hold equally many layers (torchtitan; Megatron-Core's --pipeline-model-parallel-layout).
  std::vector<int64_t> virtual_stages(int64_t pp) const {
    if (pp == 1) return t_.virtual_stages > 1 ? std::vector<int64_t>{} : std::vector<int64_t>{1};
    std::vector<int64_t> stages;
    for (const int64_t v : divisors(std::max<int64_t>(g_.num_layers / pp, 1)))
      if (wanted(v, t_.virtual_stages)) stages.push_back(v);
    return stages;
  }

  bool splits_sequence(int64_t cp) const {
    if (cp == 1) return true;
    const int64_t length = p_.base.train.sequence_length;
    if (t_.cp_methods.empty() || length % (2 * cp) != 0) return false;
    return t_.cp > 0 || length / cp >= kFewestContextTokens;
  }

  void experts(TrainerChoice c, int dp) {
    // Experts may borrow the context and tensor ranks first, all of them; validate() checks the shards of each choice.
    const int64_t borrowed = t_.base.traits().experts_borrow_tensor_ranks ? int64_t{c.cp} * c.tp : 1;
    const int64_t ranks = int64_t{dp} * c.cp * (borrowed > 1 ? c.tp : 1);
    for (const int64_t ep : divisors(ranks)) {
      if (!wanted(ep, t_.ep) || (ep > 1 && (g_.num_experts % ep != 0 || ep % borrowed != 0))) continue;
      c.ep = static_cast<int>(ep);
      if (c.cp == 1) {
        data(c, dp);
        continue;
      }
      for (const CpMethod method : t_.cp_methods) {
        if (method == CpMethod::kUlysses && g_.num_kv_heads / c.tp % c.cp != 0) continue;
        c.cp_method = method;
        data(c, dp);
      }
    }
  }

  void data(TrainerChoice c, int dp) {
    const int64_t sequences = sequences_per_step(p_, dp);
    if (sequences == 0 || sequences < dp) return;
    const int64_t per_rank = sequences / dp;
    for (const Sharding sharding : p_.shardings) {
      if (std::find(t_.facts.shardings.begin(), t_.facts.shardings.end(), sharding) == t_.facts.shardings.end()) continue;
      if (int64_t{dp} * c.cp == 1 && p_.shardings.size() > 1 && sharding != first_sharding()) continue;  // nothing to split with
      for (const int shard : shard_sizes(sharding, dp)) {
        for (const int reshard : reshards(sharding)) {
          for (const int hpz : second_copies(sharding, shard * c.cp)) {
            c.hpz = hpz;
            for (const int64_t micro : divisors(per_rank)) {
              if (!batch(c, micro, per_rank)) continue;
              for (const Recompute recompute : p_.recomputes) {
                if (!t_.facts.recomputes.contains(recompute)) continue;
                c.rest = {sharding, reshard != 0, dp / shard, shard, micro, per_rank / micro, recompute};
                out_.push_back(c);
              }
            }
          }
        }
      }
    }
  }

  // Of those that the trainer has.
  Sharding first_sharding() const {
    const std::vector<Sharding>& known = t_.facts.shardings;
    return *std::find_if(p_.shardings.begin(), p_.shardings.end(),
                         [&](Sharding s) { return std::find(known.begin(), known.end(), s) != known.end(); });
  }

  bool batch(const TrainerChoice& c, int64_t micro, int64_t per_rank) const {
    if (p_.micro_batch > 0 && micro != p_.micro_batch) return false;
    const int64_t accumulation = per_rank / micro;
    if (p_.gradient_accumulation > 0 && accumulation != p_.gradient_accumulation) return false;
    const double length = static_cast<double>(p_.base.train.sequence_length);
    if (micro > 1 && p_.micro_batch == 0 && static_cast<double>(micro) * length * length > kMostPairs) return false;
    // A pipeline fills with one micro-batch per stage; interleaving deals them out in rounds of pp.
    if (c.pp > 1 && p_.gradient_accumulation == 0 && accumulation < c.pp) return false;
    return c.virtual_stages == 1 || accumulation % c.pp == 0;
  }

  // ZeRO++'s second copy of the parameters (arXiv 2306.10209, section 3.2): of a node, where the first is on several.
  std::vector<int> second_copies(Sharding sharding, int shards) const {
    const bool can = sharding == Sharding::kZero3 && t_.facts.has("hpz");
    if (t_.hpz > 0) {
      const bool fits = t_.hpz == 1 || (can && t_.hpz <= shards && shards % t_.hpz == 0);
      return fits ? std::vector<int>{t_.hpz} : std::vector<int>{};
    }
    const int per_node = p_.base.hardware.gpus_per_node;
    const bool over_nodes = can && per_node > 1 && shards > per_node && shards % per_node == 0;
    return over_nodes ? std::vector<int>{1, per_node} : std::vector<int>{1};
  }

  std::vector<int> reshards(Sharding sharding) const {
    if (sharding != Sharding::kZero3) return {sharding == Sharding::kZero2 && t_.base.traits().zero2_is_unresharded_zero3 ? 0 : 1};
    // FSDP2 without resharding is its zero2.
    const bool has_zero2 =
        std::find(t_.facts.shardings.begin(), t_.facts.shardings.end(), Sharding::kZero2) != t_.facts.shardings.end();
    if (has_zero2) return p_.reshard_after_forward == std::vector<int>{0} ? std::vector<int>{0} : std::vector<int>{1};
    return {1};
  }

  std::vector<int> shard_sizes(Sharding sharding, int dp) const {
    if (sharding == Sharding::kDdp) {
      const bool other = p_.dp_shard > 1 || (p_.dp_replicate > 0 && p_.dp_replicate != dp);
      return other ? std::vector<int>{} : std::vector<int>{1};
    }
    std::vector<int> sizes;
    const int per_node = p_.base.hardware.gpus_per_node;
    for (const int64_t d : divisors(dp)) {
      const int shard = static_cast<int>(d);
      if (p_.dp_shard > 0 && shard != p_.dp_shard) continue;
      if (p_.dp_replicate > 0 && dp / shard != p_.dp_replicate) continue;
      if (p_.dp_shard == 0 && p_.dp_replicate == 0) {
        if (shard != dp && (!t_.facts.has("hybrid") || shard == 1)) continue;
        if (per_node % shard != 0 && shard % per_node != 0) continue;
      }
      sizes.push_back(shard);
    }
    return sizes;
  }

  const Problem& p_;
  const TrainerProblem& t_;
  const Geometry& g_;
  const int nodes_;
  std::vector<TrainerChoice> out_;
};

// What the framework itself refuses leaves the space; returned is what it says to the first of them.
Diagnostics drop_refused(const Problem& p, int nodes, std::vector<TrainerChoice>& choices) {
  if (choices.empty()) return {};
  Diagnostics first;
  Setup setup = base_setup(p, nodes);
  std::erase_if(choices, [&](const TrainerChoice& choice) {
    apply(p, choice, setup);
    Diagnostics said = validate(setup);
    if (!has_error(said)) return false;
    if (first.empty()) first = std::move(said);
    return true;
  });
  for (Diagnostic& d : first) d.location = p.parallel_at;
  return first;
}

std::string_view method_name(CpMethod m) {
  return m == CpMethod::kRing ? "ring" : m == CpMethod::kAllGather ? "allgather" : "ulysses";
}

}  // namespace

std::vector<TrainerChoice> legal_trainer_choices(const Problem& p, int nodes, Diagnostics* why) {
  std::vector<TrainerChoice> choices = Space(p, nodes).run();
  Diagnostics refused = drop_refused(p, nodes, choices);
  if (!choices.empty() || why == nullptr) return choices;
  if (!refused.empty()) {
    append(*why, std::move(refused));
    return choices;
  }
  const TrainerProblem& t = *p.trainer;
  ParallelSizes sizes;
  sizes.world = int64_t{nodes} * p.base.hardware.gpus_per_node;
  sizes.gpus_per_node = p.base.hardware.gpus_per_node;
  sizes.tp = std::max(t.tp, 1), sizes.pp = std::max(t.pp, 1), sizes.cp = std::max(t.cp, 1), sizes.ep = std::max(t.ep, 1);
  sizes.sequence_length = p.base.train.sequence_length;
  sizes.micro_batch = std::max<int64_t>(p.micro_batch, 1);
  sizes.global_batch = p.global_batch;
  sizes.accumulation = p.gradient_accumulation;
  sizes.vocabulary_padded = true;
  for (Diagnostic& d : check_parallel(p.base.model, sizes, p.parallel_at))
    if (d.severity == Severity::kError) why->push_back(std::move(d));
  if (why->empty())
    why->push_back(
        error(code::kMeshInvalid, p.parallel_at,
              fmt::format("no mesh of {} GPUs and no batch fits what is pinned (tp {}, pp {}, cp {}, ep {}, hpz {}, micro-batch {}; "
                          "0 = free)",
                          sizes.world, t.tp, t.pp, t.cp, t.ep, t.hpz, p.micro_batch),
              "leave one of them out"));
  return choices;
}

Setup base_setup(const Problem& p, int nodes) {
  const TrainerProblem& t = *p.trainer;
  Setup s = t.base;
  const HardwarePlan& h = p.base.hardware;
  const auto gpu = t.gpus.find(h.gpu);
  if (gpu != t.gpus.end()) s.gpu = gpu->second;
  s.gpu.usable_memory_bytes = h.memory_bytes;
  s.nodes = nodes;
  s.gpus_per_node = h.gpus_per_node;
  s.nic_kind = h.nic_kind;
  s.nic_bytes_per_s = h.nic_bytes_per_s;
  s.sequence_length = p.base.train.sequence_length;
  s.sequence_parallel = t.sequence_parallel;
  set_software(t, s);
  return s;
}

void set_software(const TrainerProblem& t, Setup& s) {
  if (t.facts.releases == nullptr) return;
  const LossHead chosen = s.loss;
  set_release(s, *t.facts.releases, t.facts.release_day);
  s.loss = chosen;
}

void apply(const Problem& p, const TrainerChoice& c, Setup& s) {
  s.tp = c.tp, s.pp = c.pp, s.cp = c.cp, s.ep = c.ep;
  s.virtual_stages = c.virtual_stages;
  s.hpz = c.hpz;
  s.cp_method = c.cp_method;
  s.sharding = c.rest.sharding;
  s.reshard_after_forward = c.rest.reshard_after_forward;
  s.dp_replicate = c.rest.dp_replicate;
  s.dp_shard = c.rest.dp_shard;
  s.micro_batch = c.rest.micro_batch;
  s.gradient_accumulation = c.rest.gradient_accumulation;
  s.recompute = p.trainer->facts.recomputes.at(c.rest.recompute);
  s.recompute_every_k = c.rest.recompute == Recompute::kEveryK ? p.recompute_every_k : 0;
}

Setup setup_of(const Problem& p, int nodes, const TrainerChoice& c) {
  Setup s = base_setup(p, nodes);
  apply(p, c, s);
  return s;
}

std::string summary(const TrainerChoice& c, int every_k) {
  std::string text(name(c.rest.sharding));
  if (c.rest.sharding != Sharding::kDdp && c.rest.dp_replicate > 1)
    text += fmt::format(" in {} × {}", c.rest.dp_replicate, c.rest.dp_shard);
  if (c.tp > 1) text += fmt::format(" · tp {}", c.tp);
  if (c.pp > 1) text += c.virtual_stages > 1 ? fmt::format(" · pp {} × {}", c.pp, c.virtual_stages) : fmt::format(" · pp {}", c.pp);
  if (c.cp > 1) text += fmt::format(" · cp {} {}", c.cp, method_name(c.cp_method));
  if (c.ep > 1) text += fmt::format(" · ep {}", c.ep);
  if (c.hpz > 1) text += fmt::format(" · hpZ {}", c.hpz);
  text += fmt::format(" · micro-batch {} · recompute {}", c.rest.micro_batch, name(c.rest.recompute));
  if (c.rest.recompute == Recompute::kEveryK) text += fmt::format(":{}", every_k);
  return text;
}

Plan plan_of(const Problem& p, int nodes, const TrainerCandidate& candidate) {
  const TrainerChoice& c = candidate.choice;
  Plan plan = p.base;
  plan.hardware.nodes = nodes;
  plan.hardware.rates = {};  // of the bundled trainer
  plan.mesh = {};
  plan.mesh.pp = c.pp, plan.mesh.cp = c.cp, plan.mesh.tp = c.tp, plan.mesh.ep = c.ep;
  plan.mesh.dp_replicate = c.rest.dp_replicate;
  plan.mesh.dp_shard = c.rest.dp_shard;
  plan.strategy.sharding = c.rest.sharding;
  plan.strategy.reshard_after_forward = c.rest.sharding != Sharding::kZero3 || c.rest.reshard_after_forward;
  plan.strategy.virtual_stages = c.virtual_stages;
  plan.strategy.hpz = c.hpz;
  plan.strategy.sequence_parallel = c.tp > 1 && p.trainer->sequence_parallel;
  plan.strategy.cp_method = method_name(c.cp_method);
  plan.micro_batch = c.rest.micro_batch;
  plan.gradient_accumulation = c.rest.gradient_accumulation;
  plan.train.global_batch = c.rest.micro_batch * c.rest.gradient_accumulation * c.rest.dp_replicate * c.rest.dp_shard;
  plan.recompute = {};
  plan.recompute.policy = c.rest.recompute;
  plan.recompute.every_k = c.rest.recompute == Recompute::kEveryK ? p.recompute_every_k : 0;

  const MemoryEstimate& m = candidate.memory;
  MemoryPlan& out = plan.memory;
  out.peak_allocated_bytes = m.allocated_bytes;
  out.peak_reserved_bytes = m.reserved_bytes > 0 ? m.reserved_bytes : m.allocated_bytes;
  out.device_bytes = candidate.device_bytes;
  out.capacity_bytes = plan.hardware.memory_bytes;
  out.live_bytes = m.allocated_bytes;
  out.peak_instruction = m.peak_phase;
  out.terms = m.terms;
  out.by_phase = m.by_phase;
  out.by_rank_class = {{c.pp > 1 ? "fullest stage" : "all ranks", candidate.device_bytes}};
  out.host_bytes_per_node = m.host_bytes_per_node;
  out.checkpoint_bytes = m.checkpoint_bytes;

  const Setup setup = setup_of(p, nodes, c);
  const auto bytes = [](double b) { return static_cast<int64_t>(b); };
  const Interval device = interval_of(setup, Predicted::kDevice, static_cast<double>(candidate.device_bytes), 0.9);
  out.device_low_bytes = bytes(device.low);
  out.device_high_bytes = bytes(device.high);

  const TimeEstimate& e = candidate.time;
  TimePlan& time = plan.time;
  time.step_s = e.step_s;
  time.tokens_per_s_per_gpu = e.tokens_per_s_per_gpu;
  time.tokens_per_s = e.tokens_per_s_per_gpu * plan.mesh.world();
  time.mfu = e.mfu;
  const Interval speed = interval_of(setup, Predicted::kTokensPerSecond, e.tokens_per_s_per_gpu, 0.9);
  time.step_low_s = e.step_s * e.tokens_per_s_per_gpu / std::max(speed.high, 1e-12);
  time.step_high_s = e.step_s * e.tokens_per_s_per_gpu / std::max(speed.low, 1e-12);
  time.hfu = e.hfu;
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
  plan.verdict = candidate.verdict;
  return plan;
}

}  // namespace distsetup
