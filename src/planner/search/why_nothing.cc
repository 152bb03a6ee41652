#include "planner/search/why_nothing.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/diagnostic_codes.h"
#include "model/parallel_rules.h"
#include "plan/context_parallel.h"
#include "planner/search/choice.h"
#include "planner/search/framework_setup.h"
#include "planner/search/space.h"

namespace distsetup {
namespace {

Diagnostic indivisible_batch(const Problem& p, int64_t ranks) {
  const int64_t wished = sequences_wished(p);
  std::string text = fmt::format("global batch {} is not", wished);
  text += p.micro_batch > 0 ? fmt::format(" micro-batch {} ×", p.micro_batch) : " micro-batch ×";
  text += p.gradient_accumulation > 0 ? fmt::format(" accumulation {} ×", p.gradient_accumulation) : " accumulation ×";
  text += fmt::format(" {} data-parallel ranks", ranks);
  const int64_t unit = ranks * std::max<int64_t>(p.micro_batch, 1) * std::max<int64_t>(p.gradient_accumulation, 1);
  const bool settled = p.micro_batch > 0 && p.gradient_accumulation > 0;
  const int64_t near = settled ? unit : std::max<int64_t>(1, (wished + unit / 2) / unit) * unit;
  return error(code::kBatchIndivisible, p.batch_at, std::move(text), fmt::format("--global-batch {}", near));
}

bool has_further_axes(const TrainerFacts& trainer) {
  return trainer.has("tensor_parallel") || trainer.has("pipeline_parallel") || trainer.has("context_parallel") ||
         trainer.has("expert_parallel");
}

// The mesh that is pinned, the first of what else may be chosen, and one sample a rank where no batch is. {}: it is none of this
// world.
std::optional<Choice> pinned_choice(const Problem& p, int64_t world) {
  Choice c;
  c.tp = std::max(p.tp, 1), c.pp = std::max(p.pp, 1), c.cp = std::max(p.cp, 1), c.ep = std::max(p.ep, 1);
  c.virtual_stages = std::max(p.virtual_stages, 1);
  const int64_t others = int64_t{c.tp} * c.pp * c.cp, ranks = world / others;
  if (world % others != 0 || p.shardings.empty() || p.recomputes.empty()) return {};
  c.sharding = p.shardings.front();
  if (!p.cp_methods.empty()) c.cp_method = p.cp_methods.front();
  if (!p.reshard_after_forward.empty()) c.reshard_after_forward = p.reshard_after_forward.front() != 0;
  c.recompute = p.recomputes.front();
  const int64_t usual = c.sharding != Sharding::kDdp ? ranks : p.base.model.num_experts > 0 ? std::max(c.ep / (c.cp * c.tp), 1) : 1;
  const int64_t shard = p.dp_shard > 0 ? p.dp_shard : p.dp_replicate > 0 ? ranks / p.dp_replicate : usual;
  if (shard == 0 || ranks % shard != 0 || (p.dp_replicate > 0 && ranks / shard != p.dp_replicate)) return {};
  c.dp_shard = static_cast<int>(shard), c.dp_replicate = static_cast<int>(ranks / shard);
  c.micro_batch = std::max<int64_t>(p.micro_batch, 1);
  const int64_t each = sequences_wished(p) / (ranks * c.micro_batch);
  c.gradient_accumulation = p.gradient_accumulation > 0 ? p.gradient_accumulation : std::max<int64_t>(each, 1);
  return c;
}

// What the bundled trainer says of that mesh.
Diagnostics why_not_pinned(const Problem& p, int nodes, int64_t world) {
  const std::optional<Choice> c = pinned_choice(p, world);
  if (!c) return {};
  Diagnostics why = validate(plan_of(p, nodes, *c));
  std::erase_if(why, [](const Diagnostic& d) { return d.severity != Severity::kError; });
  for (Diagnostic& d : why)
    if (d.location == Location{}) d.location = p.parallel_at;
  if (why.empty() && c->dp_shard == 1 && c->dp_replicate > 1 && p.dp_shard == 0 && c->sharding != Sharding::kDdp)
    why.push_back(error(
        code::kMeshInvalid, p.parallel_at,
        fmt::format("dp_replicate {} leaves one rank to each copy, and {} splits over several", c->dp_replicate, name(c->sharding)),
        "--sharding ddp, or --dp-shard 1 for copies of which nothing is split"));
  return why;
}

}  // namespace

Diagnostics why_nothing(const Problem& p, int nodes) {
  const int64_t world = int64_t{nodes} * p.base.hardware.gpus_per_node;
  const int64_t others = int64_t{std::max(p.tp, 1)} * std::max(p.pp, 1) * std::max(p.cp, 1), ranks = world / others;
  const bool are_free = p.tp == 0 || p.pp == 0 || p.cp == 0;  // other axes may leave fewer data-parallel ranks
  const std::vector<int64_t> data_ranks = are_free ? divisors(ranks) : std::vector<int64_t>{ranks};
  const auto has_none = [&p](int64_t dp) { return sequences_per_step(p, dp) == 0; };
  if (world % others == 0 && std::all_of(data_ranks.begin(), data_ranks.end(), has_none)) return {indivisible_batch(p, ranks)};
  if (const std::string uncut = cut_problem(p.base.train.sequence_length, std::max(p.cp, 1)); is_native(p.base) && !uncut.empty())
    return {error(code::kMeshInvalid, p.parallel_at, uncut, "--cp 1, or another --sequence-length")};
  for (const CpMethod method : p.cp_methods) {
    const std::string problem = shared_kernel_problem(p.base, std::max(p.cp, 1), method);
    if (is_native(p.base) && !problem.empty() && p.cp_methods.size() == 1)
      return {error(code::kUnsupportedFeature, p.parallel_at, problem,
                    method == CpMethod::kRing      ? "--cp-method allgather, or ulysses"
                    : method == CpMethod::kUlysses ? "--cp-method allgather"
                                                   : "--precision bf16, or --cp-method ulysses")};
  }
  if (!has_further_axes(p.trainer)) {
    return {error(code::kMeshInvalid, p.parallel_at,
                  fmt::format("no mesh of {} ranks has dp_replicate {} and dp_shard {}", world, p.dp_replicate, p.dp_shard),
                  "leave dp_replicate and dp_shard out")};
  }
  if (p.virtual_stages > 1 && p.pp == 1)
    return {error(code::kMeshInvalid, p.parallel_at,
                  fmt::format("{} virtual stages are parts of a pipeline's stage, and pp is 1", p.virtual_stages),
                  "--virtual-stages 1, or --pp 2")};
  const int64_t layers = p.base.model.num_layers, parts = int64_t{p.pp} * p.virtual_stages;
  if (!is_native(p.base) && p.virtual_stages > 1 && p.pp > 1 && layers % parts != 0)
    return {error(code::kIndivisible, p.parallel_at,
                  fmt::format("{} layers do not divide by pp {} × {} virtual stages = {}", layers, p.pp, p.virtual_stages, parts),
                  "--virtual-stages 1, or sizes whose product divides the layers")};
  ParallelSizes sizes;
  sizes.world = world;
  sizes.gpus_per_node = p.base.hardware.gpus_per_node;
  sizes.tp = std::max(p.tp, 1), sizes.pp = std::max(p.pp, 1), sizes.cp = std::max(p.cp, 1), sizes.ep = std::max(p.ep, 1);
  sizes.experts_over_tensor_ranks =
      is_native(p.base) || p.setup.traits().expert_tensor_axis || p.setup.traits().experts_borrow_tensor_ranks;
  sizes.sequence_length = p.base.train.sequence_length;
  sizes.micro_batch = std::max<int64_t>(p.micro_batch, 1);
  if (!are_free) sizes.global_batch = p.global_batch;  // else there may be fewer data-parallel ranks than it is held against
  sizes.accumulation = p.gradient_accumulation;
  sizes.vocabulary_padded = true;
  sizes.kv_heads_copied = copies_kv_heads(p);
  Diagnostics why = check_parallel(p.base.model, sizes, p.parallel_at);
  std::erase_if(why, [](const Diagnostic& d) { return d.severity != Severity::kError; });
  if (!why.empty()) return why;
  if (is_native(p.base))
    for (const UnevenSplit& uneven : uneven_over_tensor_ranks(p.base.model, std::max(p.tp, 1), KvHeads::kSplit))
      return {error(code::kIndivisible, p.parallel_at,
                    fmt::format("tp {} does not divide the model's {} {}", p.tp, uneven.number, uneven.what), "--tp 1")};
  if (is_native(p.base))
    if (Diagnostics of_trainer = why_not_pinned(p, nodes, world); !of_trainer.empty()) return of_trainer;
  std::string pinned;
  const auto say = [&pinned](std::string_view what, int64_t size, int64_t least) {
    if (size >= least) pinned += fmt::format("{}{} {}", pinned.empty() ? "" : ", ", what, size);
  };
  for (const auto& [what, size] : {std::pair<std::string_view, int>{"tp", p.tp},
                                   {"pp", p.pp},
                                   {"virtual stages", p.virtual_stages},
                                   {"cp", p.cp},
                                   {"ep", p.ep},
                                   {"hpz", p.hpz},
                                   {"dp_shard", p.dp_shard},
                                   {"dp_replicate", p.dp_replicate}})
    say(what, size, 2);  // 1 is also what an axis is that the trainer lacks
  say("global batch", p.global_batch, 1);
  say("micro-batch", p.micro_batch, 1);
  say("accumulation", p.gradient_accumulation, 1);
  return {error(code::kMeshInvalid, p.parallel_at,
                pinned.empty() ? fmt::format("no mesh of {} GPUs fits the model and its batch", world)
                               : fmt::format("no mesh of {} GPUs fits what is pinned: {}", world, pinned),
                p.global_batch > 0 || pinned.empty() ? "give a larger --global-batch, or fewer GPUs"
                                                     : "leave one of them out, or give fewer GPUs")};
}

}  // namespace distsetup
