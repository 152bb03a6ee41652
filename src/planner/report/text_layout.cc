#include "planner/report/text_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/quantity.h"

namespace distsetup {
namespace {

constexpr std::array<std::string_view, 9> kBlocks = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

constexpr std::pair<std::string_view, std::string_view> kAscii[] = {
    {"×", "x"}, {"·", "-"}, {"…", "~"}, {"—", "-"}, {"→", "->"}, {"≥", ">="}, {"│", "|"}, {"─", "-"}, {"░", "."},
    {"▏", "|"}, {"▁", "_"}, {"▂", "."}, {"▃", ":"}, {"▄", "-"},  {"▅", "="},  {"▆", "+"}, {"▇", "*"}, {"█", "#"},
};

bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

}  // namespace

std::string between_gib(int64_t low_bytes, int64_t high_bytes) {
  constexpr auto kGib = static_cast<double>(kGiB);
  if (high_bytes <= low_bytes) return "";
  return fmt::format(" ({:.1f} to {:.1f})", static_cast<double>(low_bytes) / kGib, static_cast<double>(high_bytes) / kGib);
}

int display_width(std::string_view text) { return static_cast<int>(std::count_if(text.begin(), text.end(), starts_character)); }

std::string pad_right(std::string text, int width) {
  const int missing = width - display_width(text);
  if (missing > 0) text.append(static_cast<size_t>(missing), ' ');
  return text;
}

std::string pad_left(const std::string& text, int width) {
  const int missing = width - display_width(text);
  return missing > 0 ? std::string(static_cast<size_t>(missing), ' ') + text : text;
}

std::string cut(std::string text, int width) {
  if (display_width(text) <= width) return text;
  int columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!starts_character(text[i])) continue;
    if (++columns < std::max(width, 1)) continue;
    text.resize(i);
    break;
  }
  return text + "…";
}

std::vector<std::string> wrap(std::string_view text, int width) {
  std::vector<std::string> lines;
  std::string line;
  bool is_rest = false;  // of a list that is wider than a line
  while (!text.empty()) {
    std::string_view word = text.substr(0, text.find(' '));
    const size_t bar = display_width(word) > width ? word.rfind('|', static_cast<size_t>(width) - 1) : std::string_view::npos;
    if (bar != std::string_view::npos) word = word.substr(0, bar + 1);
    text.remove_prefix(std::min(word.size() + (bar != std::string_view::npos ? 0 : 1), text.size()));
    const std::string_view gap = line.empty() || is_rest ? "" : " ";
    if (!line.empty() && display_width(line) + display_width(gap) + display_width(word) > width) {
      lines.push_back(std::move(line));
      line = word;
    } else {
      line += gap;
      line += word;
    }
    is_rest = bar != std::string_view::npos;
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

std::string wrap_lines(std::string_view text, int width) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (display_width(line) <= width) {
      out += line;
      out += '\n';
    } else {
      for (const std::string& part : wrap(line, width)) out += part + "\n";
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string to_ascii(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    bool replaced = false;
    for (const auto& [symbol, plain] : kAscii) {
      if (!text.starts_with(symbol)) continue;
      out += plain;
      text.remove_prefix(symbol.size());
      replaced = true;
      break;
    }
    if (replaced) continue;
    out += static_cast<unsigned char>(text[0]) < 0x80 ? text[0] : '?';
    size_t n = 1;
    while (n < text.size() && !starts_character(text[n])) ++n;
    text.remove_prefix(static_cast<unsigned char>(text[0]) < 0x80 ? 1 : n);
  }
  return out;
}

std::string_view block(double share) {
  const double eighths = std::ceil(std::clamp(share, 0.0, 1.0) * 8 - 1e-9);
  return kBlocks[static_cast<size_t>(eighths)];
}

}  // namespace distsetup
