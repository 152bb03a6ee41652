#include "text/template/token_reader.h"

#include <fmt/format.h>

namespace distsetup::jinja {

Token TokenReader::take() {
  Token token = current();
  if (position_ + 1 < tokens_.size()) ++position_;
  return token;
}

bool TokenReader::skip_sign(std::string_view sign) {
  const bool is_here = is_sign(sign);
  if (is_here) take();
  return is_here;
}

bool TokenReader::skip_name(std::string_view name) {
  const bool is_here = is_name(name);
  if (is_here) take();
  return is_here;
}

void TokenReader::expect_sign(std::string_view sign) {
  if (!skip_sign(sign)) unexpected(fmt::format("'{}'", sign));
}

Token TokenReader::expect(TokenType kind, std::string_view what) {
  if (current().kind != kind) unexpected(what);
  return take();
}

bool TokenReader::has_name_since(size_t position, std::string_view name) const {
  for (size_t i = std::max<size_t>(position, 1); i < position_; ++i) {
    const bool is_attribute = tokens_[i - 1].kind == TokenType::kSign && tokens_[i - 1].text == ".";
    if (tokens_[i].kind == TokenType::kName && tokens_[i].text == name && !is_attribute) return true;
  }
  return false;
}

void TokenReader::unexpected(std::string_view expected) const {
  fail_at(current().line, current().column, fmt::format("found {}, expected {}", describe(current()), expected));
}

void fail_at(int line, int column, std::string message, std::string help) {
  throw TemplateError{std::move(message), std::move(help), line, column};
}

}  // namespace distsetup::jinja
