#include "text/tokenizer/regex_translate.h"

#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "text/tokenizer/unicode.h"

namespace distsetup {
namespace {

// What \w is, inside of brackets.
constexpr char kOnigurumaWord[] = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";
constexpr char kRustWord[] = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}";
// Properties by name that are the same in all engines.
constexpr std::string_view kProperties[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",         "Nd", "Nl",
                                            "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm",        "Sc", "Sk",
                                            "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Cn", "Co", "Alphabetic"};
// Escapes of one letter that mean the same in all engines, outside of brackets and inside.
constexpr std::string_view kSameOutside = "dDsSnrtfvaeAzZ", kSameInside = "dDsSnrtfvae";

class Translation {
 public:
  Translation(std::string_view pattern, RegexDialect dialect, const Location& where, const std::string& path)
      : pattern_(pattern), dialect_(dialect), where_(where), path_(path) {}

  Result<std::string> run() {
    while (at_ < pattern_.size() && refused_.empty()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape(kSameOutside, Place::kOutside);
      } else if (c == '[') {
        char_class();
      } else if (c == '{') {
        repetition();
      } else if (c == '(') {
        group();
      } else {
        out_ += c;
        ++at_;
      }
    }
    if (refused_.empty()) return std::move(out_);
    return error(code::kUnsupportedFeature, where_,
                 fmt::format("{}: {} in the regular expression '{}' is not supported", path_, refused_, pattern_));
  }

 private:
  enum class Place { kOutside, kInside };

  char peek(size_t ahead) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }
  void refuse(std::string what) {
    if (refused_.empty()) refused_ = std::move(what);
  }
  void take(size_t num_bytes) {
    out_ += pattern_.substr(at_, num_bytes);
    at_ += num_bytes;
  }

  void escape(std::string_view same, Place place) {
    const char c = peek(1);
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (c == '\0') return refuse("a '\\' at the end");
    if (c == 'p' || c == 'P') return property();
    if (c == 'w' || c == 'W') return word(place);
    if ((c == 'h' || c == 'H') && dialect_ == RegexDialect::kOniguruma) {
      if (place == Place::kInside && c == 'H') return refuse("\\H in brackets");
      at_ += 2;
      out_ += place == Place::kInside ? "0-9a-fA-F" : c == 'h' ? "[0-9a-fA-F]" : "[^0-9a-fA-F]";
      return;
    }
    if (c == 'x') return hexadecimal();
    if (c == 'u') {
      if (at_ + 6 > pattern_.size()) return refuse("\\u without four digits");
      out_ += fmt::format("\\x{{{}}}", pattern_.substr(at_ + 2, 4));
      at_ += 6;
      return;
    }
    if ((is_letter && same.find(c) == std::string_view::npos) || is_digit(c)) return refuse(fmt::format("\\{}", c));
    if (static_cast<uint8_t>(c) >= 0x80) {  // an escaped character beyond ASCII is itself
      ++at_;
      return take(code_point_at(pattern_, at_).num_bytes);
    }
    take(2);
  }

  void hexadecimal() {
    if (peek(2) == '{') {
      const size_t close = pattern_.find('}', at_);
      if (close == std::string_view::npos) return refuse("\\x{ without }");
      return take(close + 1 - at_);
    }
    take(std::min<size_t>(4, pattern_.size() - at_));
  }

  void word(Place place) {
    const bool negated = peek(1) == 'W';
    const char* set = dialect_ == RegexDialect::kOniguruma ? kOnigurumaWord : kRustWord;
    at_ += 2;
    if (place == Place::kOutside) {
      out_ += fmt::format("[{}{}]", negated ? "^" : "", set);
    } else if (negated) {
      refuse("\\W in brackets");
    } else {
      out_ += set;
    }
  }

  void property() {
    std::string name;
    bool negated = peek(1) == 'P';
    size_t length = 3;
    if (peek(2) == '{') {
      const size_t close = pattern_.find('}', at_);
      if (close == std::string_view::npos) return refuse("\\p{ without }");
      name = pattern_.substr(at_ + 3, close - at_ - 3);
      length = close + 1 - at_;
      if (!name.empty() && name[0] == '^') {
        negated = !negated;
        name.erase(0, 1);
      }
    } else {
      name = peek(2);
    }
    bool known = false;
    for (const std::string_view one : kProperties) known |= one == name;
    if (!known) {
      for (const char c : name) {
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_')) return refuse(fmt::format("\\p{{{}}}", name));
      }
      if (name.size() < 3) return refuse(fmt::format("\\p{{{}}}", name));
      name = "sc:" + name;  // a script, not its extensions; PCRE2 refuses what is none
    }
    out_ += fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', name);
    at_ += length;
  }

  // From its '[' to its ']'. A class in a class is written into the outer one.
  void char_class() {
    ++at_;
    out_ += '[';
    if (peek(0) == '^') take(1);
    int depth = 1;
    bool first = true;
    while (at_ < pattern_.size() && depth > 0 && refused_.empty()) {
      const char c = pattern_[at_];
      if (c == ']' && !first) {
        if (--depth == 0) out_ += ']';
        ++at_;
      } else if (c == '[') {
        if (peek(1) == ':') return refuse("[: :]");
        if (peek(1) == '^') return refuse("a negated class in a class");
        ++depth;
        ++at_;
      } else if (c == '&' && peek(1) == '&') {
        return refuse("&& in brackets");
      } else if (c == '\\') {
        escape(kSameInside, Place::kInside);
      } else {
        take(1);
      }
      first = false;
    }
    if (depth > 0) refuse("a '[' without ']'");
  }

  // {2,3}+ repeats {2,3} in Oniguruma and is possessive in PCRE2.
  void repetition() {
    const size_t close = pattern_.find('}', at_);
    if (dialect_ == RegexDialect::kOniguruma && close != std::string_view::npos && close + 1 < pattern_.size() &&
        pattern_[close + 1] == '+')
      return refuse("a repetition of a repetition");
    take(1);
  }

  void group() {
    if (peek(1) != '?') return take(1);
    const char kind = peek(2);
    const bool behind = kind == '<' && (peek(3) == '=' || peek(3) == '!');
    if (kind == ':' || kind == '=' || kind == '!' || kind == '>' || behind) return take(behind ? 4 : 3);
    // (?i) and (?i: ; m, s and x mean different things
    if (kind == 'i' && (peek(3) == ')' || peek(3) == ':')) return take(4);
    refuse(fmt::format("'(?{}'", kind));
  }

  std::string_view pattern_;
  RegexDialect dialect_;
  const Location& where_;
  const std::string& path_;
  size_t at_ = 0;
  std::string out_, refused_;
};

}  // namespace

Result<std::string> translate_regex(std::string_view pattern, RegexDialect dialect, const Location& where, const std::string& path) {
  return Translation(pattern, dialect, where, path).run();
}

std::string escape_regex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\.+*?()|[]{}^$#&-~").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace distsetup
