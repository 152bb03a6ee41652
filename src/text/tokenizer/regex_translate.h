// A pattern of another engine as one of PCRE2 that matches the same. The differences are listed in regex.h.
#pragma once
#include "text/tokenizer/regex.h"

namespace distsetup {

Result<std::string> translate_regex(std::string_view pattern, RegexDialect dialect, const Location& where, const std::string& path);
// `text` as a pattern that matches it alone.
std::string escape_regex(std::string_view text);

}  // namespace distsetup
