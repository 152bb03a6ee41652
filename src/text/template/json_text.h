// `tojson`: json.dumps as transformers calls it, which escapes nothing for HTML (jinja2's own filter does).
#pragma once
#include "text/template/python_value.h"

namespace distsetup::jinja {

struct JsonForm {
  bool is_ascii = false;              // other characters as \uXXXX
  std::optional<std::string> indent;  // of one level; none: all on one line
  std::string item_separator = ", ", key_separator = ": ";
  bool is_sorted = false;  // by key
};
std::string json_text(const PyValue& value, const JsonForm& form);

}  // namespace distsetup::jinja
