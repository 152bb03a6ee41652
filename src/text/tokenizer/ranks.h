// Vocabularies of bytes with ranks: a word's bytes are joined in the order of the ranks of what they give, and the rank is the id.
//
//   a tiktoken file   lines "base64 rank" (github.com/openai/tiktoken). It holds neither the pattern that cuts the text nor the
//   special
//                     tokens; both are known here for published files, which their number of ranks tells.
//   tekken.json       Mistral's: pattern, vocabulary and special tokens, whose ids come first
#pragma once
#include <string>
#include <string_view>

#include "text/tokenizer/json_node.h"
#include "text/tokenizer/tokenizer.h"

namespace distsetup {

bool looks_like_tiktoken(std::string_view text);
Result<Tokenizer> parse_tiktoken(std::string_view text, const std::string& file);
bool looks_like_tekken(const Json& json);
// Special tokens are put around a text, and found in none: the library takes them as text.
Result<Tokenizer> parse_tekken(const Json& json, const std::string& file);

}  // namespace distsetup
