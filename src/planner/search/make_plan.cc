// From a Problem to a Plan with its reasons: the fewest nodes whose best plan fits, who lost and why, and what to change when nothing
// fits.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "model/count.h"
#include "plan/schedule.h"
#include "plan/schedule_text.h"
#include "planner/resolve/hardware_facts.h"
#include "planner/search/search.h"
#include "planner/search/trainer_search.h"
#include "planner/time/economics.h"

namespace distsetup {
namespace {

std::string short_by(int64_t device, int64_t capacity) { return fmt::format("does not fit by {}", format_bytes(device - capacity)); }

std::string sharding_name(const Choice& c) {
  std::string text(name(c.sharding));
  if (c.sharding == Sharding::kZero3 && !c.reshard_after_forward) text += " gathered";
  if (c.sharding != Sharding::kDdp && c.dp_replicate > 1) text += fmt::format(" in {} × {}", c.dp_replicate, c.dp_shard);
  return text;
}

std::string choice_name(const Choice& c, int every_k) {
  std::string text = sharding_name(c);
  text += fmt::format(" · micro-batch {} · recompute {}", c.micro_batch, name(c.recompute));
  if (c.recompute == Recompute::kEveryK) text += fmt::format(":{}", every_k);
  return text;
}

// The clause that decided against a plan that fits as well.
std::string why_slower(const Candidate& c, const Candidate& best, Goal goal) {
  const double ratio = c.time.tokens_per_s_per_gpu / best.time.tokens_per_s_per_gpu;
  if (goal == Goal::kMinMemory) {
    const int64_t more = c.device_bytes - best.device_bytes;
    return fmt::format("{:.2f}× tokens/s, {} memory", ratio, more > 0 ? format_bytes(more) + " more" : "as much");
  }
  if (ratio < 1 - kTimeTie || !preferred_among_ties(best, c)) return fmt::format("{:.2f}× tokens/s", ratio);
  const bool shards_more =
      c.choice.sharding != best.choice.sharding || c.choice.reshard_after_forward != best.choice.reshard_after_forward;
  return fmt::format("{:.2f}×, {}", ratio,
                     shards_more                                   ? "more sharding"
                     : c.choice.dp_shard != best.choice.dp_shard   ? "one mesh more"
                     : c.choice.recompute != best.choice.recompute ? "more recompute"
                                                                   : "more memory");
}

// Sharding, whether it is hybrid, and recompute: what a reader calls another plan.
std::tuple<int, bool, int> family(const Choice& c) {
  return {static_cast<int>(c.sharding), c.sharding != Sharding::kDdp && c.dp_replicate > 1, static_cast<int>(c.recompute)};
}

bool better_in_family(const Candidate& a, const Candidate& b, Goal goal) {
  const bool fits_a = a.verdict != Verdict::kDoesNotFit, fits_b = b.verdict != Verdict::kDoesNotFit;
  if (fits_a != fits_b) return fits_a;
  if (!fits_a || goal == Goal::kMinMemory) return a.device_bytes < b.device_bytes;
  if (a.verdict != b.verdict) return a.verdict == Verdict::kFits;
  return a.time.tokens_per_s_per_gpu > b.time.tokens_per_s_per_gpu;
}

void explain(Plan& plan, const Problem& problem, const std::optional<std::pair<int, int64_t>>& too_few) {
  const int64_t parameters = count_parameters(plan.model).total;
  const int shards = plan.mesh.dp_shard;
  plan.reasons.push_back(fmt::format("states: 16 B × {} parameters / {} = {} per {} (fp32 master 4, gradient 4, AdamW moments 8)",
                                     format_count(parameters), shards, format_bytes(16 * parameters / shards),
                                     rank_word(plan.hardware)));
  if (too_few.has_value()) {
    const auto& [nodes, device] = *too_few;
    plan.reasons.push_back(fmt::format("{} node{}: {} per {} of {}", nodes, nodes == 1 ? " is too few" : "s are too few",
                                       format_bytes(device), rank_word(plan.hardware), format_bytes(plan.memory.capacity_bytes)));
  }
  if (plan.mesh.dp_replicate > 1 && shards > 1)
    plan.reasons.push_back(fmt::format("mesh: {} copies of {} shards, so that gathers stay among {} {}s", plan.mesh.dp_replicate,
                                       shards, shards, rank_word(plan.hardware)));
  if (problem.global_batch > 0 || problem.global_batch_tokens == 0) return;
  const int64_t tokens = plan.train.global_batch * plan.train.sequence_length;
  if (tokens == problem.global_batch_tokens) return;
  plan.assumptions.push_back(fmt::format("{} tokens per step = {} sequences: the nearest to {} that {} {}s divide",
                                         format_count(tokens), plan.train.global_batch, format_count(problem.global_batch_tokens),
                                         plan.mesh.data_parallel(), rank_word(plan.hardware)));
}

void explain_search(Plan& plan, const std::vector<Candidate>& candidates) {
  const auto count = [&](bool Candidate::*done) {
    return std::count_if(candidates.begin(), candidates.end(), [done](const Candidate& c) { return c.*done; });
  };
  const auto num = static_cast<int64_t>(candidates.size()), simulated = count(&Candidate::simulated);
  plan.reasons.push_back(fmt::format("searched {} combinations: {} ruled out by bounds, {} simulated, {} packed to the byte",
                                     format_count(num), format_count(num - simulated), format_count(simulated),
                                     format_count(count(&Candidate::finished))));
  if (plan.verdict == Verdict::kDoesNotFit) plan.reasons.push_back("nothing fits: of all of them this one misses by least");
}

void explain_dpo(Plan& plan) {
  const int64_t parameters = count_parameters(plan.model).total;
  const int shards = plan.mesh.dp_shard;
  const auto gb = [](int64_t bytes) { return fmt::format("{:.1f} GB", static_cast<double>(bytes) * 1e-9); };
  const int element = plan.precision.compute == Dtype::kBf16 ? 2 : 4;
  const int64_t states = 16 * parameters / shards, reference = element * parameters / shards;
  plan.reasons = {
      fmt::format("states: 16 B × {} / {} = {} per GPU (fp32 master 4, gradient 4, AdamW moments 8)", format_count(parameters), shards,
                  gb(states)),
      fmt::format("frozen {} reference: {} B × {} / {} = {} per GPU", name(plan.precision.compute), element, format_count(parameters),
                  shards, gb(reference)),
      fmt::format("together {} per GPU before any activation, of {} usable", gb(states + reference), gb(plan.memory.capacity_bytes))};
  plan.diagnostics.push_back(warning(
      code::kUnsupportedFeature, {},
      "dpo is planned by its lower bound only: states and the reference, no activations; the bundled trainer does not run it yet"));
}

}  // namespace

std::string_view rank_word(const HardwarePlan& hardware) { return hardware.accelerator == Accelerator::kCpu ? "rank" : "GPU"; }

std::string summary(const Plan& plan) {
  if (plan.strategy.trainer != "native") {
    TrainerChoice choice;
    choice.tp = plan.mesh.tp, choice.pp = plan.mesh.pp, choice.cp = plan.mesh.cp, choice.ep = plan.mesh.ep;
    choice.virtual_stages = plan.strategy.virtual_stages;
    choice.hpz = plan.strategy.hpz;
    choice.cp_method = plan.strategy.cp_method == "ring"      ? CpMethod::kRing
                       : plan.strategy.cp_method == "ulysses" ? CpMethod::kUlysses
                                                              : CpMethod::kAllGather;
    choice.rest = {plan.strategy.sharding, plan.strategy.reshard_after_forward, plan.mesh.dp_replicate, plan.mesh.dp_shard,
                   plan.micro_batch,       plan.gradient_accumulation,          plan.recompute.policy};
    return summary(choice, plan.recompute.every_k);
  }
  Choice c;
  c.sharding = plan.strategy.sharding;
  c.reshard_after_forward = plan.strategy.reshard_after_forward;
  c.dp_replicate = plan.mesh.dp_replicate;
  c.dp_shard = plan.mesh.dp_shard;
  c.micro_batch = plan.micro_batch;
  c.recompute = plan.recompute.policy;
  return choice_name(c, plan.recompute.every_k);
}

std::vector<Alternative> runners_up(const Problem& problem, int nodes, const SearchResult& result) {
  const Candidate& best = result.candidates[result.best];
  std::map<std::tuple<int, bool, int>, const Candidate*> leaders;
  for (const Candidate& c : result.candidates) {
    const auto key = family(c.choice);
    if (key == family(best.choice)) continue;
    const auto [it, fresh] = leaders.try_emplace(key, &c);
    if (!fresh && better_in_family(c, *it->second, problem.goal)) it->second = &c;
  }
  // One line per sharding and mesh kind, and one per recompute policy of the winner's: the rest differ in nothing new.
  std::map<std::tuple<int, bool, int>, const Candidate*> shown;
  for (const auto& [key, c] : leaders) {
    if (problem.base.train.method == "dpo" && sharding_name(c->choice) == sharding_name(best.choice))
      continue;  // states do not differ
    const bool same_sharding =
        std::get<0>(key) == std::get<0>(family(best.choice)) && std::get<1>(key) == std::get<1>(family(best.choice));
    const auto group = same_sharding ? key : std::tuple(std::get<0>(key), std::get<1>(key), -1);
    const auto [it, fresh] = shown.try_emplace(group, c);
    if (!fresh && better_in_family(*c, *it->second, problem.goal)) it->second = c;
  }
  std::vector<const Candidate*> order;
  for (const auto& [key, c] : shown) order.push_back(c);
  std::stable_sort(order.begin(), order.end(),
                   [&](const Candidate* a, const Candidate* b) { return better_in_family(*a, *b, problem.goal); });
  std::vector<Alternative> out;
  for (const Candidate* c : order) {
    Alternative a;
    const bool whole = c->simulated || c->finished || sharding_name(c->choice) == sharding_name(best.choice);
    a.summary = whole ? choice_name(c->choice, problem.recompute_every_k) : sharding_name(c->choice);
    a.verdict = c->verdict;
    a.device_bytes = c->device_bytes;
    a.step_s = c->time.step_s;
    const int64_t capacity = plan_of(problem, nodes, c->choice, Weight::kLight).hardware.memory_bytes;
    if (c->verdict == Verdict::kDoesNotFit)
      a.why_not = c->simulated ? short_by(c->device_bytes, capacity)
                               : fmt::format("does not fit by ≥ {}", format_bytes(c->device_bytes - capacity));
    else if (c->verdict == Verdict::kTight && best.verdict == Verdict::kFits)
      a.why_not = fmt::format("tight: {} of {}", format_bytes(c->device_bytes), format_bytes(capacity));
    else if (best.verdict == Verdict::kDoesNotFit)
      a.why_not = "";
    else
      a.why_not = why_slower(*c, best, problem.goal);
    out.push_back(std::move(a));
  }
  return out;
}

// Adding nodes ends where a GPU would be left without a sequence: beyond, the batch would grow with the machine.
bool more_ranks_than_sequences(const Problem& p, int nodes) {
  const int64_t wished = p.global_batch > 0 ? p.global_batch : p.global_batch_tokens / p.base.train.sequence_length;
  return wished > 0 && int64_t{nodes} * p.base.hardware.gpus_per_node > wished;
}

bool is_answer(const Plan& plan) {
  const bool bound = plan.train.method == "dpo" && plan.strategy.trainer == "native";  // of states alone: it proves no fit
  return plan.verdict == Verdict::kFits || (bound && plan.verdict == Verdict::kTight);
}

std::optional<Plan> solve(const Problem& problem, Diagnostics& why, Shortfall shortfall) {
  if (problem.trainer != nullptr) return solve_trainer(problem, why, shortfall);
  SimulationCache cache;
  const bool dpo = problem.base.train.method == "dpo";
  struct Found {
    int nodes = 0;
    SearchResult result;
    const Candidate& best() const { return result.candidates[result.best]; }
  };
  std::optional<Found> kept;
  int legal_before = 0;  // the largest legal number of nodes that was not enough
  for (const int nodes : problem.node_counts) {
    if (nodes != problem.node_counts.front() && more_ranks_than_sequences(problem, nodes)) break;
    Found found{nodes, search(problem, nodes, cache, SearchEffort::kAnswer)};
    if (found.result.candidates.empty()) {
      if (why.empty()) why = std::move(found.result.why);
      continue;
    }
    const bool answer =
        found.result.best >= 0 && (found.best().verdict == Verdict::kFits || (dpo && found.best().verdict == Verdict::kTight));
    if (found.result.best >= 0 && (!kept.has_value() || answer)) kept = std::move(found);
    if (answer) break;
    legal_before = nodes;
  }
  const auto search_all = [&](int nodes) { return Found{nodes, search(problem, nodes, cache, SearchEffort::kAll)}; };
  if (!kept.has_value()) {
    if (legal_before == 0) return std::nullopt;
    why.clear();
    if (shortfall == Shortfall::kSkip) return std::nullopt;
    kept = search_all(legal_before);
  } else if (shortfall == Shortfall::kFind && !dpo) {
    kept = search_all(kept->nodes);  // the same best plan, and its runners-up
  }
  why.clear();
  Plan plan = plan_of(problem, kept->nodes, kept->best().choice, Weight::kFull);
  if (dpo) {
    finish_by_bound(plan);
  } else {
    const Candidate& best = kept->best();
    CHECK(best.finished, "the choice is finished");
    plan.memory = *best.memory;
    plan.time = best.time;
    plan.verdict = best.verdict;
  }
  if (shortfall == Shortfall::kSkip) return plan;
  plan.alternatives = runners_up(problem, kept->nodes, kept->result);
  std::optional<std::pair<int, int64_t>> too_few;
  if (legal_before > 0 && legal_before < kept->nodes) too_few = {legal_before, search_all(legal_before).best().device_bytes};
  explain(plan, problem, too_few);
  if (dpo)
    explain_dpo(plan);
  else
    explain_search(plan, kept->result.candidates);
  return plan;
}

namespace {

// GPU-hours and money of the whole run, and how often to save.
void account(Plan& plan, const Problem& problem) {
  TimePlan& t = plan.time;
  if (t.step_s <= 0) return;
  const auto steps = static_cast<double>(plan.train.steps);
  const double tokens = steps * static_cast<double>(plan.train.global_batch * plan.train.sequence_length);
  const RunCost cost = run_cost(tokens, t.tokens_per_s_per_gpu, plan.mesh.world(), plan.hardware.price_usd_per_gpu_hour, 1);
  t.gpu_hours = cost.gpu_hours;
  t.cost_usd = cost.usd;
  if (problem.save_time_s > 0) {
    const double hours = problem.gpu_hours_per_failure > 0 ? problem.gpu_hours_per_failure : kGpuHoursPerFailure;
    t.checkpoint_every_s = checkpoint_interval_s(static_cast<double>(problem.save_time_s), failures_per_s(plan.mesh.world(), hours));
  }
  if (t.step_low_s == 0) t.step_low_s = t.step_high_s = t.step_s;
  MemoryPlan& m = plan.memory;
  if (m.device_low_bytes == 0) m.device_low_bytes = m.device_high_bytes = m.device_bytes;
}

}  // namespace

Result<Plan> make_plan(const Problem& problem) {
  Diagnostics why;
  std::optional<Plan> plan = solve(problem, why, Shortfall::kFind);
  if (!plan.has_value()) return why;
  if (plan->train.method != "dpo" && problem.trainer == nullptr) plan->schedule_digest = schedule_digest(*plan);
  if (plan->verdict == Verdict::kDoesNotFit) {
    const std::vector<Fix> fixes = find_fixes(problem, *plan);
    const MemoryPlan& m = plan->memory;
    const bool dpo = plan->train.method == "dpo" && problem.trainer == nullptr;
    for (const Fix& fix : fixes)
      plan->reasons.push_back(fmt::format("{} with {}: {}", dpo ? "the states fit" : "fits", fix.flags, fix.effect));
    if (m.device_bytes <= m.capacity_bytes && m.host_bytes_per_node > 0) {
      plan->diagnostics.push_back(error(
          code::kNothingFits, {},
          fmt::format("nothing fits: the host needs {} per node and has {}, of which {:.0f} % are for training",
                      format_bytes(m.host_bytes_per_node), format_bytes(plan->hardware.host_memory_bytes), 100 * kUsableHostShare),
          fixes.empty() ? "" : fixes.front().flags));
      account(*plan, problem);
      return std::move(*plan);
    }
    plan->diagnostics.push_back(
        error(code::kNothingFits, {},
              fmt::format("nothing fits: {} {} per {}, {} has {}: {} too much", dpo ? "states alone need" : "the smallest plan needs",
                          format_bytes(m.device_bytes), rank_word(plan->hardware), plan->hardware.gpu_name,
                          format_bytes(m.capacity_bytes), format_bytes(m.device_bytes - m.capacity_bytes)),
              fixes.empty() ? "" : fixes.front().flags));
  }
  account(*plan, problem);
  return std::move(*plan);
}

std::vector<SmallestFit> smallest_that_fits(const Problem& problem) {
  std::vector<SmallestFit> rows;
  if (problem.other_hardware.empty()) return rows;
  std::vector<HardwarePlan> all = {problem.base.hardware};
  all.insert(all.end(), problem.other_hardware.begin(), problem.other_hardware.end());
  for (const HardwarePlan& hardware : all) {
    Problem other = problem;
    other.base.hardware = hardware;
    other.base.data = {};
    if (problem.hybrid) other.dp_shard = hardware.gpus_per_node;
    SmallestFit row;
    row.gpu = hardware.gpu;
    row.gpu_name = hardware.gpu_name;
    row.gpus_per_node = hardware.gpus_per_node;
    row.capacity_bytes = hardware.memory_bytes;
    Diagnostics why;
    const std::optional<Plan> plan = solve(other, why, Shortfall::kSkip);
    if (plan.has_value() && is_answer(*plan)) {
      row.nodes = plan->hardware.nodes;
      row.total_gpus = plan->mesh.world();
      row.device_bytes = plan->memory.device_bytes;
      row.step_s = plan->time.step_s;
      row.tokens_per_s_per_gpu = plan->time.tokens_per_s_per_gpu;
      row.strategy = summary(*plan);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace distsetup
