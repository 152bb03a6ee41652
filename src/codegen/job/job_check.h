// What every check of a job's options does: complain about one, or set a field.
#pragma once

#include <string>
#include <string_view>

#include "base/diagnostic.h"
#include "codegen/tables/fields.h"

namespace distsetup {

bool is_name_of(std::string_view text, std::string_view also);  // ASCII letters, digits, and what `also` holds

struct JobCheck {
  Fields fields;
  Diagnostics diagnostics;
  const Location at{"command line", 0, 0};

  void fail(const char* code, std::string message, std::string help = "");
  void set(std::string_view field, Json value);
  bool one_line(const std::string& name, const std::string& value);  // no control characters; `name`: of the flag

  // Names that end up where no quoting exists: a host on a command line, a device, a resource.
  bool plain(const std::string& name, const std::string& value, std::string_view also);

  int64_t duration_s(const std::string& value);  // 0 after a complaint
};

}  // namespace distsetup
