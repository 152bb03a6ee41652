// The tokens of a template, read one after the other by the parser.
#pragma once
#include <algorithm>

#include "text/template/tokens.h"

namespace distsetup::jinja {

// The last token is always kEnd.
class TokenReader {
 public:
  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  const Token& current() const { return tokens_[position_]; }
  const Token& next() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool is_sign(std::string_view sign) const { return current().kind == TokenType::kSign && current().text == sign; }
  bool is_name(std::string_view name) const { return current().kind == TokenType::kName && current().text == name; }
  bool skip_sign(std::string_view sign);
  bool skip_name(std::string_view name);
  void expect_sign(std::string_view sign);
  Token expect(TokenType kind, std::string_view what);
  [[noreturn]] void unexpected(std::string_view expected) const;
  size_t position() const { return position_; }
  bool has_name_since(size_t position, std::string_view name) const;  // read as a variable, not as an attribute

 private:
  std::vector<Token> tokens_;
  size_t position_ = 0;
};

[[noreturn]] void fail_at(int line, int column, std::string message, std::string help = "");

}  // namespace distsetup::jinja
