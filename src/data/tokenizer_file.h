// Which file of a model's folder is its tokenizer, and the digest by which two are told apart.
#pragma once
#include <array>
#include <string>
#include <string_view>

#include "base/diagnostic.h"

namespace distsetup {

inline constexpr std::array<std::string_view, 3> kTokenizerFiles = {"tokenizer.json", "tokenizer.model", "tekken.json"};
inline constexpr std::string_view kTokenizerConfigFile = "tokenizer_config.json";

std::string tokenizer_file_in(const std::string& folder);  // the first of them that is there; "": none is
// SHA-256 of the file and of tokenizer_config.json beside it, if there is one.
Result<std::string> tokenizer_digest(const std::string& file);

}  // namespace distsetup
