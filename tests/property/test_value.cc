// Random trees survive being written and read again, as YAML, JSON and TOML; random bytes never do more than give a diagnostic.
#include "base/value.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "base/diagnostic.h"
#include "base/value_json.h"
#include "base/value_toml.h"
#include "base/value_yaml.h"
#include "support/property.h"

using namespace distsetup;
using Kind = Value::Kind;

namespace {

constexpr int kNumTrees = 300;
constexpr int kNumTexts = 4000;

int below(Draw& random, int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); }

std::string random_text(Draw& random) {
  static const std::vector<std::string> pieces = {"a",
                                                  "Z",
                                                  "0",
                                                  "9",
                                                  " ",
                                                  "'",
                                                  "\"",
                                                  "\\",
                                                  ":",
                                                  ": ",
                                                  "#",
                                                  " #",
                                                  "-",
                                                  "- ",
                                                  "[",
                                                  "]",
                                                  "{",
                                                  "}",
                                                  ",",
                                                  "&",
                                                  "*",
                                                  "!",
                                                  "|",
                                                  ">",
                                                  "%",
                                                  "@",
                                                  "`",
                                                  "\n",
                                                  "\t",
                                                  "\xc3\xa9",
                                                  "\xf0\x9f\x98\x80",
                                                  "no",
                                                  "~",
                                                  "1e6",
                                                  "null",
                                                  "---",
                                                  "010",
                                                  "\r\n"};
  std::string text;
  for (int n = below(random, 8); n > 0; --n) text += pieces[static_cast<size_t>(below(random, static_cast<int>(pieces.size())))];
  return text;
}

// Scalars are quoted text or numbers, so that the written form says which.
Value random_tree(Draw& random, int depth) {
  Value value;
  const int choice = below(random, depth > 0 ? 5 : 3);
  if (choice == 0) return value;
  if (choice == 1) {
    value.kind = Kind::kScalar;
    value.text = std::to_string(static_cast<int64_t>(uint64_t{random()} << 33 ^ random()));
  } else if (choice == 2) {
    value.kind = Kind::kScalar;
    value.quoted = true;
    value.text = random_text(random);
  } else if (choice == 3) {
    value.kind = Kind::kList;
    for (int n = below(random, 5); n > 0; --n) value.items.push_back(random_tree(random, depth - 1));
  } else {
    value.kind = Kind::kMap;
    const int num_entries = below(random, 5);
    for (int i = 0; i < num_entries; ++i)
      value.entries.push_back({random_text(random) + std::to_string(i), random_tree(random, depth - 1)});
  }
  return value;
}

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(-1, ' ', true); }  // ASCII: \uXXXX with surrogates

// JSON with blanks and line breaks in odd places.
std::string as_json(const Value& value, Draw& random) {
  const std::vector<std::string> blanks = {"", " ", "\n", "\t", "\r\n "};
  const auto blank = [&] { return blanks[static_cast<size_t>(below(random, static_cast<int>(blanks.size())))]; };
  std::string text = blank();
  if (value.kind == Kind::kNull) text += "null";
  if (value.kind == Kind::kScalar) text += value.quoted ? quoted(value.text) : value.text;
  if (value.kind == Kind::kList) {
    text += "[";
    for (size_t i = 0; i < value.items.size(); ++i) text += (i > 0 ? "," : "") + as_json(value.items[i], random);
    text += "]";
  }
  if (value.kind == Kind::kMap) {
    text += "{";
    for (size_t i = 0; i < value.entries.size(); ++i) {
      text += (i > 0 ? "," : "") + blank() + quoted(value.entries[i].first) + blank() + ":" + as_json(value.entries[i].second, random);
    }
    text += "}";
  }
  return text + blank();
}

// Double quotes as YAML and TOML write them: they have \UNNNNNNNN, no surrogates; printable UTF-8 stands for itself.
std::string yaml_quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += std::string("\\") + c;
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else
      out += c;
  }
  return out + '"';
}

std::string as_yaml(const Value& value, int indent) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  if (value.kind == Kind::kNull) return " ~\n";
  if (value.kind == Kind::kScalar) return " " + (value.quoted ? yaml_quoted(value.text) : value.text) + "\n";
  std::string text = "\n";
  if (value.kind == Kind::kList) {
    if (value.items.empty()) return " []\n";
    for (const Value& item : value.items) text += margin + "-" + as_yaml(item, indent + 2);
  } else {
    if (value.entries.empty()) return " {}\n";
    for (const auto& entry : value.entries) text += margin + yaml_quoted(entry.first) + ":" + as_yaml(entry.second, indent + 2);
  }
  return text;
}

// Nulls are texts here, which TOML has none of; maps as inline tables, the outermost as lines.
std::string as_toml_value(const Value& value) {
  if (value.kind == Kind::kNull) return "\"\"";
  if (value.kind == Kind::kScalar) return value.quoted ? yaml_quoted(value.text) : value.text;
  const bool is_list = value.kind == Kind::kList;
  std::string text = is_list ? "[" : "{";
  for (size_t i = 0; i < value.items.size(); ++i) text += (i > 0 ? ", " : " ") + as_toml_value(value.items[i]);
  for (size_t i = 0; i < value.entries.size(); ++i) {
    text += (i > 0 ? ", " : " ") + yaml_quoted(value.entries[i].first) + " = " + as_toml_value(value.entries[i].second);
  }
  return text + (is_list ? "]" : "}");
}

std::string as_toml(const Value& value) {
  if (value.kind != Kind::kMap) return "v = " + as_toml_value(value) + "\n";
  std::string text;
  for (const Value::Entry& entry : value.entries) {
    const bool is_table = entry.second.kind == Kind::kMap;
    text += is_table ? "" : yaml_quoted(entry.first) + " = " + as_toml_value(entry.second) + "\n";
  }
  for (const Value::Entry& entry : value.entries) {
    if (entry.second.kind != Kind::kMap) continue;
    text += "[" + yaml_quoted(entry.first) + "]\n";
    for (const Value::Entry& inner : entry.second.entries)
      text += yaml_quoted(inner.first) + " = " + as_toml_value(inner.second) + "\n";
  }
  return text;
}

// The tree as TOML gives it back: nulls are empty texts, and tables come behind the other keys.
Value as_toml_reads(Value value) {
  if (value.kind == Kind::kNull) value.kind = Kind::kScalar, value.quoted = true;
  for (Value& item : value.items) item = as_toml_reads(std::move(item));
  for (Value::Entry& entry : value.entries) entry.second = as_toml_reads(std::move(entry.second));
  return value;
}

bool same_tree(const Value& a, const Value& b) {
  if (a.kind != b.kind || a.items.size() != b.items.size() || a.entries.size() != b.entries.size()) return false;
  if (a.kind == Kind::kScalar && (a.text != b.text || a.quoted != b.quoted)) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!same_tree(a.items[i], b.items[i])) return false;
  }
  for (size_t i = 0; i < a.entries.size(); ++i) {
    if (a.entries[i].first != b.entries[i].first || !same_tree(a.entries[i].second, b.entries[i].second)) return false;
  }
  return true;
}

size_t offset_of(const std::string& text, const Location& at) {
  size_t offset = 0;
  for (int line = 1; line < at.line; ++line) offset = text.find('\n', offset) + 1;
  for (int column = 1; column < at.column; ++offset) {
    const bool starts = offset + 1 >= text.size() || (static_cast<unsigned char>(text[offset + 1]) & 0xc0) != 0x80;
    column += starts ? 1 : 0;
  }
  return offset;
}

// Every place points at the first character of what it names.
bool places_are_right(const std::string& text, const Value& value) {
  const char first = text[offset_of(text, value.location)];
  const bool right = value.kind == Kind::kList   ? first == '[' || first == '-'
                     : value.kind == Kind::kMap  ? first == '{' || first == '"'
                     : value.kind == Kind::kNull ? first == 'n' || first == '~'
                     : value.quoted              ? first == '"'
                                                 : first == value.text[0];
  if (!right) return false;
  for (const Value& item : value.items) {
    if (!places_are_right(text, item)) return false;
  }
  for (size_t i = 0; i < value.entries.size(); ++i) {
    if (text[offset_of(text, value.key_locations[i])] != '"' || !places_are_right(text, value.entries[i].second)) return false;
  }
  return true;
}

// Either a value or at least one error, whose place is inside the text; and it can be printed.
bool is_answer(const Result<Value>& result, const std::string& text) {
  if (result.ok()) return result.diagnostics.empty();
  if (result.value || result.diagnostics.empty()) return false;
  const auto num_lines = 1 + std::count(text.begin(), text.end(), '\n');
  for (const Diagnostic& d : result.diagnostics) {
    if (d.code.empty() || d.message.empty() || d.location.line < 1 || d.location.line > num_lines || d.location.column < 1)
      return false;
  }
  return !format_diagnostics(result.diagnostics).empty();
}

}  // namespace

TEST_CASE("a random tree written as JSON is read as the same tree", "[value]") {
  check_property(kNumTrees, [] {
    Draw random;
    const Value tree = random_tree(random, 4);
    const std::string text = as_json(tree, random);
    const Result<Value> read = parse_json(text, "f");
    RC_LOG() << text << "\n" << format_diagnostics(read.diagnostics);
    RC_ASSERT(read.ok());
    RC_ASSERT(same_tree(tree, *read));
    RC_ASSERT(places_are_right(text, *read));
  });
}

TEST_CASE("a random tree written as YAML is read as the same tree", "[value]") {
  check_property(kNumTrees, [] {
    Draw random;
    const Value tree = random_tree(random, 4);
    const std::string text = "---" + as_yaml(tree, 0);
    const Result<Value> read = parse_yaml(text, "f");
    RC_LOG() << text << "\n" << format_diagnostics(read.diagnostics);
    RC_ASSERT(read.ok());
    RC_ASSERT(same_tree(tree, *read));
    RC_ASSERT(places_are_right(text, *read));
  });
}

TEST_CASE("a random tree written as TOML is read as the same tree", "[value]") {
  check_property(kNumTrees, [] {
    Draw random;
    Value tree = random_tree(random, 4);
    RC_PRE(tree.kind == Kind::kMap);
    const std::string text = as_toml(tree);
    const Result<Value> read = parse_toml(text, "f");
    RC_LOG() << text << "\n" << format_diagnostics(read.diagnostics);
    RC_ASSERT(read.ok());
    std::stable_partition(tree.entries.begin(), tree.entries.end(), [](const Value::Entry& e) { return e.second.kind != Kind::kMap; });
    RC_ASSERT(same_tree(as_toml_reads(tree), *read));
  });
}

TEST_CASE("random bytes and damaged files give a value or a diagnostic", "[value]") {
  check_property(kNumTexts, [] {
    Draw random;
    std::string text;
    const int kind = below(random, 3);
    if (kind == 0) {
      for (int n = below(random, 60); n > 0; --n) text += static_cast<char>(random());
    } else if (kind == 1) {
      for (int n = below(random, 12); n > 0; --n) text += random_text(random);
    } else {
      const Value tree = random_tree(random, 3);
      const int form = below(random, 3);
      text = form == 0 ? as_json(tree, random) : form == 1 ? "---" + as_yaml(tree, 0) : as_toml(tree);
      for (int n = 1 + below(random, 4); n > 0 && !text.empty(); --n) {
        const size_t at = random() % text.size();
        if (below(random, 2) == 0)
          text.erase(at, 1 + random() % 4);
        else
          text.insert(at, random_text(random));
      }
    }
    RC_LOG() << text;
    RC_ASSERT(is_answer(parse_yaml(text, "f"), text));
    RC_ASSERT(is_answer(parse_json(text, "f"), text));
    RC_ASSERT(is_answer(parse_toml(text, "f"), text));
  });
}
