// What is wrong with the text of a file before any tool's rules: comments in JSON, templates that were not filled in, keys with
// blanks, quotes that a shell keeps.
#pragma once
#include <string>
#include <string_view>

#include "codegen/lint/findings.h"

namespace distsetup::lint {

bool ends_in_blank(std::string_view key);  // or begins with one

// JSON with its comments and its commas before a closing bracket as blanks, every byte in its place; "" when it has none.
std::string json_without_comments(std::string_view text);

// What tells a file that does not parse as a template: a mark of a template language, or a word to be filled in where it stops
// ("CONFIG_BATCH_SIZE"); "" when nothing does.
std::string template_mark(std::string_view text, size_t at);

void check_file_text(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
