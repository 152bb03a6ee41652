#include "text/tokenizer/decoder.h"

#include <charconv>

#include "base/names.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/unicode.h"

namespace distsetup {
namespace {

constexpr char kReplacementCharacter[] = "\uFFFD";

std::string joined(const std::vector<std::string>& texts, std::string_view between) {
  std::string out;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) out += between;
    out += texts[i];
  }
  return out;
}

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  if (what.empty()) return;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) text.replace(at, what.size(), by);
}

bool apply(const DecodeByteLevel&, std::vector<std::string>& texts, RegexScratch&) {
  std::string bytes;
  for (const std::string& text : texts) bytes += bytes_of_characters(text).value_or(text);
  texts = {replace_invalid(bytes)};
  return true;
}

// The byte of "<0x0A>", -1 for any other text.
int fallback_byte(const std::string& text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return -1;
  int byte = -1;
  const char* end = text.data() + 5;
  const auto [stopped, failed] = std::from_chars(text.data() + 3, end, byte, 16);
  return failed == std::errc() && stopped == end ? byte : -1;
}

bool apply(const DecodeByteFallback&, std::vector<std::string>& texts, RegexScratch&) {
  std::vector<std::string> out;
  std::string bytes;
  const auto flush = [&] {
    if (is_utf8(bytes)) {
      if (!bytes.empty()) out.push_back(bytes);
    } else {
      out.insert(out.end(), bytes.size(), kReplacementCharacter);
    }
    bytes.clear();
  };
  for (std::string& text : texts) {
    const int byte = fallback_byte(text);
    if (byte >= 0) {
      bytes += static_cast<char>(byte);
      continue;
    }
    flush();
    out.push_back(std::move(text));
  }
  flush();
  texts = std::move(out);
  return true;
}

bool apply(const DecodeFuse&, std::vector<std::string>& texts, RegexScratch&) {
  texts = {joined(texts, "")};
  return true;
}

bool apply(const DecodeReplace& replace, std::vector<std::string>& texts, RegexScratch& scratch) {
  std::vector<TextRange> matches;
  for (std::string& text : texts) {
    bool changed = false;
    const std::string other = with_stand_ins(text, changed);
    if (!replace.regex.find_all(changed ? other : text, scratch, matches)) return false;
    if (matches.empty() || text.empty()) continue;
    std::string out;
    size_t end = 0;
    for (const TextRange match : matches) {
      out.append(text, end, match.begin - end);
      out += replace.content;
      end = match.end;
    }
    text = out.append(text, end);
  }
  return true;
}

bool apply(const DecodeStrip& strip, std::vector<std::string>& texts, RegexScratch&) {
  for (std::string& text : texts) {
    size_t begin = 0, end = text.size();
    for (size_t i = 0; i < strip.start && text.compare(begin, strip.character.size(), strip.character) == 0 && begin < end; ++i)
      begin += strip.character.size();
    for (size_t i = 0; i < strip.stop && end - begin >= strip.character.size() &&
                       text.compare(end - strip.character.size(), strip.character.size(), strip.character) == 0;
         ++i)
      end -= strip.character.size();
    text = text.substr(begin, end - begin);
  }
  return true;
}

bool apply(const DecodeMetaspace& meta, std::vector<std::string>& texts, RegexScratch&) {
  for (size_t i = 0; i < texts.size(); ++i) replace_all(texts[i], meta.replacement, i == 0 && meta.drops_first ? "" : " ");
  return true;
}

bool apply(const DecodeEndSuffix& end, std::vector<std::string>& texts, RegexScratch&) {
  for (size_t i = 0; i < texts.size(); ++i) replace_all(texts[i], end.suffix, i + 1 == texts.size() ? "" : " ");
  return true;
}

bool apply(const DecodeJoin&, std::vector<std::string>& texts, RegexScratch&) {
  texts = {joined(texts, " ")};
  return true;
}

}  // namespace

bool decode_step(const Decoder& step, std::vector<std::string>& texts, RegexScratch& scratch) {
  return std::visit([&](const auto& one) { return apply(one, texts, scratch); }, step);
}

}  // namespace distsetup
