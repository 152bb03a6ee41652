// JSON that is not quite JSON: with comments and with commas before a closing bracket, which some readers take; and templates, which
// do not parse before they are filled in.
#pragma once
#include <string>
#include <string_view>

#include "codegen/read/document.h"

namespace distsetup::foreign {

// JSON with its comments and its commas before a closing bracket as blanks, every byte in its place; "" when it has none.
std::string json_without_comments(std::string_view text);

// The document read without them; nullptr: it is not that which keeps it from parsing.
DocumentPointer without_comments(const Document& document);

// What tells a file that does not parse as a template: a mark of a template language, or a word to be filled in where it stops
// ("CONFIG_BATCH_SIZE"); "" when nothing does.
std::string template_mark(std::string_view text, size_t at);

}  // namespace distsetup::foreign
