#include "codegen/shell/script_variables.h"

#include "codegen/shell/references.h"
#include "codegen/shell/script_folder.h"
#include "codegen/shell/words.h"

namespace distsetup::foreign {

void ScriptVariables::set_text(std::string_view name, std::string text) {
  ShellValue value;
  value.words = words_of_text(text, {0, 0});
  value.text = std::move(text);
  set(name, std::move(value));
}

void ScriptVariables::set_outer(const OuterVariable& one) {
  if (!one.is_known) return set_unknown(one.name);
  ShellValue value;
  value.words = words_of_text(one.value, one.span);
  value.text = one.value;
  if (one.name == "@" || one.name == "*") {
    value.is_array = true;
    value.words.clear();
    for (const std::string& word : one.words) value.words.push_back(bare_word(word, one.span));
  }
  set(one.name, std::move(value));
  if (!one.is_of_script) outer_[one.name] = one.value;
}

ExpandedText ScriptVariables::value_text(std::string_view name) const {
  const ShellValue* value = find(name);
  if (value == nullptr) return {"", false, false};
  if (!value->is_known) {  // N=${SLURM_NNODES:-1} stands for $SLURM_NNODES
    const bool is_name = (value->text.size() > 1 && value->text[0] == '$' && set_by_job_.count(value->text.substr(1)) > 0) ||
                         from_script_folder(value->text).has_value();
    return {is_name ? value->text : "", false, false};
  }
  if (value->is_array) {
    if (value->words.empty()) return {"", true, value->is_certain};
    return {value->words[0].text, !has_reference(value->words[0].text), value->is_certain};
  }
  return {value->text, true, value->is_certain};
}

ExpandedText ScriptVariables::argument_text(std::string_view name, std::string_view slice) const {
  const ShellValue* value = find(name);
  if (value == nullptr || !value->is_known) return {"", false, false};
  if (!value->is_array) return value_text(name);
  const auto words = arguments_from(*value, slice);
  if (!words) return {"", false, false};
  std::string text = joined(*words);
  const bool is_known = !has_reference(text);
  return {is_known ? std::move(text) : "", is_known, value->is_certain};
}

std::optional<std::string> ScriptVariables::number_text(std::string_view name) const {
  ExpandedText value = value_text(name);
  if (value.is_known) return std::move(value.text);
  const auto job = of_job_.find(name);
  return job == of_job_.end() || find(name) != nullptr ? std::nullopt : std::optional<std::string>(job->second);
}

}  // namespace distsetup::foreign
