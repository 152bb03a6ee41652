// TOML text to a Value, through toml++, whose tables keep where each key and value stands. Tables come sorted by name from there and
// are put back into file order. Its complaints are put into our words; the first mistake ends the reading.
#include "base/value_toml.h"

#include <fmt/format.h>

#define TOML_HEADER_ONLY 0  // libtomlplusplus has the parser compiled
#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/diagnostic_codes.h"
#include "base/tree_builder.h"

namespace distsetup {
namespace {

constexpr int kMaxDots = 400;  // of one key; toml++ would go down as many tables by recursion

// Walks the tree of toml++ in file order.
class TomlWalk {
 public:
  explicit TomlWalk(const SourceText& source) : source_(source), builder_(KeyRule::kExact) {}

  Result<Value> read(const toml::table& root) {
    node(root);
    return builder_.finish();
  }

 private:
  Location place(const toml::source_position& at) const {
    return {source_.file_name(), static_cast<int>(at.line), static_cast<int>(at.column)};
  }

  Value located(Value::Kind kind, const toml::node& from) const {
    Value value;
    value.kind = kind;
    value.location = place(from.source().begin);
    return value;
  }

  void node(const toml::node& from) {
    if (builder_.stopped()) return;
    if (const toml::table* table = from.as_table()) {
      map(*table);
    } else if (const toml::array* array = from.as_array()) {
      builder_.begin(located(Value::Kind::kList, from));
      for (const toml::node& item : *array) node(item);
      builder_.end();
    } else {
      scalar(from);
    }
  }

  void map(const toml::table& table) {
    std::vector<std::pair<const toml::key*, const toml::node*>> entries;
    for (auto&& [key, child] : table) entries.emplace_back(&key, &child);
    std::sort(entries.begin(), entries.end(),
              [](const auto& a, const auto& b) { return a.first->source().begin < b.first->source().begin; });
    builder_.begin(located(Value::Kind::kMap, table));
    for (const auto& [key, child] : entries) {
      if (builder_.stopped()) return;
      const toml::source_region& at = key->source();
      builder_.key(std::string(key->str()), place(at.begin), static_cast<int>(at.end.column - at.begin.column));
      node(*child);
    }
    builder_.end();
  }

  void scalar(const toml::node& from) {
    Value value = located(Value::Kind::kScalar, from);
    if (const auto* text = from.as_string()) {
      value.text = text->get();
      value.quoted = true;
    } else if (const auto* integer = from.as_integer()) {
      value.text = std::to_string(integer->get());
    } else {
      value.text = as_written(from.source());
      if (from.is_floating_point()) std::erase_if(value.text, [](char c) { return c == '_'; });
      if (value.text.starts_with('+')) value.text.erase(0, 1);
    }
    builder_.leaf(std::move(value));
  }

  // 3e-4 stays 3e-4, and a date stays as it is.
  std::string as_written(const toml::source_region& region) const {
    const size_t begin = source_.offset(place(region.begin));
    const size_t end = source_.offset(place(region.end));
    return std::string(source_.text().substr(begin, end - begin));
  }

  const SourceText& source_;
  TreeBuilder builder_;
};

// The text between the first two single quotes of a message.
std::string quoted_part(std::string_view what) {
  const size_t open = what.find('\'');
  const size_t close = open == std::string_view::npos ? open : what.find('\'', open + 1);
  return close == std::string_view::npos ? "" : std::string(what.substr(open + 1, close - open - 1));
}

// Up to a blank or punctuation.
std::string_view word_at(std::string_view text, size_t offset) {
  text.remove_prefix(std::min(offset, text.size()));
  return text.substr(0, text.find_first_of(" \t\r\n,=]}#"));
}

// "Error while parsing array: expected comma or closing ']', saw '2'" -> "found '2', expected comma or closing ']'".
Diagnostic in_our_words(std::string_view what, const Location& at, const SourceText& source) {
  constexpr std::string_view kPrefix = "Error while parsing ";
  std::string_view scope;  // "array", "key-value pair", …
  if (const size_t colon = what.find(": "); what.starts_with(kPrefix) && colon != std::string_view::npos) {
    scope = what.substr(kPrefix.size(), colon - kPrefix.size());
    what.remove_prefix(colon + 2);
  }
  const std::string_view word = word_at(source.text(), source.offset(at));
  if (what.starts_with("cannot redefine") || what.starts_with("cannot insert")) {
    const std::string name = quoted_part(what);
    return error(code::kDuplicateKey, at, fmt::format("key '{}' is given twice, expected once", name.empty() ? word : name),
                 "remove one of the two");
  }
  if (what.starts_with("could not determine value type"))
    return error(code::kSyntax, at, fmt::format("found '{}', expected a value", word),
                 fmt::format("a text needs quotes: \"{}\"", word));
  if (what.find("nested value depth") != std::string_view::npos)
    return error(code::kSyntax, at, fmt::format("found nesting deeper than {} levels, expected less", TOML_MAX_NESTED_VALUES));
  if (what == "encountered end-of-file")
    return error(code::kSyntax, at, fmt::format("found the end of the file, expected the rest of the {}", scope));
  if (what.starts_with("unescaped control characters"))  // others are refused before
    return error(code::kSyntax, at, "found the end of the line, expected the closing quote");
  const size_t saw = what.rfind(", saw ");
  if (!what.starts_with("expected ") || saw == std::string_view::npos)
    return error(code::kSyntax, at, fmt::format("found invalid TOML in the {}: {}", scope, what));
  const std::string_view found = what.substr(saw + std::string_view(", saw ").size());
  return error(code::kSyntax, at, fmt::format("found {}, {}", found == "'\\n'" ? "the end of the line" : found, what.substr(0, saw)));
}

// Where a key has more than kMaxDots parts: a.a.a.a…, with blanks and quotes at most between them.
std::optional<size_t> endless_key(std::string_view text) {
  constexpr std::string_view kPart = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-\"'";
  int num_dots = 0;
  char before = '.';
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ' || c == '\t') continue;
    const bool joins = c == '.' && before != '.';
    num_dots = joins ? num_dots + 1 : kPart.find(c) != std::string_view::npos ? num_dots : 0;
    if (num_dots > kMaxDots) return i;
    before = c;
  }
  return std::nullopt;
}

}  // namespace

Result<Value> parse_toml(std::string_view text, std::string_view file_name) {
  text = without_byte_order_mark(text);
  const SourceText source(text, file_name);
  if (Diagnostics bad = check_characters(source); !bad.empty()) return bad;
  if (const std::optional<size_t> place = endless_key(text))
    return error(code::kSyntax, source.at(*place), fmt::format("found a key of more than {} parts, expected fewer", kMaxDots));
  try {
    return TomlWalk(source).read(toml::parse(text));
  } catch (const toml::parse_error& e) {
    const toml::source_position stop = e.source().begin;
    const Location at{source.file_name(), static_cast<int>(stop.line), static_cast<int>(stop.column)};
    return in_our_words(e.description(), at, source);
  }
}

}  // namespace distsetup
