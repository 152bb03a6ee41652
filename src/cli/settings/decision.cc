#include "cli/settings/decision.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/names.h"
#include "base/quantity.h"
#include "cli/line/output.h"
#include "cli/settings/run_source.h"
#include "cli/settings/trials.h"
#include "model/count.h"
#include "planner/report/text_layout.h"
#include "planner/search/choice.h"
#include "planner/search/goal.h"

namespace distsetup {
namespace {

struct Decision {
  std::string_view name, path;           // `path` "" = several settings
  std::vector<std::string_view> values;  // empty: powers of two up to `largest`
  int64_t largest = 0;
  std::string (*chosen)(const Plan&) = nullptr;
};

const std::vector<Decision>& decisions() {
  static const std::vector<Decision> kDecisions = {
      {"strategy", "", {}, 0, nullptr},
      {"sharding",
       "parallel.sharding",
       {"ddp", "zero1", "zero2", "zero3"},
       0,
       [](const Plan& p) { return std::string(name(p.strategy.sharding)); }},
      {"recompute",
       "parallel.recompute",
       {"none", "selective", "keep_attention", "full"},
       0,
       [](const Plan& p) { return std::string(name(p.recompute.policy)); }},
      {"micro_batch", "parallel.micro_batch", {}, 64, [](const Plan& p) { return std::to_string(p.micro_batch); }},
      {"tp", "parallel.tp", {}, 16, [](const Plan& p) { return std::to_string(p.mesh.tp); }},
      {"pp", "parallel.pp", {}, 64, [](const Plan& p) { return std::to_string(p.mesh.pp); }},
      {"cp", "parallel.cp", {}, 64, [](const Plan& p) { return std::to_string(p.mesh.cp); }},
      {"ep", "parallel.ep", {}, 256, [](const Plan& p) { return std::to_string(p.mesh.ep); }},
      {"nodes", "hardware.nodes", {}, 512, [](const Plan& p) { return std::to_string(p.hardware.nodes); }},
  };
  return kDecisions;
}

const Decision* find_decision(std::string_view word) {
  for (const Decision& d : decisions())
    if (same_name(d.name, word)) return &d;
  return nullptr;
}

// What the strategies of the field are called, and the trainer whose plan each is.
struct Strategy {
  std::string_view label, trainer, sharding;
};
constexpr Strategy kStrategies[] = {{"DDP", "ddp", "ddp"},
                                    {"ZeRO-1", "deepspeed", "zero1"},
                                    {"ZeRO-2", "deepspeed", "zero2"},
                                    {"ZeRO-3", "deepspeed", "zero3"},
                                    {"FSDP", "fsdp2", "zero3"}};

// Of one trainer all that it may be able to.
std::vector<Strategy> strategies_of(std::string_view trainer) {
  return {{"DDP", trainer, "ddp"},
          {"ZeRO-1", trainer, "zero1"},
          {"ZeRO-2", trainer, "zero2"},
          {trainer.starts_with("fsdp") ? "FSDP" : "ZeRO-3", trainer, "zero3"}};
}

bool better(const Trial& a, const Trial& b) {
  const auto fits = [](const Trial& t) { return t.plan.has_value() ? static_cast<int>(t.plan->verdict) : 9; };
  if (fits(a) != fits(b)) return fits(a) < fits(b);
  if (!a.plan.has_value()) return false;
  if (a.plan->verdict == Verdict::kDoesNotFit) return a.plan->memory.device_bytes < b.plan->memory.device_bytes;
  return a.plan->time.tokens_per_s_per_gpu > b.plan->time.tokens_per_s_per_gpu;
}

// The rule by size alone that fires for a model, and the fewest GPUs of this kind that the plan's trainer fits on.
struct RuleCheck {
  int64_t parameters = 0;
  SizeRule rule;
  std::optional<Plan> least;
  bool agrees() const {
    if (!least.has_value()) return false;
    const int gpus = least->mesh.world();
    return gpus >= rule.fewest_gpus && (rule.most_gpus == 0 || gpus <= rule.most_gpus);
  }
};

RuleCheck check_size_rule(const Arguments& arguments, const Session& session, const Spec& spec, const Plan& plan) {
  RuleCheck check;
  check.parameters = count_parameters(plan.model).total;
  check.rule = size_rule(check.parameters);
  Spec fewest = spec;
  fewest.settings.erase("hardware.nodes");
  fewest.settings.erase("hardware.total_gpus");
  fewest.settings.erase("hardware.gpus_per_node");
  Diagnostics ignored = set(fewest, "hardware.nodes", "auto", command_line());
  if (spec.find("trainer.name") == nullptr) append(ignored, set(fewest, "trainer.name", plan.strategy.trainer, command_line()));
  Result<Problem> problem = read_problem(arguments, session, fewest);
  if (!problem.ok()) return check;
  problem->goal = Goal::kMinGpus;
  Result<Plan> least = make_plan_for_goal(*problem);
  if (least.value && least->verdict == Verdict::kFits) check.least = std::move(*least.value);
  return check;
}

std::string text_of(const RuleCheck& check) {
  std::string text = fmt::format("\nby size alone: {} parameters, {}\n", format_count(check.parameters), check.rule.fired);
  if (!check.least.has_value()) return text + "by memory: nothing of this GPU fits\n";
  const int gpus = check.least->mesh.world();
  return text + fmt::format("by memory: {} {} with {} ({}), {}\n", gpus, gpus == 1 ? "GPU" : "GPUs", check.least->strategy.trainer,
                            summary(*check.least),
                            check.agrees() ? "which agrees"
                            : gpus < check.rule.fewest_gpus
                                ? "fewer than the rule asks for"
                                : "more than the rule says: its table counts weights, not gradients and optimizer state");
}

Json json_of(const RuleCheck& check) {
  Json json = {{"parameters", check.parameters}, {"fired", check.rule.fired}, {"fewest_gpus", check.rule.fewest_gpus}};
  json["most_gpus"] = check.rule.most_gpus > 0 ? Json(check.rule.most_gpus) : Json(nullptr);
  json["gpus_by_memory"] = check.least.has_value() ? Json(check.least->mesh.world()) : Json(nullptr);
  json["agrees"] = check.agrees();
  return json;
}

// Tries values of one run.
struct Question {
  const Arguments& arguments;
  const Session& session;
  Spec spec;

  Trial ask(const std::vector<std::pair<std::string, std::string>>& settings, const std::string& label = "") const {
    return try_value(arguments, session, spec, settings, label);
  }
};

// The plan that is explained. Strategies are other trainers': the bundled one need not run the model.
Result<Plan> explained_plan(const Question& question, const Decision& decision) {
  Trial base = question.ask({});
  for (const char* trainer : {"fsdp2", "fsdp1", "megatron"}) {
    if (decision.name != "strategy" || base.plan.has_value()) break;
    if (Trial other = question.ask({{"trainer.name", trainer}}); other.plan.has_value()) base = std::move(other);
  }
  if (base.plan.has_value()) return std::move(*base.plan);
  const Result<Problem> problem = read_problem(question.arguments, question.session, question.spec);
  if (!problem.ok()) return problem.diagnostics;
  return error(code::kNothingFits, command_line(), base.refused);
}

struct Answer {
  std::vector<Trial> trials;
  std::string chosen;  // the value of one of them; "" = none
  std::string note;
  std::optional<RuleCheck> rule;
};

constexpr char kThePlan[] = "plan";

// Whose plans the rows are.
std::string trainers_note(const std::vector<Trial>& trials) {
  std::string text;
  for (const Trial& one : trials) {
    if (!one.plan.has_value()) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", one.value, one.plan->strategy.trainer);
  }
  return text.empty() ? "" : fmt::format("\ntrainers: {}; --trainer compares the strategies of one\n", text);
}

Answer compare_strategies(const Question& question, const Plan& base) {
  Answer answer;
  const std::string named = question.spec.text("trainer.name").value_or("");
  for (const Strategy& s : named.empty() ? std::vector(std::begin(kStrategies), std::end(kStrategies)) : strategies_of(named)) {
    const auto with = [&](std::string_view trainer) {
      return question.ask({{"trainer.name", std::string(trainer)}, {"parallel.sharding", std::string(s.sharding)}},
                          std::string(s.label));
    };
    Trial trial = with(s.trainer);
    if (named.empty() && s.label == "FSDP" && !trial.plan.has_value()) {  // adapters, fp16
      if (Trial other = with("fsdp1"); other.plan.has_value()) trial = std::move(other);
    }
    answer.trials.push_back(std::move(trial));
  }
  const auto is_there = [&base](const Trial& one) {
    return one.plan.has_value() && one.plan->strategy.trainer == base.strategy.trainer && summary(*one.plan) == summary(base);
  };
  if (named.empty() && std::none_of(answer.trials.begin(), answer.trials.end(), is_there))
    answer.trials.push_back({kThePlan, base, ""});
  std::stable_sort(answer.trials.begin(), answer.trials.end(), better);
  const Trial& best = answer.trials.front();
  if (best.plan.has_value() && best.plan->verdict == Verdict::kFits) answer.chosen = best.value;
  answer.rule = check_size_rule(question.arguments, question.session, question.spec, base);
  answer.note = (named.empty() ? trainers_note(answer.trials) : "") + text_of(*answer.rule);
  return answer;
}

Answer compare_values(const Question& question, const Decision& decision, const Plan& base) {
  Answer answer;
  std::vector<std::string> values(decision.values.begin(), decision.values.end());
  for (int64_t v = 1; v <= decision.largest; v *= 2) values.push_back(std::to_string(v));
  for (const std::string& value : values) {
    Trial trial = question.ask({{std::string(decision.path), value}}, value);
    const bool is_refused_again = !trial.plan.has_value() && !answer.trials.empty() && !answer.trials.back().plan.has_value();
    if (is_refused_again && decision.values.empty()) break;  // larger ones are refused too
    answer.trials.push_back(std::move(trial));
  }
  answer.chosen = decision.chosen(base);
  answer.note = fmt::format("\n* the plan: {}. Each line pins {} and searches the rest.\n", summary(base), decision.path);
  return answer;
}

}  // namespace

bool is_decision(std::string_view word) { return find_decision(word) != nullptr; }

std::vector<std::string> decision_names() {
  std::vector<std::string> names;
  for (const Decision& d : decisions()) names.emplace_back(d.name);
  return names;
}

int explain_decision(const Arguments& arguments, const Session& session, const Terminal& terminal, std::string_view word) {
  const Decision& decision = *find_decision(word);
  Arguments of_run = arguments;  // the word is no run file
  of_run.positionals.clear();
  const Result<Spec> spec = read_spec(of_run, session);
  if (!spec.ok()) return fail(arguments, terminal, spec.diagnostics);
  Question question{arguments, session, *spec};
  const Result<Plan> base = explained_plan(question, decision);
  if (!base.ok()) return fail(arguments, terminal, base.diagnostics);
  // Other values are compared on the machine of the answer.
  if (decision.name != "nodes" && !spec->find("hardware.nodes") && !spec->find("hardware.total_gpus")) {
    const Diagnostics said = set(question.spec, "hardware.nodes", std::to_string(base->hardware.nodes), command_line());
    if (has_error(said)) return fail(arguments, terminal, said);
  }
  const Answer answer = decision.path.empty() ? compare_strategies(question, *base) : compare_values(question, decision, *base);
  if (arguments.has("json")) {
    Json json = {{"schema_version", 1}, {"decision", decision.name}, {"chosen", answer.chosen}, {"rows", trials_json(answer.trials)}};
    if (answer.rule.has_value()) json["size_rule"] = json_of(*answer.rule);
    return print_result(terminal, dump_json(json));
  }
  return print_result(terminal, trials_text(std::string(decision.name), answer.trials, answer.chosen, terminal.out) +
                                    wrap_lines(answer.note, terminal.out.width_columns));
}

}  // namespace distsetup
