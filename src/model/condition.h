// Conditions that files of presets put on a model: "qk_norm", "not qk_norm", "norm = rms".
#pragma once
#include <string>
#include <string_view>

namespace distsetup {

inline constexpr std::string_view kConditionNot = "not ", kConditionEquals = " = ";

// What a condition is about: "norm" of "norm = rms", "qk_norm" of "not qk_norm".
inline std::string_view condition_subject(std::string_view condition) {
  while (condition.starts_with(kConditionNot)) condition.remove_prefix(kConditionNot.size());
  return condition.substr(0, condition.find(kConditionEquals));
}

// `text_of` gives the value of a subject. Without " = " it holds unless it is false, 0 or empty.
template <class TextOf>
bool condition_holds(std::string_view condition, const TextOf& text_of) {
  if (condition.starts_with(kConditionNot)) return !condition_holds(condition.substr(kConditionNot.size()), text_of);
  const size_t equals = condition.find(kConditionEquals);
  const std::string text = text_of(condition.substr(0, equals));
  if (equals != std::string_view::npos) return text == condition.substr(equals + kConditionEquals.size());
  return text != "false" && text != "0" && !text.empty();
}

}  // namespace distsetup
