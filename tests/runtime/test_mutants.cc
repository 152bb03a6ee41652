// Broken schedules must not train unnoticed. A lifetime that ends one use too early is run with poisoned memory; an instruction that
// is dropped, doubled or swapped with a neighbour it depends on is caught by a rule of schedules, by the trace, or by different
// numbers.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>

#include "plan/arena.h"
#include "plan/check_job.h"
#include "plan/expand.h"
#include "plan/schedule_text.h"
#include "runtime/comm/tracing.h"
#include "runtime/device/cpu_device.h"
#include "runtime/engine/threads.h"
#include "runtime/expert_cases.h"
#include "runtime/tiny.h"
#include "support/broken_lists.h"
#include "support/seed.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

// What a training run of two steps says, or why it stopped.
struct Outcome {
  RunResult result;
  std::string error;
  bool operator==(const Outcome&) const = default;
};
Outcome run_list(const Plan& plan, const Schedule& list, EngineOptions options) {
  Outcome out;
  try {
    run_ranks(plan.mesh, [&](Communicator& communicator) {
      const auto device = make_cpu_device();
      Engine engine(plan, list, *device, communicator, options);
      engine.initialize_parameters();
      engine.load();
      for (int64_t s = 0; s < 2; ++s) {
        const Batch batch = rank_batch(plan, global_batch(plan, s), data_index(plan.mesh, communicator.rank()));
        const StepStats stats = engine.step({batch.ids, batch.targets, batch.valid, 1e-2});
        if (communicator.rank() != 0) continue;
        out.result.losses.push_back(stats.loss);
        out.result.norms.push_back(stats.gradient_norm);
      }
      if (engine.writes_checkpoint()) collect(plan.model, engine, engine.master(), out.result.parameters);
    });
  } catch (const std::exception& e) {
    out.error = e.what();
  }
  return out;
}

// --- lifetimes

// Steps that touch the bytes of root buffer b.
std::vector<int> touches(const Schedule& s, int b) {
  std::set<int> steps;
  for (int n = 0; n < int(s.steps.size()); ++n) {
    for (const auto* views : {&s.steps[size_t(n)].reads, &s.steps[size_t(n)].writes}) {
      for (const View& v : *views) {
        if (root_buffer(s.buffers, v.buffer) == b) steps.insert(n);
      }
    }
  }
  return {steps.begin(), steps.end()};
}

// Lists in which one buffer dies one use too early: how many there are. Each has to be caught.
int check_forgotten(const Schedule& good, const std::function<bool(const Schedule& bad)>& is_caught) {
  int total = 0;
  for (int b = 0; b < int(good.buffers.size()); ++b) {
    const Buffer& buffer = good.buffers[size_t(b)];
    if (buffer.lifetime == BufferLifetime::kRun || buffer.overlay_of >= 0) continue;
    const std::vector<int> uses = touches(good, b);
    if (uses.size() < 2) continue;  // written and never read: nothing to forget
    Schedule bad = good;
    bad.buffers[size_t(b)].last_step = uses[uses.size() - 2];
    bad.arena_bytes = pack_arena(bad.buffers);
    ++total;
    INFO("buffer " << buffer.name << " dies at step " << bad.buffers[size_t(b)].last_step << " instead of " << buffer.last_step);
    CHECK(is_caught(bad));
  }
  return total;
}

TEST_CASE("forgetting the last use of any buffer is caught by poison", "[mutants]") {
  const auto recompute = GENERATE(Recompute::kNone, Recompute::kSelective, Recompute::kKeepAttention, Recompute::kFull);
  const auto precision = GENERATE(Dtype::kF32, Dtype::kBf16);
  TinyOptions o;
  o.recompute = recompute;
  o.chunked_loss = recompute == Recompute::kKeepAttention;
  o.precision = precision;
  o.geometry.tied_embeddings = o.geometry.qkv_bias = o.geometry.qk_norm = true;
  o.global_batch = 2;
  const Plan plan = tiny_plan(o);
  const Schedule good = compile_expanded(plan, Phase::kStep);
  const Outcome reference = run_list(plan, good, {.poison = true});
  REQUIRE(reference.error.empty());
  REQUIRE(run_list(plan, good, {}) == reference);
  const int total = check_forgotten(good, [&](const Schedule& bad) { return !(run_list(plan, bad, {.poison = true}) == reference); });
  CHECK(total > 30);
}

// --- instructions

// Does the order of two neighbours matter?
bool depend(const Schedule& s, const Instruction& a, const Instruction& b) {
  if (a.group != Group::kSelf && b.group != Group::kSelf && (a.group != b.group || a.bytes != b.bytes)) return true;
  return depends_on(s, a, b);
}

// True when the run differs from the reference, throws, aborts or hangs. In a process of its own: a broken list may do anything.
bool caught_by_running(const std::function<bool()>& same) {
  fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    for (const int signal : {SIGABRT, SIGSEGV}) ::signal(signal, SIG_DFL);  // not Catch's handlers
    fclose(stderr);
    alarm(20);
    try {
      _exit(same() ? 0 : 1);
    } catch (...) {
      _exit(1);
    }
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Where rows of experts lie is data: with a wrong index anything may happen, so each list runs in a process of its own.
TEST_CASE("forgetting the last use of a buffer of experts is caught by poison", "[mutants][experts]") {
  set_compute_threads(1);  // OpenMP's others do not come along into a forked process
  TinyOptions o;
  o.geometry = expert_geometry(GENERATE("qwen2", "gpt_oss"));
  o.geometry.num_layers = 1, o.geometry.expert_layer = {};
  o.geometry.router_loss = 0.1;
  o.recompute = GENERATE(Recompute::kNone, Recompute::kFull);
  o.global_batch = 2;
  const Plan plan = tiny_plan(o);
  const Schedule good = compile_expanded(plan, Phase::kStep);
  const Outcome reference = run_list(plan, good, {.poison = true});
  REQUIRE(reference.error.empty());
  const auto is_caught = [&](const Schedule& bad) {
    return caught_by_running([&] { return run_list(plan, bad, {.poison = true}) == reference; });
  };
  CHECK(!is_caught(good));
  CHECK(check_forgotten(good, is_caught) > 30);
}

std::vector<CommunicationRecord> trace_of(const Plan& plan, const Schedule& list) {
  const auto fake = make_fake_communicator(plan.mesh, 0);
  TracingCommunicator trace(*fake);
  const auto device = make_cpu_device();
  Engine engine(plan, list, *device, trace);
  engine.initialize_parameters();
  engine.load();
  trace.clear();
  const Batch batch = rank_batch(plan, global_batch(plan, 0), 0);
  engine.step({batch.ids, batch.targets, batch.valid, 1e-2});
  return trace.records();
}

TEST_CASE("an instruction dropped, doubled or swapped is caught by a rule, the trace or the numbers", "[mutants][nightly]") {
  struct Case {
    const char* name;
    Sharding sharding;
    int replicate, shard;
    int64_t accumulation;
    Dtype precision;
  };
  const std::vector<Case> cases = {{"one rank", Sharding::kDdp, 1, 1, 2, Dtype::kBf16},
                                   {"ddp", Sharding::kDdp, 2, 1, 1, Dtype::kF32},
                                   {"zero1", Sharding::kZero1, 1, 2, 2, Dtype::kF32},
                                   {"zero2", Sharding::kZero2, 1, 2, 1, Dtype::kBf16},
                                   {"zero3", Sharding::kZero3, 1, 2, 2, Dtype::kF32}};
  const uint64_t seed = fixed_seed(20261121);
  std::mt19937_64 random(seed);
  INFO("seed " << seed << " (DISTSETUP_SEED repeats it)");
  std::map<std::string, int> caught_by;
  int total = 0;
  for (const Case& c : cases) {
    TinyOptions o;
    o.sharding = c.sharding;
    o.replicate = c.replicate;
    o.shard = c.shard;
    o.accumulation = c.accumulation;
    o.precision = c.precision;
    o.global_batch = 4;
    o.geometry.num_layers = 1;
    const Plan plan = tiny_plan(o);
    const Schedule good = compile_expanded(plan, Phase::kStep);
    const std::vector<const Schedule*> all_good(size_t(plan.mesh.world()), &good);
    REQUIRE(check_job(plan, all_good).empty());
    const Outcome reference = run_list(plan, good, {.poison = true});
    REQUIRE(reference.error.empty());
    const auto records = trace_of(plan, good);
    for (int n = 0; n < num_rounds(50); ++n) {
      Schedule bad = good;
      const size_t at = random() % bad.instructions.size();
      const Instruction chosen = bad.instructions[at];
      const int kind = int(random() % 3);
      if (kind == 1 && (chosen.op == InstructionOp::kZero || chosen.op == InstructionOp::kWait)) {  // twice is once
        --n;
        continue;
      }
      const char* what = kind == 0 ? "drop" : kind == 1 ? "double" : "swap";
      if (kind == 2) {
        if (at + 1 >= bad.instructions.size() || !depend(bad, bad.instructions[at], bad.instructions[at + 1])) {
          --n;
          continue;
        }
        std::swap(bad.instructions[at], bad.instructions[at + 1]);
      } else {
        drop_or_double(bad, int(at), kind == 0);
      }
      ++total;
      if (!check_job(plan, std::vector<const Schedule*>(size_t(plan.mesh.world()), &bad)).empty()) {
        ++caught_by["rules"];
      } else if (caught_by_running([&] { return trace_of(plan, bad) == records; })) {
        ++caught_by["trace"];
      } else if (caught_by_running([&] { return run_list(plan, bad, {.poison = true}) == reference; })) {
        ++caught_by["numbers"];
      } else {
        FAIL_CHECK(c.name << ": " << what << " of '" << format_instruction(good, int(at)) << "' is not caught");
      }
    }
  }
  WARN("caught by rules " << caught_by["rules"] << ", trace " << caught_by["trace"] << ", numbers " << caught_by["numbers"] << " of "
                          << total);
  CHECK(caught_by["rules"] + caught_by["trace"] + caught_by["numbers"] == total);
  CHECK(total >= 200);
}

// The same without the rules: what the executor alone notices. Equivalent lists exist here (a cast done twice), so only drops.
TEST_CASE("a dropped instruction is caught by running, without any rule", "[mutants]") {
  TinyOptions o;
  o.precision = Dtype::kBf16;
  o.accumulation = 2;
  o.global_batch = 4;
  o.geometry.num_layers = 2;
  const Plan plan = tiny_plan(o);
  const Schedule good = compile_expanded(plan, Phase::kStep);
  const Outcome reference = run_list(plan, good, {.poison = true});
  for (size_t at = 0; at < good.instructions.size(); ++at) {
    Schedule bad = good;
    bad.instructions.erase(bad.instructions.begin() + long(at));
    bool after = false;
    for (Segment& g : bad.segments) {
      const bool home = int(at) >= g.first_instruction && int(at) < g.first_instruction + g.num_instructions;
      if (after) --g.first_instruction;
      if (home) --g.num_instructions;
      after = after || home;
    }
    INFO(format_instruction(good, int(at)));
    CHECK(caught_by_running([&] { return run_list(plan, bad, {.poison = true}) == reference; }));
  }
}

}  // namespace
}  // namespace distsetup
