// Code points that are younger than the libraries' tables: PCRE2 10.42 knows Unicode 14, the tokenizers library's regular expressions
// know Unicode 16, and its pre-tokenizer Punctuation knows Unicode 8.
#pragma once
#include <cstdint>
#include <optional>

#include "text/tokenizer/unicode.h"

namespace distsetup {

// The category in Unicode 16 of a code point that Unicode 14 did not assign (or called otherwise); none for all others.
std::optional<Category> young_category(uint32_t code_point);
// Of a code point that is punctuation in Unicode 16: it was not in Unicode 8.
bool is_young_punctuation(uint32_t code_point);

}  // namespace distsetup
