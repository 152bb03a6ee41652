#include "cli/settings/decision.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/names.h"
#include "base/quantity.h"
#include "cli/line/output.h"
#include "cli/settings/run_source.h"
#include "model/count.h"
#include "planner/report/text_layout.h"
#include "planner/search/goal.h"

namespace distsetup {
namespace {

struct Decision {
  std::string_view name, path;
  std::vector<std::string_view> values;  // empty: powers of two
  int64_t largest = 0;                   // of powers of two
};

const std::vector<Decision>& decisions() {
  static const std::vector<Decision> kDecisions = {
      {"strategy", "", {}, 0},
      {"sharding", "parallel.sharding", {"ddp", "zero1", "zero2", "zero3"}, 0},
      {"recompute", "parallel.recompute", {"none", "selective", "full"}, 0},
      {"micro_batch", "parallel.micro_batch", {}, 64},
      {"tp", "parallel.tp", {}, 16},
      {"pp", "parallel.pp", {}, 64},
      {"cp", "parallel.cp", {}, 64},
      {"ep", "parallel.ep", {}, 256},
      {"nodes", "hardware.nodes", {}, 512},
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

bool better(const Trial& a, const Trial& b) {
  const auto fits = [](const Trial& t) { return t.plan.has_value() ? static_cast<int>(t.plan->verdict) : 9; };
  if (fits(a) != fits(b)) return fits(a) < fits(b);
  if (!a.plan.has_value()) return false;
  if (a.plan->verdict == Verdict::kDoesNotFit) return a.plan->memory.device_bytes < b.plan->memory.device_bytes;
  return a.plan->time.tokens_per_s_per_gpu > b.plan->time.tokens_per_s_per_gpu;
}

// The rule by size alone that fires for a model, and the fewest GPUs of this kind that FSDP fits on.
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
  append(ignored, set(fewest, "trainer.name", "fsdp2", command_line()));
  Result<Problem> problem = read_problem(arguments, session, fewest);
  if (!problem.ok()) {  // what torchtitan does not run, the Trainer may
    append(ignored, set(fewest, "trainer.name", "fsdp1", command_line()));
    problem = read_problem(arguments, session, fewest);
  }
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
  return text + fmt::format("by memory: {} {} with FSDP ({}), {}\n", gpus, gpus == 1 ? "GPU" : "GPUs", summary(*check.least),
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

}  // namespace

Trial try_value(const Arguments& arguments, const Session& session, Spec spec,
                const std::vector<std::pair<std::string, std::string>>& settings, std::string label) {
  Trial trial;
  trial.value = std::move(label);
  Diagnostics said;
  for (const auto& [path, value] : settings) {
    if (path == "hardware.nodes") spec.settings.erase("hardware.total_gpus");
    if (path == "train.global_batch") spec.settings.erase("train.global_batch_tokens");
    append(said, set(spec, path, value, command_line()));
  }
  const auto refuse = [&](const Diagnostics& why) {
    for (const Diagnostic& d : why)
      if (d.severity == Severity::kError && trial.refused.empty()) trial.refused = d.message;
  };
  if (has_error(said)) {
    refuse(said);
    return trial;
  }
  Result<Problem> problem = read_problem(arguments, session, spec);
  if (!problem.ok()) {
    refuse(problem.diagnostics);
    return trial;
  }
  const Result<std::string> goal = choice_flag(arguments, "goal", "throughput", goal_names());
  if (goal.ok()) problem->goal = *goal_of(*goal);
  Result<Plan> plan = make_plan_for_goal(*problem);
  if (!plan.value) {
    refuse(plan.diagnostics);
    return trial;
  }
  trial.plan = std::move(*plan.value);
  return trial;
}

std::string trials_text(const std::string& heading, const std::vector<Trial>& trials, const std::string& chosen,
                        const TextStream& stream) {
  int first = display_width(heading);
  for (const Trial& t : trials) first = std::max(first, display_width(t.value));
  const std::string head = "  " + pad_right(heading, first) + pad_left("per GPU", 12) + "  " + pad_right("verdict", 12) +
                           pad_left("step", 10) + pad_left("tokens/s/GPU", 14) + "  plan\n";
  std::string text = cut(head, stream.width_columns);
  if (text.empty() || text.back() != '\n') text += '\n';
  for (const Trial& t : trials) {
    std::string line = (t.value == chosen ? "* " : "  ") + pad_right(t.value, first);
    if (t.plan.has_value()) {
      const Plan& p = *t.plan;
      line += pad_left(format_gib(p.memory.device_bytes), 12) + "  " + pad_right(std::string(verdict_words(p.verdict)), 12) +
              pad_left(format_duration(p.time.step_s), 10) +
              pad_left(format_count(static_cast<int64_t>(p.time.tokens_per_s_per_gpu)), 14) + "  " + summary(p);
    } else {
      line += "  " + t.refused;
    }
    text += cut(line, stream.width_columns) + "\n";
  }
  return text;
}

Json trials_json(const std::vector<Trial>& trials) {
  Json rows = Json::array();
  for (const Trial& t : trials) {
    Json row = {{"value", t.value}};
    if (t.plan.has_value()) {
      row["verdict"] = name(t.plan->verdict);
      row["device_bytes"] = t.plan->memory.device_bytes;
      row["capacity_bytes"] = t.plan->memory.capacity_bytes;
      row["step_s"] = t.plan->time.step_s;
      row["tokens_per_s_per_gpu"] = t.plan->time.tokens_per_s_per_gpu;
      row["gpus"] = t.plan->mesh.world();
      row["summary"] = summary(*t.plan);
    } else {
      row["verdict"] = nullptr;
      row["refused"] = t.refused;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

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
  Result<Spec> spec = read_spec(of_run, session);
  if (!spec.ok()) return fail(arguments, terminal, spec.diagnostics);
  Trial base = try_value(arguments, session, *spec, {}, "");
  // Strategies are other trainers': the bundled one need not run the model.
  for (const char* trainer : {"fsdp2", "fsdp1", "megatron"}) {
    if (decision.name != "strategy" || base.plan.has_value()) break;
    Trial other = try_value(arguments, session, *spec, {{"trainer.name", trainer}}, "");
    if (other.plan.has_value()) base = std::move(other);
  }
  if (!base.plan.has_value()) {
    const Result<Problem> problem = read_problem(arguments, session, *spec);
    if (!problem.ok()) return fail(arguments, terminal, problem.diagnostics);
    return fail(arguments, terminal, {error(code::kNothingFits, command_line(), base.refused)});
  }
  // Other values are compared on the machine of the answer.
  if (decision.name != "nodes" && !spec->find("hardware.nodes") && !spec->find("hardware.total_gpus")) {
    const Diagnostics said = set(*spec, "hardware.nodes", std::to_string(base.plan->hardware.nodes), command_line());
    if (has_error(said)) return fail(arguments, terminal, said);
  }
  std::vector<Trial> trials;
  std::string chosen, note;
  std::optional<RuleCheck> rule;
  if (decision.name == "strategy") {
    for (const Strategy& s : kStrategies) {
      const auto with = [&](const char* trainer) {
        return try_value(arguments, session, *spec, {{"trainer.name", trainer}, {"parallel.sharding", std::string(s.sharding)}},
                         std::string(s.label));
      };
      trials.push_back(with(std::string(s.trainer).c_str()));
      if (s.label != "FSDP" || trials.back().plan.has_value()) continue;
      if (Trial other = with("fsdp1"); other.plan.has_value()) trials.back() = std::move(other);  // adapters, fp16
    }
    std::stable_sort(trials.begin(), trials.end(), better);
    if (trials.front().plan.has_value() && trials.front().plan->verdict == Verdict::kFits) chosen = trials.front().value;
    rule = check_size_rule(arguments, session, *spec, *base.plan);
    note = text_of(*rule);
  } else {
    std::vector<std::string> values(decision.values.begin(), decision.values.end());
    for (int64_t v = 1; values.empty() || (decision.values.empty() && v <= decision.largest); v *= 2)
      values.push_back(std::to_string(v));
    for (const std::string& value : values) {
      Trial trial = try_value(arguments, session, *spec, {{std::string(decision.path), value}}, value);
      const bool done = !trial.plan.has_value() && decision.values.empty() && !trials.empty() && !trials.back().plan.has_value();
      if (done) break;  // two refusals in a row: larger ones are refused too
      trials.push_back(std::move(trial));
    }
    const Plan& p = *base.plan;
    chosen = decision.name == "sharding"      ? std::string(name(p.strategy.sharding))
             : decision.name == "recompute"   ? std::string(name(p.recompute.policy))
             : decision.name == "micro_batch" ? std::to_string(p.micro_batch)
             : decision.name == "tp"          ? std::to_string(p.mesh.tp)
             : decision.name == "pp"          ? std::to_string(p.mesh.pp)
             : decision.name == "cp"          ? std::to_string(p.mesh.cp)
             : decision.name == "ep"          ? std::to_string(p.mesh.ep)
                                              : std::to_string(p.hardware.nodes);
    note = fmt::format("\n* the plan: {}. Each line pins {} and searches the rest.\n", summary(p), decision.path);
  }
  if (arguments.has("json")) {
    Json json = {{"schema_version", 1}, {"decision", decision.name}, {"chosen", chosen}, {"rows", trials_json(trials)}};
    if (rule.has_value()) json["size_rule"] = json_of(*rule);
    return print_result(terminal, dump_json(json));
  }
  return print_result(terminal, trials_text(std::string(decision.name), trials, chosen, terminal.out) + note);
}

}  // namespace distsetup
