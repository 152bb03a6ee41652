// An answer's text as its tokens come: whole characters only, each as soon as it is certain.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace distsetup {

class AnswerText {
 public:
  // nullptr: a token is a byte. The tokenizer must outlive it.
  explicit AnswerText(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}
  // The text that is certain with this token and was not before. Errors: a token that the tokenizer does not have.
  Result<std::string> add(int64_t id);
  // What is left, whole or not.
  std::string rest();
  const std::string& text() const { return text_; }

 private:
  std::string new_text(std::string all, bool is_end);

  const Tokenizer* tokenizer_;
  std::vector<uint32_t> ids_;
  std::string all_;   // as it is with the tokens so far, the last character perhaps cut
  std::string text_;  // that is certain
};

}  // namespace distsetup
