// What published tiktoken files do not say of themselves: the pattern that cuts a text, and the special tokens, whose ids follow the
// ranks. From the packages that carry the files: llama-models 0.3.0 (llama3/tokenizer.py, llama4/tokenizer.py), qwen-agent 0.0.34
// (tokenization_qwen.py); tekken's from mistral-common 1.13 (tekken.py, DEPRECATED_SPECIAL_TOKENS).
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace distsetup {

struct PublishedRanks {
  std::string_view model;
  size_t num_ranks = 0;
  std::string_view pattern;
  std::vector<std::string> (*special_tokens)() = nullptr;
  std::string_view bos, eos, pad;  // "": none; bos is put before a text
};

const PublishedRanks* find_published_ranks(size_t num_ranks);  // nullptr: none has so many
std::vector<std::string> old_tekken_special_tokens();          // of files that do not list them

}  // namespace distsetup
