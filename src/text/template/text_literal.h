// What a quoted text of a template means: the escapes of Python.
#pragma once
#include <string>
#include <string_view>

namespace distsetup::jinja {

struct TextLiteral {
  std::string text;
  std::string mistake;  // empty: none
};
TextLiteral text_literal(std::string_view between_quotes);

}  // namespace distsetup::jinja
