// Laying out a page of text for a terminal: display width of UTF-8, wrapping, and an ASCII fallback for every symbol that is used.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace distsetup {

// Columns: code points; every symbol of ours takes one.
int display_width(std::string_view text);
std::string pad_right(std::string text, int width);
std::string pad_left(const std::string& text, int width);
std::string cut(std::string text, int width);  // "…" where something was cut off
// Breaks at spaces, and behind a '|' of a list that is wider than a line. Any other word that is gets a line of its own.
std::vector<std::string> wrap(std::string_view text, int width);
// Each line of a text that is wider than `width` in lines that are not; what is beside it stays as it is.
std::string wrap_lines(std::string_view text, int width);
// " (42.0 to 66.3)" behind a number of GiB; "" where there is no interval.
std::string between_gib(int64_t low_bytes, int64_t high_bytes);
// "×" -> "x", "·" -> "-", "█" -> "#", ...
std::string to_ascii(std::string_view text);
// share of 1 in eighths: " ▁▂▃▄▅▆▇█", from nothing to all.
std::string_view block(double share);

}  // namespace distsetup
