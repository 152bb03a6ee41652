#include "cli/commands/answer_text.h"

#include <string_view>
#include <utility>

namespace distsetup {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD: what a decoder makes of half a character

// Bytes up to the last character, if that is cut.
size_t whole_characters(std::string_view text) {
  size_t lead = text.size();
  while (lead > 0 && text.size() - lead < 4) {
    const auto byte = static_cast<unsigned char>(text[--lead]);
    if ((byte & 0xC0) == 0x80) continue;  // in the middle of one
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return lead + length > text.size() ? lead : text.size();
  }
  return text.size();
}

}  // namespace

// The bytes behind what was certain. A character that may still become another one waits for the end: one that is cut, and the
// replacement that a tokenizer puts in its place.
std::string AnswerText::new_text(std::string all, bool is_end) {
  size_t end = all.size();
  if (!is_end) {
    end = whole_characters(all);
    while (end >= kReplacement.size() && std::string_view(all).substr(end - kReplacement.size(), kReplacement.size()) == kReplacement)
      end -= kReplacement.size();
  }
  all_ = std::move(all);
  if (end <= text_.size()) return "";
  const std::string fresh = all_.substr(text_.size(), end - text_.size());
  text_ += fresh;
  return fresh;
}

Result<std::string> AnswerText::add(int64_t id) {
  ids_.push_back(static_cast<uint32_t>(id));
  if (tokenizer_ == nullptr) return new_text(all_ + static_cast<char>(id), false);
  Result<std::string> all = decode(*tokenizer_, ids_);
  if (!all.ok()) return all.diagnostics;
  return new_text(std::move(*all), false);
}

std::string AnswerText::rest() { return new_text(all_, true); }

}  // namespace distsetup
