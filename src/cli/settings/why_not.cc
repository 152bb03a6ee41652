#include "cli/settings/why_not.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "base/quantity.h"
#include "base/text.h"
#include "cli/settings/trials.h"
#include "planner/report/words.h"
#include "planner/search/answer.h"
#include "planner/search/choice.h"
#include "planner/spec/spec_lookup.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

using Pins = std::vector<std::pair<std::string, std::string>>;

const SpecKey* key_of(std::string_view name) {
  const SpecKey* key = find_spec_key(name);
  if (key == nullptr) key = find_spec_key(fmt::format("parallel.{}", name));
  return key != nullptr ? key : find_spec_flag(name);
}

// Settings whose values are known without their name.
constexpr std::string_view kByValue[] = {"parallel.sharding", "parallel.recompute", "precision.compute"};

// "fsdp2" is a trainer before it is a way to split; "ddp" is not.
const SpecKey* key_with(std::string_view value) {
  const SpecKey* trainer = find_spec_key("trainer.name");
  for (const SettingChoice& choice : trainer->choices)
    if (same_name(choice.value, value) && choice.value != "ddp") return trainer;
  for (const std::string_view path : kByValue) {
    const SpecKey* key = find_spec_key(path);
    for (const SettingChoice& choice : key->choices) {
      const auto is_same = [&](std::string_view one) { return same_name(one, value); };
      if (is_same(choice.value) || std::any_of(choice.aliases.begin(), choice.aliases.end(), is_same)) return key;
    }
  }
  return nullptr;
}

bool pin(const std::string& word, Pins& pins) {
  const auto add = [&](const SpecKey* key, std::string_view value) {
    if (key == nullptr || value.empty()) return false;
    pins.emplace_back(std::string(key->path), std::string(value));
    return true;
  };
  const size_t equals = word.find_first_of("=:");
  if (equals != std::string::npos && add(key_of(word.substr(0, equals)), word.substr(equals + 1))) return true;
  if (add(key_with(word), word)) return true;
  const size_t digit = word.find_first_of("0123456789");
  return digit != std::string::npos && digit > 0 && add(key_of(word.substr(0, digit)), word.substr(digit));
}

Result<Pins> pins_of(const std::string& text) {
  Pins pins;
  std::string spaced = text;
  std::replace(spaced.begin(), spaced.end(), ',', ' ');
  for (const std::string& word : split_words(spaced, ' ')) {
    if (!pin(word, pins))
      return error(code::kUnknownValue, command_line(), fmt::format("--why-not: '{}' is no setting of a plan", word),
                   "--why-not \"zero1 tp=8 micro-batch=2\"");
  }
  if (pins.empty()) return error(code::kMissingArgument, command_line(), "--why-not of what", "--why-not \"zero1 tp=8\"");
  return pins;
}

std::string speed_words(const Plan& other, const Plan& best) {
  if (other.time.step_s <= 0 || best.time.step_s <= 0) return "";
  return fmt::format(" · {} per step, {:.2f}× the tokens/s per GPU", format_duration(other.time.step_s),
                     other.time.tokens_per_s_per_gpu / best.time.tokens_per_s_per_gpu);
}

// One trial in words: what it needs, how fast it is, and what decided.
std::string verdict_of(const Trial& trial, const PlanSource& made) {
  if (!trial.plan.has_value()) return fmt::format("refused: {}", trial.refused);
  const Plan &other = *trial.plan, &best = made.plan;
  const std::string needs = fmt::format("{} · {} of {} per {}{}", verdict_words(other.verdict, other.memory.fit_probability),
                                        format_bytes(other.memory.device_bytes), format_bytes(other.memory.capacity_bytes),
                                        rank_word(other.hardware), speed_words(other, best));
  if (other.strategy.trainer == best.strategy.trainer && choice_of(other) == choice_of(best)) return needs + "\nit is the plan";
  const double ratio = best.time.step_s > 0 ? other.time.tokens_per_s_per_gpu / best.time.tokens_per_s_per_gpu : 1;
  const std::string rule = other.strategy.trainer == best.strategy.trainer ? why_lost(*made.problem, other, best)
                           : other.verdict > best.verdict                  ? verdict_words(other.verdict, other.memory.fit_probability)
                           : ratio < 1                                     ? fmt::format("{:.2f}× tokens/s", ratio)
                                                                           : "another trainer, which nobody asked for";
  return fmt::format("{}\nlost by: {}", needs, rule);
}

}  // namespace

Result<std::string> explain_why_not(const Arguments& arguments, const Session& session, const PlanSource& made,
                                    const std::string& words) {
  const Result<Pins> pins = pins_of(words);
  if (!pins.ok()) return pins.diagnostics;
  if (!made.problem.has_value())
    return error(code::kConflict, command_line(), "a plan that is made has no others beside it", "leave --plan away");
  const Result<Spec> spec = read_spec(arguments, session);
  if (!spec.ok()) return spec.diagnostics;
  Pins wanted = *pins;
  const auto is_pinned = [&](std::string_view path) {
    return std::any_of(wanted.begin(), wanted.end(), [&](const auto& one) { return one.first == path; });
  };
  if (!is_pinned("hardware.nodes")) wanted.emplace_back("hardware.nodes", std::to_string(made.plan.hardware.nodes));
  Pins with_trainer = wanted;
  if (!is_pinned("trainer.name")) with_trainer.emplace_back("trainer.name", made.plan.strategy.trainer);
  const Trial trial = try_value(arguments, session, *spec, with_trainer, words);
  const auto told = [&](const Trial& one) {
    const std::string what = one.plan.has_value() ? summary(*one.plan) : words;
    const std::string& trainer = one.plan.has_value() ? one.plan->strategy.trainer : made.plan.strategy.trainer;
    return fmt::format("{}{}\n{}\n", what, trainer == kNative ? "" : " · " + trainer, verdict_of(one, made));
  };
  std::string text = fmt::format("the plan: {}\n\nwhy not {}: {}", headline(made.plan), words, told(trial));
  if (trial.plan.has_value() || is_pinned("trainer.name") || spec->find("trainer.name") != nullptr) return text;
  const Trial elsewhere = try_value(arguments, session, *spec, wanted, words);  // with who can
  if (elsewhere.plan.has_value()) text += fmt::format("\nwith the first trainer that can: {}", told(elsewhere));
  return text;
}

}  // namespace distsetup
