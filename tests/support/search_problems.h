// Problems of a search, small enough that every plan can be finished, and what a search finds beside that.
#pragma once
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <functional>
#include <random>
#include <vector>

#include "model/presets.h"
#include "planner/native/simulate.h"
#include "planner/search/choice.h"
#include "planner/search/make_plan.h"
#include "planner/search/selection.h"
#include "planner/search/space.h"
#include "support/random_plan.h"

namespace distsetup {

inline RatesPlan rates_at(double flops_per_s, double bytes_per_s) {
  RatesPlan r;
  r.num_sm = 20;
  r.gemm_flops_per_s = 0.7 * flops_per_s;
  r.gemm_k_half = 64;
  r.gemm_misaligned_share = 0.2;
  r.kernel_s = 4e-6;
  r.attention_forward_flops_per_s = 0.4 * flops_per_s;
  r.attention_backward_flops_per_s = 0.3 * flops_per_s;
  r.attention_half_positions = 100;
  r.attention_small_head = 0.9;
  r.gemm_bytes_per_s = r.elementwise_bytes_per_s = r.optimizer_bytes_per_s = 0.8 * bytes_per_s;
  r.loss_bytes_per_logit = 12;
  r.contention = 0.1;
  r.straggler = 0.005;
  return r;
}

// A problem on a made-up GPU whose memory is near what the plans need.
inline Problem random_problem(std::mt19937_64& random) {
  const auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  static const Presets facts = *load_presets();
  Problem p;
  p.trainer = *find_trainer(facts, kNative);
  p.setup = p.trainer.defaults;
  Geometry g = tiny_geometry(pick(1, 3));
  g.hidden = 8 * pick(2, 40);
  g.feed_forward = 8 * pick(2, 100);
  g.tied_embeddings = pick(0, 1) == 1;
  p.base.model = g;
  HardwarePlan& h = p.base.hardware;
  h.gpu = h.gpu_name = "made up";
  h.accelerator = pick(0, 1) == 0 ? Accelerator::kCpu : Accelerator::kCuda;
  h.gpus_per_node = static_cast<int>(pick(1, 4));
  h.peak_flops_per_s = 1e12;
  h.gemm_efficiency = 0.6;
  h.attention_efficiency = 0.3;
  h.memory_bytes_per_s = 1e11;
  if (h.accelerator == Accelerator::kCuda) h.rates = rates_at(1e12, 1e11);
  h.link_bytes_per_s = 1e9 * static_cast<double>(pick(1, 100));
  h.network_bytes_per_s = 1e8 * static_cast<double>(pick(1, 100));
  h.link_latency_s = 3e-6;
  h.network_latency_s = 1e-5;
  h.context_bytes = h.accelerator == Accelerator::kCpu ? 0 : 1 << 20;
  p.base.precision.compute = pick(0, 1) == 0 ? Dtype::kF32 : Dtype::kBf16;
  p.base.train.sequence_length = 16 * pick(1, 8);
  p.base.train.optimizer = std::array{"adamw", "adafactor", "muon"}[static_cast<size_t>(pick(0, 2))];
  if (pick(0, 3) == 0) {
    p.base.train.method = kDpo;
    p.base.train.preference.reference = pick(0, 1) == 0 ? "sharded" : "cached";
  }
  if (pick(0, 3) == 0) {
    p.base.train.finetune = "lora";
    p.base.train.lora_rank = pick(1, 8);
    p.base.train.lora_alpha = 8;
    p.base.train.lora_targets = {pick(0, 1) == 0 ? "q_proj" : "all-linear"};
  }
  p.node_counts = {static_cast<int>(pick(1, 2))};
  p.shardings = {Sharding::kDdp, Sharding::kZero1, Sharding::kZero2, Sharding::kZero3};
  p.reshard_after_forward = {1, 0};
  p.recomputes = {Recompute::kNone, Recompute::kSelective, Recompute::kKeepAttention, Recompute::kFull};
  p.global_batch = h.gpus_per_node * p.node_counts.front() * pick(1, 6);
  return p;
}

// Memory at which some choices fit and some do not.
inline void set_memory(Problem& p, std::mt19937_64& random) {
  int64_t least = INT64_MAX, most = 0;
  for (const Choice& c : legal_choices(p, p.node_counts.front())) {
    Plan plan = plan_of(p, p.node_counts.front(), c);
    finish(plan);
    least = std::min(least, plan.memory.device_bytes);
    most = std::max(most, plan.memory.device_bytes);
  }
  p.base.hardware.memory_bytes = std::uniform_int_distribution<int64_t>(least - least / 20, most + most / 10)(random);
}

// Of what is tight: the fastest of those that are as likely to fit as the one that needs least.
inline int likeliest_of(const std::vector<Candidate>& all) {
  std::vector<int> tight;
  for (int i = 0; i < static_cast<int>(all.size()); ++i)
    if (all[i].verdict == Verdict::kTight) tight.push_back(i);
  std::stable_sort(tight.begin(), tight.end(), [&](int a, int b) { return all[a].device_bytes < all[b].device_bytes; });
  int best = -1;
  for (const int i : tight) {
    if (is_likelier(all[tight.front()], all[i])) break;
    if (best < 0 || all[i].tokens_per_s_per_gpu > all[best].tokens_per_s_per_gpu) best = i;
  }
  return best;
}

// The rule of choice, applied to every plan finished.
inline int brute_force(const Problem& p, std::vector<Candidate>& all) {
  const SelectionRules rules = make_predictor(p)->rules();
  for (const Choice& choice : legal_choices(p, p.node_counts.front())) {
    Plan plan = plan_of(p, p.node_counts.front(), choice);
    const Simulation s = simulate(plan);
    finish(plan);
    Candidate c;
    c.choice = choice;
    c.tie_bytes = s.allocated_bytes();
    c.device_bytes = plan.memory.device_bytes;
    c.fit_probability = plan.memory.fit_probability;
    c.verdict = plan.verdict;
    c.tokens_per_s_per_gpu = plan.time.tokens_per_s_per_gpu;
    all.push_back(std::move(c));
  }
  double fastest = 0;
  for (const Candidate& c : all)
    if (c.verdict == Verdict::kFits) fastest = std::max(fastest, c.tokens_per_s_per_gpu);
  int best = -1;
  for (int i = 0; i < static_cast<int>(all.size()); ++i) {
    if (all[i].verdict != Verdict::kFits || 1 / all[i].tokens_per_s_per_gpu > (1 / fastest) * (1 + kTimeTie)) continue;
    if (best < 0 || simpler(all[i], all[best], rules)) best = i;
  }
  return best >= 0 ? best : likeliest_of(all);
}

// How many of the problems have a plan that fits.
inline int compare_with_brute_force(std::mt19937_64& random, int num_problems,
                                    const std::function<Problem(std::mt19937_64&)>& problem) {
  int fitting = 0;
  for (int i = 0; i < num_problems; ++i) {
    Problem p = problem(random);
    set_memory(p, random);
    INFO("problem " << i);
    const int nodes = p.node_counts.front();
    const SearchResult found = search(p, nodes, *make_predictor(p), {.every_kind = true});
    std::vector<Candidate> all;
    const int best = brute_force(p, all);
    REQUIRE(all.size() == found.candidates.size());
    REQUIRE(found.has_answer());
    for (const bool estimate : {false, true}) {
      const SearchResult quick = search(p, nodes, *make_predictor(p), {.nearest = false, .estimate = estimate});
      REQUIRE((best < 0) == quick.best.empty());
      if (best < 0) continue;
      INFO(summary(found.best.front().choice, p.recompute_every_k)
           << " or " << summary(quick.best.front().choice, p.recompute_every_k));
      CHECK(found.best.front().choice == quick.best.front().choice);
    }
    if (best >= 0) {
      const double seconds = 1 / all[static_cast<size_t>(best)].tokens_per_s_per_gpu;
      CHECK_FALSE(search(p, nodes, *make_predictor(p), {.most_s_per_token = seconds, .nearest = false}).too_slow);
      CHECK(search(p, nodes, *make_predictor(p), {.most_s_per_token = seconds / 1e6, .nearest = false}).too_slow);
    }
    if (best < 0) {
      CHECK(found.answer().verdict == Verdict::kDoesNotFit);
      continue;
    }
    ++fitting;
    INFO(summary(plan_of(p, p.node_counts.front(), found.answer().choice)));
    INFO(summary(plan_of(p, p.node_counts.front(), all[best].choice)));
    CHECK(found.answer().verdict == all[best].verdict);
    CHECK(found.answer().choice == all[best].choice);
  }
  return fitting;
}

}  // namespace distsetup
