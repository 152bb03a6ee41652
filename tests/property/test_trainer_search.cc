// search of other trainers' plans against brute force on every problem it is given, and what more memory, more GPUs or a shorter
// sequence may not change.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "planner/frameworks/memory.h"
#include "planner/report/need.h"
#include "planner/search/choice.h"
#include "planner/search/framework_predictor.h"
#include "planner/search/framework_setup.h"
#include "planner/search/selection.h"
#include "planner/search/space.h"
#include "planner/time/step.h"
#include "support/problems.h"
#include "support/seed.h"

using namespace distsetup;

namespace {

Problem problem_of(const Flags& flags) {
  Result<Problem> problem = resolved(flags);
  INFO(format_diagnostics(problem.diagnostics));
  REQUIRE(problem.ok());
  return *problem;
}

Flags random_flags(std::mt19937_64& random) {
  const auto one_of = [&](std::initializer_list<const char*> texts) {
    return std::string(texts.begin()[std::uniform_int_distribution<size_t>(0, texts.size() - 1)(random)]);
  };
  const std::string trainer = one_of({"fsdp1", "fsdp2", "deepspeed", "megatron", "ddp"});
  const std::string model = one_of({"llama3.2_1b", "llama3_8b", "qwen2.5_0.5b", "llama2_13b", "mixtral_8x7b", "deepseek_v2_lite"});
  return {{"trainer", trainer},
          {"model", model},
          {"gpu", one_of({"a100_sxm_80", "h100_sxm", "a100_sxm_40", "h200_sxm"})},
          {"gpus", one_of({"1", "2", "4", "8"})},
          {"nodes", one_of({"1", "2"})},
          {"sequence-length", one_of({"1024", "4096", "16384"})},
          {"global-batch", one_of({"8", "16", "32"})}};
}

SearchResult search_alone(const Problem& p, int nodes) { return search(p, nodes, *make_predictor(p)); }

// Every legal choice, replayed.
struct Replayed : Candidate {
  MemoryEstimate memory;
};
std::vector<Replayed> all_candidates(const Problem& p, int nodes) {
  std::vector<Replayed> all;
  for (const Choice& choice : legal_choices(p, nodes)) {
    const Setup setup = setup_of(p, nodes, choice);
    Replayed c;
    c.choice = choice;
    c.tokens_per_s_per_gpu = estimate_time(setup).tokens_per_s_per_gpu;
    const int64_t simulated = simulate_memory(setup).allocated_bytes + p.base.hardware.context_bytes;
    const MemoryNeed need = replay_need(setup);
    c.memory = need.memory;
    c.device_bytes = std::max(need.bytes, simulated);
    c.fit_probability = fit_probability(setup, static_cast<double>(c.device_bytes));
    c.verdict = verdict_of(c.fit_probability);
    all.push_back(std::move(c));
  }
  return all;
}

}  // namespace

TEST_CASE("trainer search: as fast as the fastest plan that brute force finds to fit") {
  std::mt19937_64 random(test_seed());
  INFO("DISTSETUP_SEED=" << test_seed());
  constexpr size_t kMostReplays = 400;  // some seconds
  int compared = 0, nothing_fitted = 0;
  size_t replays = 0;
  for (int round = 0; round < 200 && replays < kMostReplays; ++round) {
    const Flags flags = random_flags(random);
    std::string said;
    for (const auto& [flag, value] : flags) said += "--" + flag + " " + value + " ";
    INFO(said);
    Problem p = problem_of(flags);
    const int nodes = p.node_counts.front();
    const size_t legal = legal_choices(p, nodes).size();
    if (legal > kMostReplays / 3) continue;
    replays += legal;
    const std::vector<Replayed> all = all_candidates(p, nodes);
    if (all.empty()) continue;
    // One key, one memory.
    std::map<MemoryKey, const Replayed*> by_key;
    for (const Replayed& c : all) {
      INFO(summary(c.choice, 0));
      const Replayed& first = *by_key.try_emplace(memory_key(p, c.choice), &c).first->second;
      CHECK(first.device_bytes == c.device_bytes);
      CHECK(first.memory.allocated_bytes == c.memory.allocated_bytes);
      CHECK(first.verdict == c.verdict);
    }
    if (std::all_of(all.begin(), all.end(), [](const Candidate& c) { return c.verdict == Verdict::kDoesNotFit; })) {
      const SearchResult found = search_alone(p, nodes);
      REQUIRE(found.smallest.has_value());
      // What does not fit is not replayed by the search: it knows the simulated bytes.
      for (const Replayed& c : all) CHECK(found.smallest->device_bytes <= c.device_bytes);
      ++nothing_fitted;
    }
    for (const Verdict wanted : {Verdict::kFits, Verdict::kTight}) {
      double fastest = 0, likeliest = 0;
      int64_t least = INT64_MAX;
      for (const Replayed& c : all) {
        if (static_cast<int>(c.verdict) > static_cast<int>(wanted)) continue;
        fastest = std::max(fastest, c.tokens_per_s_per_gpu);
        likeliest = std::max(likeliest, c.fit_probability);
        least = std::min(least, c.device_bytes);
      }
      if (fastest == 0) continue;
      p.goal = Goal::kThroughput;
      const SearchResult found = search_alone(p, nodes);
      REQUIRE_FALSE(found.best.empty());
      if (wanted == Verdict::kFits)
        CHECK(found.best.front().tokens_per_s_per_gpu >= fastest * (1 - kStructureTie) * (1 - kTimeTie));
      else
        CHECK(found.best.front().fit_probability >= likeliest - 0.02);
      CHECK(static_cast<int>(found.best.front().verdict) <= static_cast<int>(wanted));
      p.goal = Goal::kMinMemory;
      const SearchResult smallest = search_alone(p, nodes);
      REQUIRE_FALSE(smallest.best.empty());
      CHECK(smallest.best.front().device_bytes == least);
      ++compared;
      break;
    }
  }
  CHECK(compared > 0);
  CHECK(nothing_fitted > 0);
}

TEST_CASE("trainer search: the states are a lower bound of what is simulated, and that of what is replayed") {
  std::mt19937_64 random(test_seed() + 1);
  INFO("DISTSETUP_SEED=" << test_seed());
  for (int round = 0; round < 20; ++round) {
    const Problem p = problem_of(random_flags(random));
    const std::vector<Choice> choices = legal_choices(p, p.node_counts.front());
    for (size_t i = 0; i < choices.size(); i += 1 + choices.size() / 15) {
      const Setup setup = setup_of(p, p.node_counts.front(), choices[i]);
      INFO(p.base.strategy.trainer << " " << p.base.model.name << ": " << summary(choices[i], 0));
      const MemoryEstimate simulated = simulate_memory(setup), replayed = replay_memory(setup);
      CHECK(bound_bytes(setup) <= simulated.allocated_bytes);
      CHECK(replayed.reserved_bytes >= replayed.allocated_bytes - (replayed.ran_out ? replayed.allocated_bytes : 0));
      int64_t sum = 0;
      for (const MemoryTerm& term : simulated.terms) sum += term.bytes_at_peak;
      CHECK(sum == simulated.allocated_bytes);
    }
  }
}

TEST_CASE("trainer search: more memory, more GPUs, shorter sequences never make a plan impossible") {
  const std::pair<const char*, const char*> cases[] = {
      {"fsdp1", "llama3_8b"}, {"fsdp2", "llama3_8b"},        {"deepspeed", "llama3_8b"},   {"megatron", "llama3_8b"},
      {"ddp", "llama3_8b"},   {"fsdp2", "deepseek_v2_lite"}, {"deepspeed", "mixtral_8x7b"}};
  for (const auto& [trainer_name, model] : cases) {
    const char* trainer = trainer_name;
    const Flags base = {{"trainer", trainer}, {"model", model}, {"gpu", "a100_sxm_80"}, {"gpus", "8"}, {"global-batch", "64"}};
    const auto verdict = [&](const Flags& more) {
      Flags flags = base;
      flags.insert(flags.end(), more.begin(), more.end());
      const Problem p = problem_of(flags);
      const SearchResult found = search_alone(p, p.node_counts.front());
      return found.best.empty() ? Verdict::kDoesNotFit : found.best.front().verdict;
    };
    INFO(trainer << " " << model);
    int before = 9;
    for (const char* memory : {"20GiB", "40GiB", "60GiB", "79GiB", "140GiB"}) {
      const int now = static_cast<int>(verdict({{"nodes", "1"}, {"gpu-memory", memory}}));
      INFO(memory);
      CHECK(now <= before);
      before = now;
    }
    before = 9;
    for (const char* nodes : {"1", "2", "4"}) {
      const int now = static_cast<int>(verdict({{"nodes", nodes}}));
      INFO(nodes << " nodes");
      CHECK(now <= before);
      before = now;
    }
    before = 9;
    for (const char* length : {"65536", "16384", "4096", "1024"}) {
      const int now = static_cast<int>(verdict({{"nodes", "1"}, {"sequence-length", length}}));
      INFO(length << " tokens");
      CHECK(now <= before);
      before = now;
    }
  }
}
