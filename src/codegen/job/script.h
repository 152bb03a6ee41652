// Script templates: Mustache, strict. A template can only place values and switch sections; it cannot compute.
//   {{name}}     the value as one quoted word of bash. The default, and the only form that text of the user's may take.
//   {{&name}}    verbatim: only for values that are declared verbatim (blocks that we generated ourselves, lines asked for as lines).
//   {{#name}}…{{/name}}, {{^name}}…{{/name}}   once for a switch or a present value (not present), once per item of a list: {{.}}
//   {{&.}}
//   {{! … }}     a comment
// Errors (kTemplate, file:line): a name without a value, a value without a place, the wrong one of the two forms, a quoted word inside
// quotes, a value that may be absent outside its own section, {{{…}}}, {{>…}}, {{=…}}, unclosed tags and sections.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace distsetup {

enum class Form { kShell, kVerbatim, kSwitch, kShellList, kVerbatimList };

struct ScriptValue {
  Form form = Form::kShell;
  bool present = true;             // false: sections of the name are left out; for kSwitch, the switch itself
  std::string text;                // kShell, kVerbatim
  std::vector<std::string> items;  // lists; an empty list is not present
};
using ScriptValues = std::map<std::string, ScriptValue, std::less<>>;

Result<std::string> render_script(std::string_view text, const std::string& file_name, const ScriptValues& values);

}  // namespace distsetup
