// Texts as Python sees them: a row of code points, with its notions of whitespace, case and what can be printed. Texts are valid
// UTF-8.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distsetup::jinja {

size_t num_characters(std::string_view text);
std::vector<std::string> characters_of(std::string_view text);
std::u32string code_points(std::string_view text);
void append_code_point(std::string& to, char32_t code_point);
std::string utf8(std::u32string_view code_points);

bool is_space(char32_t c);  // as str.isspace
bool is_printable(char32_t c);
bool is_alphabetic(char32_t c);
bool is_decimal(char32_t c);     // 0 … 9 of any script
bool is_digit_like(char32_t c);  // decimal, or a digit such as ²
bool is_numeric(char32_t c);     // digits, fractions, numerals; of Han letters none
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);

enum class Side { kLeft, kRight, kBoth };
// Without whitespace at its ends, or without the characters of `chars`.
std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> chars = std::nullopt);
bool is_blank(std::string_view text);  // has only whitespace; "" too

std::string escape_html(std::string_view text);  // & < > ' " as markupsafe writes them

}  // namespace distsetup::jinja
