// A template cut into text and the words inside {{ }} and {% %}, with whitespace handled as transformers asks of jinja2: trim_blocks
// (the line break after a block goes), lstrip_blocks (blanks before a block at the start of a line go), and the signs - and + at a
// tag.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "text/template/python_value.h"

namespace distsetup::jinja {

enum class TokenType { kData, kVariableBegin, kVariableEnd, kBlockBegin, kBlockEnd, kName, kText, kInteger, kFloat, kSign, kEnd };

struct Token {
  TokenType kind = TokenType::kEnd;
  std::string text;  // kData, kText: the text itself, escapes resolved; kName, kSign: as written
  Integer integer = 0;
  double real = 0;
  int line = 1, column = 1;  // in characters
};

// "'x'", "end of the block" …, for messages.
std::string describe(const Token& token);

// Ends in a token kEnd; fails at what jinja2 fails at. `source` is valid UTF-8.
std::vector<Token> tokenize(std::string_view source);

}  // namespace distsetup::jinja
