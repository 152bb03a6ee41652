#include "service/job_planning.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/file.h"
#include "base/json_text.h"
#include "base/quantity.h"
#include "base/text.h"
#include "base/value_yaml.h"
#include "service/plan_shape.h"
#include "service/sibling_program.h"

namespace distsetup {
namespace {

constexpr int kNoFitCode = 4;
constexpr double kMostPlanning_s = 120;  // of one plan
constexpr int64_t kSavesPerEpoch = 5;    // as the seed's trainer does, where save_steps does not say it

Json tree_of(const Value& value) {
  switch (value.kind) {
    case Value::Kind::kNull: return nullptr;
    case Value::Kind::kList: {
      Json out = Json::array();
      for (const Value& one : value.items) out.push_back(tree_of(one));
      return out;
    }
    case Value::Kind::kMap: {
      Json out = Json::object();
      for (const auto& [key, child] : value.entries) out[key] = tree_of(child);
      return out;
    }
    case Value::Kind::kScalar: break;
  }
  if (value.quoted) return value.text;
  Json number = json_from_text(value.text);
  return number.is_discarded() || number.is_structured() ? Json(value.text) : number;
}

// The envelope of an error: `diagnostics`.
HttpAnswer refusal_of(const Json& envelope, const std::string& absent) {
  std::vector<BodyMistake> mistakes;
  for (const Json& one : envelope.is_object() ? envelope.value("diagnostics", Json::array()) : Json::array()) {
    if (one.value("severity", "") != "error") continue;
    const Json at = one.value("location", Json::object());
    std::string where = at.value("file", "");
    if (at.value("line", 0) > 0) where += fmt::format(":{}:{}", at.value("line", 0), at.value("column", 0));
    mistakes.push_back({where, one.value("message", ""), one.value("help", "")});
  }
  if (mistakes.empty()) return refusal(503, absent);
  const BodyMistake& first = mistakes.front();
  return refusal(400, first.message + (first.help.empty() ? "" : "; " + first.help), mistakes);
}

std::string first_error(const Json& envelope) {
  for (const Json& one : envelope.is_object() ? envelope.value("diagnostics", Json::array()) : Json::array()) {
    if (one.value("severity", "") == "error") return one.value("message", "");
  }
  return "";
}

struct TableField {
  Json value;
  std::string key;
  bool is_assumed = false;
};

struct ServedReading {
  std::optional<HttpAnswer> refused;
  std::map<std::string, TableField> fields;
  Json not_carried = Json::array();
  std::string run_file;
};

ServedReading read_by_tables(const std::string& folder, const std::string& file, double limit_s) {
  ServedReading out;
  const SiblingAnswer said = ask_sibling({"convert", "--to", "run", file, "--json"}, folder, limit_s);
  const Json json = said.json();
  if (!said.is_started || said.exit_code != 0 || !json.is_object()) {
    out.refused = refusal_of(json, "`distsetup convert` did not answer");
    return out;
  }
  for (const Json& one : json.value("read", Json::array())) {
    for (const Json& field : one.value("fields", Json::array()))
      out.fields[field.value("field", "")] = {field.value("value", Json()), field.value("key", ""), field.value("assumed", false)};
  }
  out.not_carried = json.value("not_carried", Json::array());
  for (const Json& one : json.value("files", Json::array())) out.run_file = one.value("text", "");
  return out;
}

bool is_acting(const std::vector<std::string>& acting, const std::string& key) {
  return std::any_of(acting.begin(), acting.end(), [&key](const std::string& one) {
    return one == key || (one.ends_with(".*") && key.starts_with(one.substr(0, one.size() - 1))) ||
           key == one.substr(0, one.find('.')) + ".*";
  });
}

// Nothing that has no value, and the algorithm by its name: releases differ in whether they send it.
Json normal_request(Json request, const std::string& method) {
  const auto without_nulls = [](Json& json, const auto& self) -> void {
    if (!json.is_object()) return;
    for (auto it = json.begin(); it != json.end();) {
      if (it->is_null()) {
        it = json.erase(it);
      } else {
        self(*it, self);
        ++it;
      }
    }
  };
  without_nulls(request, without_nulls);
  if (method == "dpo") request["algorithm_config"]["type"] = "dpo";
  for (const char* key : {"logger_config", "hyperparam_search_config"}) {
    if (request.contains(key) && request[key].empty()) request.erase(key);
  }
  request.erase("priority");
  return request;
}

std::string word_after(const std::vector<std::string>& words, const std::string& flag) {
  const auto found = std::find(words.begin(), words.end(), flag);
  return found == words.end() || found + 1 == words.end() ? "" : found[1];
}

int64_t whole_field(const ServedReading& request, const ServedReading& provider, const std::string& name, int64_t absent) {
  for (const ServedReading* reading : {&request, &provider}) {
    const auto found = reading->fields.find(name);
    if (found != reading->fields.end() && found->second.value.is_number_integer()) return found->second.value.get<int64_t>();
  }
  return absent;
}

// Settings of both: the request's is taken.
Json differences(const ServedReading& request, const ServedReading& provider) {
  Json out = Json::array();
  for (const auto& [name, mine] : request.fields) {
    const auto other = provider.fields.find(name);
    if (other == provider.fields.end() || mine.is_assumed || other->second.is_assumed || mine.value == other->second.value) continue;
    out.push_back(fmt::format("{} is {} ({} of the request), not {} ({} of the configuration)", name, mine.value.dump(), mine.key,
                              other->second.value.dump(), other->second.key));
  }
  return out;
}

// Plans every combination of what is searched; says why where none of them can be trained.
std::optional<HttpAnswer> check_grid(PlanningOutcome& outcome, const std::string& folder) {
  constexpr int64_t kLeastSteps = 10;
  std::vector<std::string> words = outcome.words;
  words[0] = "sweep";
  words.insert(words.end(), {"--from", "request.json", "--json", "--quiet"});
  const SiblingAnswer said = ask_sibling(words, folder);
  if (!said.is_started || said.exit_code != 0) return refusal_of(said.json(), "`distsetup sweep` did not answer");
  outcome.tune_steps = std::min(outcome.counts.steps, std::max(kLeastSteps, outcome.counts.steps / 10));
  return std::nullopt;
}

bool write_input(const std::string& path, const std::string& text) { return write_file_atomic(path, text, Overwrite::kForce).ok(); }

}  // namespace

std::string provider_text_of(const ServiceSettings& settings) {
  if (settings.config_text.empty()) return "";
  const Result<Value> file = parse_yaml(settings.config_text, settings.config_path);
  if (!file.ok()) return "";
  std::vector<std::string> lines = split(settings.config_text, '\n');
  bool has_others = false;
  for (size_t i = 0; i < file->entries.size(); ++i) {
    if (file->entries[i].first != "serve") {
      has_others = true;
      continue;
    }
    const size_t first = static_cast<size_t>(file->key_locations[i].line) - 1;
    const size_t last = i + 1 < file->entries.size() ? static_cast<size_t>(file->key_locations[i + 1].line) - 1 : lines.size();
    for (size_t line = first; line < std::min(last, lines.size()); ++line) lines[line].clear();
  }
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return has_others ? text : "";
}

Json provider_tree_of(const ServiceSettings& settings) {
  if (settings.config_text.empty()) return nullptr;
  const Result<Value> file = parse_yaml(settings.config_text, settings.config_path);
  if (!file.ok()) return nullptr;
  Json tree = tree_of(*file);
  if (!tree.contains("providers")) return tree;
  const Json providers = tree["providers"].value("post_training", Json::array());
  const std::string wanted = settings.mode == ServiceMode::kInline ? "inline::trl" : "remote::trl_fsdp";
  for (const Json& one : providers) {
    if (one.value("provider_type", "") == wanted) return one.value("config", Json::object());
  }
  return Json::object();
}

PlanningOutcome plan_training(Service& service, const std::string& folder, const PlanningInput& input) {
  PlanningOutcome out;
  const double limit_s = std::min(kMostPlanning_s, service.settings.request_timeout_s);
  const Json request = normal_request(input.request, input.method);
  if (const std::vector<BodyMistake> mistakes = unsupported_settings(request, input.provider, service.settings, input.method);
      !mistakes.empty()) {
    out.refused = refusal(400, mistakes[0].where + " " + mistakes[0].message, mistakes);
    return out;
  }
  bool is_written = write_input(folder + "/request.json", request.dump(1) + "\n");
  if (!input.provider_text.empty()) is_written &= write_input(folder + "/provider.yaml", input.provider_text);
  ServedReading asked;
  if (is_written) asked = read_by_tables(folder, "request.json", limit_s);
  ServedReading provider;
  if (is_written && !input.provider_text.empty()) provider = read_by_tables(folder, "provider.yaml", limit_s);
  for (ServedReading* reading : {&asked, &provider}) {
    if (reading->refused) {
      out.refused = reading->refused;
      return out;
    }
  }
  is_written = is_written && write_input(folder + "/run.yaml", asked.run_file);
  if (!is_written) {
    out.refused = refusal(503, "the job's files cannot be written: is the disk full?");
    return out;
  }
  std::vector<std::string> fields;
  for (const ServedReading* reading : {&asked, &provider}) {
    for (const auto& [name, field] : reading->fields) {
      if (!field.is_assumed) fields.push_back(name);
    }
  }
  const TrainingWords words = training_words(request, input.provider, fields, service.settings, input.method,
                                             input.takes_any_trainer ? PlannedFor::kPeople : PlannedFor::kJob);
  const auto number = [](const std::string& text, int64_t absent) {
    return text.empty() ? absent : std::strtoll(text.c_str(), nullptr, 10);
  };
  const int64_t micro_batch = whole_field(asked, provider, "micro_batch", number(word_after(words.words, "--micro-batch"), 1));
  const int64_t accumulation =
      whole_field(asked, provider, "gradient_accumulation", number(word_after(words.words, "--gradient-accumulation"), 1));
  std::vector<std::string> plan_words = {"plan", "run.yaml", "--model", input.model};
  if (!input.provider_text.empty()) plan_words.insert(plan_words.end(), {"--from", "provider.yaml"});
  for (size_t i = 0; i < words.words.size(); ++i) {  // each flag once
    const bool is_over =
        std::find(input.over.begin(), input.over.end(), words.words[i]) != input.over.end() && words.words[i].starts_with("--");
    if (is_over)
      ++i;
    else
      plan_words.push_back(words.words[i]);
  }
  plan_words.insert(plan_words.end(), input.over.begin(), input.over.end());
  if (input.num_rows > 0) {
    out.counts = count_steps(request, input.num_rows, micro_batch * accumulation * service.settings.world());
    plan_words.insert(plan_words.end(), {"--steps", std::to_string(out.counts.steps)});
    if (std::find(fields.begin(), fields.end(), "checkpoint.every_steps") == fields.end())
      plan_words.insert(plan_words.end(),
                        {"--checkpoint-every", std::to_string(std::max<int64_t>(1, out.counts.steps_per_epoch / kSavesPerEpoch))});
  }
  out.words = plan_words;
  plan_words.insert(plan_words.end(), {"--json", "--quiet"});
  SiblingAnswer said = ask_sibling(plan_words, folder, limit_s);
  Json plan = said.json();
  std::string why_other;
  const auto trainer = std::find(plan_words.begin(), plan_words.end(), "--trainer");
  if (input.takes_any_trainer && plan.is_object() && !plan.contains("memory") && trainer != plan_words.end()) {
    plan_words.erase(trainer, trainer + 2);
    const SiblingAnswer other = ask_sibling(plan_words, folder, limit_s);
    if (const Json others = other.json(); others.is_object() && others.contains("memory")) {
      why_other = first_error(plan);
      said = other;
      plan = others;
      out.words.assign(plan_words.begin(), plan_words.end() - 2);
    }
  }
  if (!said.is_started || !plan.is_object() || !plan.contains("memory")) {
    out.refused = refusal_of(plan, "`distsetup plan` did not answer");
    return out;
  }
  out.does_fit = said.exit_code != kNoFitCode;
  out.plan = plan_shape(plan);
  std::vector<std::string> settled = words.acting_keys;
  for (const BodyMistake& one : words.idle) {
    out.plan["not_supported"].push_back({{"key", one.where}, {"value", one.message}, {"reason", one.help}});
    settled.push_back(one.where);
  }
  for (const ServedReading* reading : {&asked, &provider}) {
    for (const Json& one : reading->not_carried) {
      if (!is_acting(settled, one.value("key", "")))
        out.plan["not_supported"].push_back(
            {{"key", one.value("key", "")}, {"value", one.value("value", "")}, {"reason", one.value("reason", "")}});
    }
  }
  if (!why_other.empty()) out.plan["warnings"].push_back("planned for another trainer, a job is refused: " + why_other);
  for (const Json& one : differences(asked, provider)) out.plan["warnings"].push_back(one);
  for (const std::string& note : words.notes) out.plan["warnings"].push_back(note);
  out.log_every = words.log_every;
  out.prompt_format = words.prompt_format;
  if (const auto grid = request.find("hyperparam_search_config"); grid != request.end() && grid->is_object() && !grid->empty())
    out.refused = check_grid(out, folder);
  return out;
}

Json recommendation(const std::string& folder, const PlanningOutcome& outcome) {
  const int64_t parameters = outcome.plan.value("model_parameters", int64_t{0});
  const ProviderRule rule = provider_rule(parameters);
  std::vector<std::string> words;
  for (size_t i = 0; i < outcome.words.size(); ++i) {
    const bool is_over =
        outcome.words[i].starts_with("--") && std::find(rule.words.begin(), rule.words.end(), outcome.words[i]) != rule.words.end();
    if (is_over)
      ++i;
    else
      words.push_back(outcome.words[i]);
  }
  words.insert(words.end(), rule.words.begin(), rule.words.end());
  words.insert(words.end(), {"--json", "--quiet"});
  Json plan = ask_sibling(words, folder).json();
  const auto trainer = std::find(words.begin(), words.end(), "--trainer");
  if (trainer != words.end() && (!plan.is_object() || !plan.contains("memory"))) {  // the rule may ask for what it cannot run yet
    words.erase(trainer, trainer + 2);
    plan = ask_sibling(words, folder).json();
  }
  Json out = {
      {"rule", rule.rule}, {"recommended", rule.recommended}, {"agrees", nullptr}, {"why", "its hardware could not be planned"}};
  if (!plan.is_object() || !plan.contains("memory")) return out;
  const Json shape = plan_shape(plan);
  const int64_t need = shape["predicted"].value("device_bytes", int64_t{0}),
                have = shape["predicted"].value("capacity_bytes", int64_t{0});
  const bool fits = shape.value("verdict", "") != "does_not_fit";
  out["agrees"] = fits;
  out["why"] = fmt::format("{} parameters on {} × {}: {} per GPU of {}: {}", format_count(parameters), shape.value("gpus_per_node", 1),
                           shape.value("gpu", ""), format_bytes(need), format_bytes(have), fits ? "fits" : "does not fit");
  out["gpus"] = shape.value("gpus_per_node", 1);
  out["device_bytes"] = need;
  if (!fits) out["fixes"] = shape["fixes"];
  return out;
}

}  // namespace distsetup
