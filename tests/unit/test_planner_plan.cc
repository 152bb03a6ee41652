// make_plan and what it prints.
#include <algorithm>
#include <catch2/catch.hpp>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "model/count.h"
#include "model/presets.h"
#include "plan/plan_json.h"
#include "planner/native/simulate.h"
#include "planner/report/preview.h"
#include "planner/report/text_layout.h"
#include "planner/resolve/resolve.h"
#include "planner/search/choice.h"
#include "planner/search/fixes.h"
#include "planner/search/make_plan.h"
#include "planner/search/space.h"
#include "support/presets.h"

using namespace distsetup;

namespace {

using Flags = std::vector<std::pair<std::string, std::string>>;

Problem problem_of(const Flags& flags) {
  Spec spec;
  for (const auto& [flag, text] : flags) REQUIRE(set_flag(spec, flag, std::string_view(text), {"command line", 0, 0}).empty());
  const Result<Problem> p = resolve(spec, presets(), {});
  INFO(format_diagnostics(p.diagnostics));
  REQUIRE(p.ok());
  return *p;
}

Plan plan_for(const Flags& flags) {
  const Result<Plan> plan = make_plan(problem_of(flags));
  INFO(format_diagnostics(plan.diagnostics));
  REQUIRE(plan.value.has_value());
  return *plan;
}

int64_t sum_of_terms(const Plan& plan) {
  int64_t sum = 0;
  for (const MemoryTerm& t : plan.memory.terms) sum += t.bytes_at_peak;
  return sum;
}

bool has_reason(const Plan& plan, std::string_view text) {
  return std::any_of(plan.reasons.begin(), plan.reasons.end(),
                     [&](const std::string& r) { return r.find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("plan --model 70B, nothing else: fits on the fewest nodes") {
  const Problem problem = problem_of({{"model", "70B"}});
  const Result<Plan> plan = make_plan(problem);
  REQUIRE(plan.ok());
  CHECK(plan->verdict == Verdict::kFits);
  CHECK(validate(*plan).empty());
  CHECK(count_parameters(plan->model).total == 70553706496);
  CHECK(sum_of_terms(*plan) == plan->memory.peak_allocated_bytes);
  CHECK(plan->memory.peak_allocated_bytes == plan->memory.run_bytes + plan->memory.arena_bytes + plan->memory.workspace_bytes);
  CHECK(plan->memory.device_bytes > plan->memory.peak_reserved_bytes);
  CHECK(plan->memory.peak_reserved_bytes >= plan->memory.peak_allocated_bytes);
  CHECK(plan->schedule_digest.size() == 64);
  CHECK(plan->memory.peak_buffers.size() == 3);
  CHECK_FALSE(plan->alternatives.empty());
  for (const Alternative& a : plan->alternatives) CHECK_FALSE(a.why_not.empty());
  // One node less does not fit.
  Problem fewer = problem;
  fewer.node_counts = {plan->hardware.nodes - 1};
  CHECK(make_plan(fewer)->verdict != Verdict::kFits);
  const Result<Plan> read = plan_from_json(dump_json(to_json(*plan)), "plan.json");
  REQUIRE(read.ok());
  CHECK(*read == *plan);
}

TEST_CASE("smallest that fits: one row per GPU when no hardware is given") {
  const std::vector<SmallestFit> rows = smallest_that_fits(problem_of({{"model", "8B"}}));
  REQUIRE(rows.size() == 7);
  CHECK(rows[0].gpu == "h100_sxm");
  for (const SmallestFit& row : rows) {
    INFO(row.gpu);
    CHECK(row.nodes >= 1);
    CHECK(row.device_bytes <= row.capacity_bytes);
    CHECK(row.total_gpus == row.nodes * row.gpus_per_node);
  }
  CHECK(smallest_that_fits(problem_of({{"model", "8B"}, {"gpu", "h100"}, {"gpus", "8"}})).empty());
}

TEST_CASE("the recipe of 7B DPO on two 24 GB cards is refused with its arithmetic") {
  for (const char* gpu : {"rtx_3090", "a10g", "rtx_4090"}) {
    INFO(gpu);
    const Plan plan = plan_for({{"model", "7B"},
                                {"method", "dpo"},
                                {"gpus", "2"},
                                {"gpu", gpu},
                                {"seq", "4096"},
                                {"micro-batch", "2"},
                                {"offload-optimizer", "none"}});
    CHECK(plan.verdict == Verdict::kDoesNotFit);
    CHECK(has_reason(plan, "16 B × 6,738,415,616 parameters / 2 = 50.2 GiB"));
    CHECK(sum_of_terms(plan) == plan.memory.peak_allocated_bytes);
    CHECK(std::any_of(plan.diagnostics.begin(), plan.diagnostics.end(),
                      [](const Diagnostic& d) { return d.code == code::kNothingFits; }));
    CHECK(has_reason(plan, "--gpus"));
  }
  const Plan fits =
      plan_for({{"model", "7B"}, {"method", "dpo"}, {"gpus", "8"}, {"gpu", "h100"}, {"seq", "2048"}, {"global-batch", "64"}});
  CHECK(fits.verdict == Verdict::kFits);
  CHECK(fits.train.preference == PreferencePlan{"sigmoid", 0.1, 0, "cached"});
  CHECK_FALSE(fits.schedule_digest.empty());
}

TEST_CASE("pairs are two sequences each: a plan for pairs has the tokens and the arena of twice as many sequences") {
  Flags settings = {{"model", "1B"},      {"gpus", "2"},         {"gpu", "h100"},       {"seq", "512"},
                    {"micro-batch", "2"}, {"global-batch", "8"}, {"sharding", "zero3"}, {"recompute", "none"}};
  settings.push_back({"method", "dpo"});
  const Plan pairs = plan_for(settings);
  settings.back() = {"method", "sft"};
  for (auto& [flag, value] : settings)
    if (flag == std::string("micro-batch") || flag == std::string("global-batch"))
      value = flag == std::string("micro-batch") ? "4" : "16";
  const Plan sequences = plan_for(settings);
  CHECK(tokens_per_step(pairs) == tokens_per_step(sequences));
  CHECK(pairs.memory.run_bytes == sequences.memory.run_bytes + 2 * 4 * 4 + 5 * 8);  // log-probabilities; five numbers beside the loss
  CHECK(pairs.memory.arena_bytes >= sequences.memory.arena_bytes);
  CHECK(pairs.memory.arena_bytes < sequences.memory.arena_bytes + (1 << 20));
  CHECK(pairs.schedule_digest != sequences.schedule_digest);
}

// The search once left settings of the plan out: asynchronous saves, packed rows.
TEST_CASE("what a plan predicts is what its own schedule takes, whatever is set") {
  for (const Flags& setting : {Flags{},
                               {{"loss-head", "chunked"}},
                               {{"method", "sft"}, {"adapter", "lora"}},
                               {{"optimizer", "muon"}},
                               {{"checkpoint-async", "true"}},
                               {{"offload-optimizer", "host"}},
                               {{"packing", "true"}}})
    for (const char* gpu : {"h100_sxm", "cpu"}) {
      Flags flags = {{"model", "1B"}, {"gpu", gpu}, {"nodes", "1"}, {"gpus", "2"}, {"seq", "512"}};
      flags.insert(flags.end(), setting.begin(), setting.end());
      INFO(gpu << " " << (setting.empty() ? "" : setting.front().first));
      Problem problem = problem_of(flags);
      // What resolving makes of a prepared data set.
      problem.base.data.packing = !setting.empty() && setting.front().first == "packing";
      if (problem.base.data.packing) problem.base.data.tokenizer = kPreparedTokens;
      const Result<Plan> plan = make_plan(problem);
      REQUIRE(plan.value.has_value());
      Plan again = *plan;
      finish(again);
      CHECK(again.memory.run_bytes == plan->memory.run_bytes);
      CHECK(again.memory.arena_bytes == plan->memory.arena_bytes);
      CHECK(again.memory.workspace_bytes == plan->memory.workspace_bytes);
      CHECK(again.memory.device_bytes == plan->memory.device_bytes);
      CHECK(again.time.step_s == plan->time.step_s);
    }
}

TEST_CASE("states alone: the published ZeRO figures and the integers of 16 B per parameter") {
  Problem p = problem_of({{"model", "7B"}, {"sharding", "zero3"}, {"gpus", "8"}, {"nodes", "8"}});
  const auto bound_gb = [&](int nodes, int per_node) {
    p.base.hardware.gpus_per_node = per_node;
    Choice choice;
    choice.dp_shard = nodes * per_node;
    return static_cast<double>(states_bound_bytes(plan_of(p, nodes, choice))) * 1e-9;
  };
  CHECK(bound_gb(1, 2) == Approx(53.9).margin(0.05));
  CHECK(bound_gb(1, 8) == Approx(13.5).margin(0.05));
  CHECK(bound_gb(8, 8) == Approx(1.7).margin(0.05));
}

TEST_CASE("regression 45: no plan is below its states") {
  for (const char* model : {"1B", "7B", "8B", "13B", "70B"}) {
    for (const char* sharding : {"ddp", "zero1", "zero2", "zero3"}) {
      for (const auto& [gpus, nodes] : {std::pair{"8", "1"}, std::pair{"8", "4"}}) {
        INFO(model << " " << sharding << " " << gpus << " × " << nodes);
        Problem p = problem_of({{"model", model}, {"sharding", sharding}, {"gpus", gpus}, {"nodes", nodes}});
        const std::vector<Choice> choices = legal_choices(p, p.node_counts.front());
        REQUIRE_FALSE(choices.empty());
        SimulationCache cache;
        for (size_t i = 0; i < choices.size(); i += 7) {
          const Plan plan = plan_of(p, p.node_counts.front(), choices[i]);
          CHECK(simulate(plan, cache).allocated_bytes() > states_bound_bytes(plan));
        }
      }
    }
  }
}

TEST_CASE("what does not fit a GPU with its optimizer fits where the host has it, and each place has its bytes", "[all]") {
  const Flags given = {{"model", "13B"}, {"machine", "dgx_h100"}, {"gpus", "1"}, {"nodes", "1"}};
  Flags open = given;
  open.emplace_back("offload-optimizer", "host");
  const Plan plan = plan_for(open);
  CHECK(plan.verdict == Verdict::kFits);
  CHECK(plan.offload.optimizer == OffloadPlace::kHost);
  CHECK(has_reason(plan, "16 B × 13,015,864,320 parameters / 1 = 194.0 GiB on the host for each GPU"));
  CHECK(plan.host.host_bytes > 16 * int64_t{13'015'864'320});
  CHECK(plan.memory.host_bytes_per_node == plan.host.host_bytes);
  CHECK(sum_of_terms(plan) == plan.memory.peak_allocated_bytes);
  CHECK(plan.memory.run_bytes < 3 * int64_t{13'015'864'320});  // a copy in bf16, and small things
  CHECK(std::any_of(plan.time.by_instruction.begin(), plan.time.by_instruction.end(),
                    [](const InstructionTime& t) { return t.op == "CopyToHost" && t.seconds > 0; }));
  const Result<Plan> read = plan_from_json(dump_json(to_json(plan)), "plan.json");
  REQUIRE(read.ok());
  CHECK(*read == plan);
  const Plan without = plan_for(given);
  CHECK(without.verdict == Verdict::kDoesNotFit);
  CHECK(has_reason(without, "fits with --offload-optimizer host"));
  // A node of 8 such GPUs has 2 TiB: 405 billion parameters are too many for it, whoever has them.
  CHECK(plan_for({{"model", "405B"}, {"machine", "dgx_h100"}, {"nodes", "1"}, {"offload-optimizer", "host"}}).verdict ==
        Verdict::kDoesNotFit);
}

TEST_CASE("when nothing fits, every fix is flags that make it fit") {
  const std::vector<Flags> hopeless = {
      {{"model", "8B"},
       {"gpu", "rtx_4090"},
       {"gpus", "8"},
       {"micro-batch", "8"},
       {"recompute", "none"},
       {"sharding", "zero3"},
       {"tp", "1"},
       {"pp", "1"}},
      {{"model", "8B"}, {"gpu", "rtx_4090"}, {"gpus", "4"}},
      {{"model", "8B"}, {"gpu", "h100"}, {"gpus", "8"}, {"sharding", "ddp"}, {"tp", "1"}, {"pp", "1"}},
      {{"model", "1B"}, {"gpu", "rtx_4090"}, {"gpus", "1"}, {"seq", "65536"}, {"global-batch", "8"}},
  };
  for (Flags given : hopeless) {
    given.emplace_back("offload-optimizer", "none");
    const Problem problem = problem_of(given);
    const Result<Plan> plan = make_plan(problem);
    REQUIRE(plan.ok());
    INFO(summary(*plan));
    CHECK(plan->verdict == Verdict::kDoesNotFit);
    CHECK(plan->diagnostics.back().code == code::kNothingFits);
    CHECK(plan->diagnostics.back().severity == Severity::kError);
    const std::vector<Fix> fixes = find_fixes(problem, *plan);
    REQUIRE_FALSE(fixes.empty());
    CHECK(plan->diagnostics.back().help == fixes.front().flags);
    CHECK(std::is_sorted(fixes.begin(), fixes.end(), [](const Fix& a, const Fix& b) {
      return std::pair(a.needs, a.seconds_per_token) < std::pair(b.needs, b.seconds_per_token);
    }));
    for (const Fix& fix : fixes) {
      Flags all = given;
      std::string_view rest = fix.flags;
      while (!rest.empty()) {
        const size_t space = rest.find(' '), end = std::min(rest.find(" --"), rest.size());
        all.emplace_back(rest.substr(0, space), rest.substr(space + 1, end - space - 1));
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
      INFO(fix.flags);
      CHECK(make_plan(problem_of(all))->verdict == Verdict::kFits);
    }
    const Result<Plan> read = plan_from_json(dump_json(to_json(*plan)), "plan.json");
    REQUIRE(read.ok());
    CHECK(*read == *plan);
  }
}

TEST_CASE("the preview: every line fits the width, ASCII stays ASCII, numbers have units") {
  const Problem problem = problem_of({{"model", "8B"}});
  const Plan plan = *make_plan(problem);
  const std::vector<SmallestFit> table = smallest_that_fits(problem);
  for (const int width : {80, 100, 60, 48}) {
    const std::string text = format_preview(plan, {.width = width, .smallest_fits = table});
    size_t begin = 0;
    for (size_t end = text.find('\n'); end != std::string::npos; begin = end + 1, end = text.find('\n', begin)) {
      const std::string line = text.substr(begin, end - begin);
      INFO(width << ": " << line);
      CHECK(display_width(line) <= width);
      CHECK((line.empty() || line.back() != ' '));
    }
  }
  const std::string text = format_preview(plan);
  for (const char* part :
       {"8,030,261,248 parameters", "1 node × 8 GPUs = 8", "GiB", "fits", "by phase", "peak at", "MFU", "runners-up", "assumed"}) {
    INFO(part);
    CHECK(text.find(part) != std::string::npos);
  }
  CHECK(text.find('\033') == std::string::npos);
  CHECK(format_preview(plan, {.colour = Colour::kOn}).find("\033[1;32mfits") != std::string::npos);
  for (const char c : format_preview(plan, {.utf8 = false, .smallest_fits = table})) CHECK(static_cast<unsigned char>(c) < 0x80);
}

TEST_CASE("the preview says how sure a verdict is, and what the run takes where there is room") {
  Plan plan = plan_for({{"model", "1B"}});
  const auto says = [&plan](const char* words) { return format_preview(plan, {.width = 100}).find(words) != std::string::npos; };
  plan.memory.fit_probability = 0.99999;
  CHECK(says("fits (99 %)"));
  CHECK_FALSE(says("where there is room"));
  plan.memory.unconstrained_device_bytes = plan.memory.device_bytes + (1LL << 30);
  CHECK(says("where there is room"));
  plan.memory.unconstrained_device_bytes = 200LL << 30;
  plan.memory.unconstrained_low_bytes = 180LL << 30;
  plan.memory.unconstrained_high_bytes = 250LL << 30;
  CHECK(says("takes 200.0 GiB (180.0 to 250.0) where there is room"));
  plan.verdict = Verdict::kTight;
  plan.memory.fit_probability = 0.839;
  CHECK(says("tight (83 %)"));
  plan.verdict = Verdict::kDoesNotFit;
  plan.memory.fit_probability = 0.1;
  CHECK(says("does not fit"));
  CHECK_FALSE(says("does not fit ("));
}

TEST_CASE("more tokens per step than the batch divides are rounded and said") {
  const Plan plan = plan_for({{"model", "1B"}, {"gpus", "8"}, {"nodes", "3"}});
  CHECK(plan.train.global_batch % 24 == 0);
  CHECK(std::any_of(plan.assumptions.begin(), plan.assumptions.end(),
                    [](const std::string& a) { return a.find("the nearest to 1,048,576") != std::string::npos; }));
}
