#include "planner/search/space.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "model/parallel_rules.h"
#include "plan/chunked_loss.h"
#include "plan/context_parallel.h"
#include "plan/host_writer.h"
#include "plan/native_program.h"
#include "plan/optimizer.h"
#include "plan/pipeline_rules.h"
#include "plan/reference.h"
#include "plan/tuning.h"
#include "planner/search/framework_setup.h"
#include "planner/search/why_nothing.h"

namespace distsetup {
namespace {

template <class T>
bool contains(const std::vector<T>& list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

class Space {
 public:
  Space(const Problem& problem, int nodes) : p_(problem), g_(problem.base.model), traits_(problem.setup.traits()), nodes_(nodes) {}

  // More context-parallel ranks than are worth while are looked at where fewer leave nothing: a step of few sequences over many GPUs.
  std::vector<Choice> run() {
    search();
    takes_any_cp_ = out_.empty() && p_.cp == 0;
    if (takes_any_cp_) search();
    return std::move(out_);
  }

 private:
  void search() {
    const int per_node = p_.base.hardware.gpus_per_node, world = nodes_ * per_node;
    Choice c;
    for (const int tp : sizes(world, p_.tp, "tensor_parallel")) {
      if (tp > per_node || !uneven_over_tensor_ranks(g_, tp, copies_kv_heads(p_) ? KvHeads::kCopied : KvHeads::kSplit).empty() ||
          (tp > 1 && !bundled_splits({.tp = tp}, p_.tp)))
        continue;
      // Of Transformers' models it is the loader's (tp_plan), whom a file must tell: where it is asked for.
      if (tp > 1 && p_.tp == 0 && p_.setup.is_transformers_fsdp2()) continue;
      c.tp = tp;
      for (const int pp : sizes(world / tp, p_.pp, "pipeline_parallel")) {
        if (pp > g_.num_layers || !bundled_stages(pp)) continue;
        c.pp = pp;
        for (const int stages : virtual_stages(pp)) {
          c.virtual_stages = stages;
          for (const int cp : sizes(world / tp / pp, p_.cp, "context_parallel")) {
            // accelerate splits what the loop hands it (maybe_context_parallel), which no flag makes a loop do.
            if (cp > 1 && p_.cp == 0 && p_.setup.is_transformers_fsdp2()) continue;
            if (cp > 1 && !(splits_sequence(cp) && bundled_splits({.tp = tp, .cp = cp}, p_.cp))) continue;
            c.cp = cp;
            experts(c, world / tp / pp / cp);
          }
        }
      }
    }
  }

  // Whether the bundled trainer, if it is the one, may split programs so; `pin`: of the axis, 0 where it is free.
  bool bundled_splits(const ProgramSplit& split, int pin) const {
    if (!is_native(p_.base)) return true;
    if (split.tp > 1 && !keeps_elements(p_.base.train.optimizer)) return false;
    // Between processes on CPUs an exchange takes several times what the cost model says (tests/bench/README.md: tp 2 reaches less
    // than half the steps/s of zero3): there tp and cp are run where they are asked for, not proposed.
    if (pin == 0 && p_.base.hardware.accelerator == Accelerator::kCpu) return false;
    return !has_error(check_native(g_, split, tuning_of(p_.base.train)));
  }

  // What it has on the host, as far as the sharding matters.
  bool may_offload(Sharding sharding) const {
    if (p_.base.offload == OffloadPlan{}) return true;
    Plan split = p_.base;
    split.strategy.sharding = sharding;
    return offload_problem(split).message.empty();
  }

  bool bundled_stages(int pp) const {
    if (pp == 1 || !is_native(p_.base)) return true;
    if (p_.pp == 0 && p_.base.hardware.accelerator == Accelerator::kCpu) return false;  // as tp and cp
    // Beside a host, a reference, and experts that are not all trained, stages are run where they are asked for: bounds that leave
    // these out rule out little, and a search would take ten times as long.
    const bool bounds_say_little = p_.base.offload != OffloadPlan{} || runs_reference(p_.base.train) ||
                                   (g_.num_experts > 0 && !tuning_of(p_.base.train).trains_all());
    if (p_.pp == 0 && (bounds_say_little || !are_even(pp))) return false;
    return can_have_stages(g_);
  }

  // Do so many parts have as many layers each, or the first and the last one less, where the embedding and the head are? Others are
  // run where they are asked for: the fullest sets the pace, and as many ranks in fewer stages, or more, wait less.
  bool are_even(int64_t parts) const {
    const int64_t rest = g_.num_layers % parts;
    return rest == 0 || parts - rest <= 2;
  }

  // Whether the bundled trainer, if it is the one, may let ranks share experts beside these axes.
  bool bundled_shares_experts(const Choice& c, int ep) const {
    if (!is_native(p_.base)) return true;
    if (p_.ep == 0 && p_.base.hardware.accelerator == Accelerator::kCpu) return false;  // as tp and cp: run where it is asked for
    return keeps_elements(p_.base.train.optimizer) && !has_error(check_native(g_, {.tp = c.tp, .ep = ep}, tuning_of(p_.base.train))) &&
           !keeps_reference(p_.base.train);
  }

  static bool wanted(int64_t value, int64_t pin) { return pin == 0 || value == pin; }

  // Of an axis over some of `ranks`.
  std::vector<int> sizes(int64_t ranks, int pin, std::string_view feature) const {
    if (!p_.trainer.has(feature)) return wanted(1, pin) ? std::vector<int>{1} : std::vector<int>{};
    std::vector<int> found;
    for (const int64_t d : divisors(ranks))
      if (wanted(d, pin)) found.push_back(static_cast<int>(d));
    return found;
  }

  // Stages need not hold equally many layers (torchtitan; Megatron-Core's --pipeline-model-parallel-layout).
  std::vector<int> virtual_stages(int64_t pp) const {
    if (pp == 1) return p_.virtual_stages > 1 ? std::vector<int>{} : std::vector<int>{1};
    if (is_native(p_.base)) {
      if (p_.virtual_stages > 0) return {p_.virtual_stages};
      std::vector<int> found;
      for (const int chunks : {1, 2, 4})  // a stage waits for a fraction of the turns; each chunk more sends as much again
        if (chunks == 1 || (pp * chunks <= g_.num_layers && are_even(pp * chunks))) found.push_back(chunks);
      return found;
    }
    return sizes(std::max<int64_t>(g_.num_layers / pp, 1), p_.virtual_stages, "virtual_stages");
  }

  bool splits_sequence(int64_t cp) const {
    const int64_t length = p_.base.train.sequence_length;
    if (p_.cp_methods.empty() || length % (2 * cp) != 0) return false;
    // Where micro-batch and accumulation are given, ranks that split a sequence take samples from a step: the user's to say.
    const bool ranks_make_batch =
        p_.micro_batch > 0 && p_.gradient_accumulation > 0 && p_.global_batch == 0 && p_.global_batch_tokens == 0;
    return p_.cp > 0 || takes_any_cp_ || (length / cp >= kFewestContextTokens && (cp == 1 || !ranks_make_batch));
  }

  void experts(Choice c, int dp) {
    // Experts may borrow the context and tensor ranks first, all of them; the trainer's own rules check the shards of each choice.
    // The bundled trainer's are shared by any ranks in a row, tp fastest, as Megatron's are that keep their matrices whole.
    const int64_t borrowed = traits_.experts_borrow_tensor_ranks ? int64_t{c.cp} * c.tp : 1;
    const bool over_tensor_ranks = borrowed > 1 || traits_.expert_tensor_axis || is_native(p_.base);
    const int64_t ranks = int64_t{dp} * c.cp * (over_tensor_ranks ? c.tp : 1);
    for (const int ep : sizes(ranks, p_.ep, "expert_parallel")) {
      if (ep > 1 && (g_.num_experts == 0 || g_.num_experts % ep != 0 || ep % borrowed != 0)) continue;
      if (ep > 1 && !bundled_shares_experts(c, ep)) continue;
      c.ep = ep;
      if (c.cp == 1) {
        data(c, dp);
        continue;
      }
      for (const CpMethod method : p_.cp_methods) {
        if (method == CpMethod::kUlysses && g_.num_kv_heads / c.tp % c.cp != 0) continue;
        if (is_native(p_.base) && !shared_kernel_problem(p_.base, c.cp, method).empty()) continue;
        c.cp_method = method;
        data(c, dp);
      }
    }
  }

  void data(Choice c, int dp) {
    const int64_t sequences = sequences_per_step(p_, dp);
    if (sequences < dp) return;
    const int64_t per_rank = sequences / dp;
    const int64_t ranks = int64_t{dp} * c.cp * (is_native(p_.base) && g_.num_experts > 0 ? c.tp : 1);  // which split states
    for (const Sharding sharding : p_.shardings) {
      if (!contains(p_.trainer.shardings, sharding)) continue;
      if (is_native(p_.base) && !may_offload(sharding)) continue;
      if (ranks == 1 && p_.shardings.size() > 1 && !differs_alone(sharding)) continue;  // nothing to split with
      if (ranks == 1 && p_.shardings.size() == 1 && sharding != Sharding::kDdp && takes_free_axis(c)) continue;  // it was asked for
      c.sharding = sharding;
      for (const int shard : shard_sizes(sharding, dp, c)) {
        c.dp_shard = shard, c.dp_replicate = dp / shard;
        for (const int reshard : reshards(sharding)) {
          if (is_native(p_.base) && c.pp > 1 && reshard == 0) continue;  // gathered for every micro-batch
          c.reshard_after_forward = reshard != 0;
          for (const int hpz : second_copies(sharding, shard * c.cp)) {
            c.hpz = hpz;
            for (int64_t each = per_rank;; each = fewer(each)) {
              batches(c, each);
              if (fewer(each) == 0) break;
            }
          }
        }
      }
    }
  }

  bool takes_free_axis(const Choice& c) const {
    return (c.tp > 1 && p_.tp == 0) || (c.pp > 1 && p_.pp == 0) || (c.cp > 1 && p_.cp == 0);
  }

  // Where nobody asked for a batch, and the accumulation is given, the micro-batch says how many sequences a step has. 0: no fewer.
  int64_t fewer(int64_t per_rank) const {
    const int64_t accumulation = p_.gradient_accumulation;
    const bool is_open = p_.has_usual_batch && accumulation > 0 && p_.micro_batch == 0;
    return is_open ? per_rank / accumulation / 2 * accumulation : 0;
  }

  void batches(Choice c, int64_t per_rank) {
    for (const int64_t micro : divisors(per_rank)) {
      c.micro_batch = micro, c.gradient_accumulation = per_rank / micro;
      if (!is_batch(c) || !are_run(c)) continue;
      for (const Recompute recompute : p_.recomputes) {
        if (!p_.trainer.recomputes.contains(recompute)) continue;
        c.recompute = recompute;
        out_.push_back(c);
      }
    }
  }

  // Stages that nobody asked for: not every model and loss goes with them, as the trainer's own rules say.
  bool are_run(const Choice& c) {
    if (c.pp == 1 || p_.pp > 0 || !is_native(p_.base)) return true;
    const auto [it, fresh] = runs_stages_.try_emplace({c.tp, c.pp, c.virtual_stages, c.cp, c.ep, c.sharding}, false);
    if (fresh) it->second = !has_error(validate(plan_of(p_, nodes_, c)));
    return it->second;
  }

  // For a rank that shares its states with nobody: the first that the trainer has, or those that a host makes differ. DeepSpeed
  // offloads the optimizer from stage 1 on, with the gradients from stage 2 on, and what else it moves in stage 3
  // (SetupRules::stages_of_offload). FSDP2 copies a unit's parameters from the host and frees them after use on one rank too
  // (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, wait_for_unshard); FSDP1 takes NO_SHARD there (_init_utils.py,
  // _init_core_state).
  bool differs_alone(Sharding sharding) const {
    const OffloadPlan& o = p_.base.offload;
    const auto has = [&](Sharding s) { return contains(p_.shardings, s) && contains(p_.trainer.shardings, s); };
    const bool by_stages = traits_.zero_stages_of_offload && o.optimizer != OffloadPlace::kNone;
    const bool frees_units = o.parameters != OffloadPlace::kNone && !traits_.flat_parameters;
    const bool third_alone = by_stages && (o.optimizer == OffloadPlace::kNvme || o.optimizer_ratio < 1);
    if (!is_native(p_.base) && (frees_units || third_alone) && has(Sharding::kZero3)) return sharding == Sharding::kZero3;
    if (by_stages && has(Sharding::kZero2)) return sharding == Sharding::kZero1 || sharding == Sharding::kZero2;
    return sharding == *std::find_if(p_.shardings.begin(), p_.shardings.end(), has);
  }

  bool is_batch(const Choice& c) const {
    if (!wanted(c.micro_batch, p_.micro_batch) || !wanted(c.gradient_accumulation, p_.gradient_accumulation)) return false;
    const double length = static_cast<double>(p_.base.train.sequence_length);
    if (c.micro_batch > 1 && p_.micro_batch == 0 && static_cast<double>(c.micro_batch) * length * length > kMostPairs) return false;
    if (is_native(p_.base) && c.micro_batch * sequences_per_sample(p_.base) * p_.base.train.sequence_length / c.cp % c.tp != 0)
      return false;
    if (is_native(p_.base) && p_.base.strategy.loss_head == kChunkedLoss &&
        c.micro_batch * p_.base.train.sequence_length / c.cp < kLossChunks)
      return false;
    // A pipeline fills with one micro-batch per stage; interleaving deals them out in rounds of pp.
    if (c.pp > 1 && p_.gradient_accumulation == 0 && c.gradient_accumulation < c.pp) return false;
    return c.virtual_stages == 1 || c.gradient_accumulation % c.pp == 0;
  }

  // ZeRO++'s second copy of the parameters (arXiv 2306.10209, section 3.2): of a node, where the first is on several.
  std::vector<int> second_copies(Sharding sharding, int shards) const {
    const bool can = sharding == Sharding::kZero3 && p_.trainer.has("hpz");
    if (p_.hpz > 0) {
      const bool fits = p_.hpz == 1 || (can && p_.hpz <= shards && shards % p_.hpz == 0);
      return fits ? std::vector<int>{p_.hpz} : std::vector<int>{};
    }
    const int per_node = p_.base.hardware.gpus_per_node;
    const bool over_nodes = can && per_node > 1 && shards > per_node && shards % per_node == 0;
    return over_nodes ? std::vector<int>{1, per_node} : std::vector<int>{1};
  }

  // Whether parameters are freed after forward: searched where zero3 that keeps them is a plan of its own, else as it is pinned.
  std::vector<int> reshards(Sharding sharding) const {
    if (sharding == Sharding::kZero2 && traits_.zero2_is_unresharded_zero3) return {0};
    if (sharding != Sharding::kZero3) return {1};
    if (p_.trainer.has("gathered_zero3")) return p_.reshard_after_forward;
    return {p_.reshard_after_forward == std::vector<int>{0} ? 0 : 1};
  }

  // dp_shard: parts of a node, or whole nodes. 1 only where there is nothing to split with, where it is asked for, or where as many
  // copies are as there are ranks and the trainer does not call that ddp.
  std::vector<int> shard_sizes(Sharding sharding, int dp, const Choice& c) const {
    const bool shares_experts = is_native(p_.base) && g_.num_experts > 0 && (c.ep > 1 || c.tp > 1);
    if (sharding == Sharding::kDdp) {
      // The bundled trainer's ranks that share experts are those of dp_shard, cp and tp.
      const int shard = shares_experts ? c.ep / (c.cp * c.tp) : 1;
      const bool is_one = shard > 0 && dp % shard == 0 && (!shares_experts || shard * c.cp * c.tp == c.ep);
      return is_one && wanted(shard, p_.dp_shard) && wanted(dp / shard, p_.dp_replicate) ? std::vector<int>{shard}
                                                                                         : std::vector<int>{};
    }
    const int per_node = p_.base.hardware.gpus_per_node;
    const bool copies_pinned = p_.dp_replicate > 0, free = p_.dp_shard == 0 && !copies_pinned;
    const bool has_one = !p_.trainer.has("two_shards_at_least"), has_hybrid = p_.trainer.has("hybrid");
    std::vector<int> found;
    for (const int64_t d : divisors(dp)) {
      const int shard = static_cast<int>(d);
      if (!wanted(shard, p_.dp_shard) || !wanted(dp / shard, p_.dp_replicate)) continue;
      if (shares_experts && shard * c.cp * c.tp % c.ep != 0) continue;
      if (shard == 1 && dp > 1 && p_.dp_shard == 0 && (free || !has_one)) continue;
      if (free && shard != dp && !has_hybrid) continue;
      if (free && per_node % shard != 0 && shard % per_node != 0) continue;
      found.push_back(shard);
    }
    return found;
  }

  const Problem& p_;
  const Geometry& g_;
  const FrameworkTraits& traits_;
  const int nodes_;
  std::map<std::tuple<int, int, int, int, int, Sharding>, bool> runs_stages_;
  std::vector<Choice> out_;
  bool takes_any_cp_ = false;
};

}  // namespace

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> low, high;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d != n / d) high.push_back(n / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

int64_t sequences_wished(const Problem& p) {
  return p.global_batch > 0 ? p.global_batch : p.global_batch_tokens / (p.base.train.sequence_length * sequences_per_sample(p.base));
}

int64_t sequences_per_step(const Problem& p, int64_t ranks) {
  const int64_t micro = std::max<int64_t>(p.micro_batch, 1), accumulation = std::max<int64_t>(p.gradient_accumulation, 1);
  const int64_t unit = ranks * micro * accumulation;
  const bool settled = p.micro_batch > 0 && p.gradient_accumulation > 0;
  if (p.global_batch > 0) return p.global_batch % unit == 0 && (!settled || p.global_batch == unit) ? p.global_batch : 0;
  if (p.global_batch_tokens == 0) return unit;
  const int64_t times = std::max<int64_t>(1, (sequences_wished(p) + unit / 2) / unit);
  return settled && times != 1 ? 0 : times * unit;
}

bool more_ranks_than_sequences(const Problem& p, int nodes) {
  const int64_t wished = sequences_wished(p);
  return wished > 0 && int64_t{nodes} * p.base.hardware.gpus_per_node > wished;
}

std::vector<Choice> legal_choices(const Problem& p, int nodes, Diagnostics* why) {
  std::vector<Choice> choices = Space(p, nodes).run();
  Diagnostics refused = is_native(p.base) ? Diagnostics{} : drop_refused(p, nodes, choices);
  if (choices.empty() && why != nullptr) append(*why, refused.empty() ? why_nothing(p, nodes) : std::move(refused));
  return choices;
}

}  // namespace distsetup
