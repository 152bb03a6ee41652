// A recursive-descent reader after the grammar of TOML 1.0.0 (toml.io/en/v1.0.0). The text becomes a tree of nodes that remember how
// they were defined ([table], a.b = 1, [[table]], {inline}), since that decides what may be added later; the tree then becomes a
// Value. The first mistake ends the reading: what follows it would be guesses. Dates are taken as they are, not checked.
#include "base/value_toml.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <memory>
#include <string>
#include <vector>

#include "base/diagnostic_codes.h"
#include "base/toml_word.h"
#include "base/tree_builder.h"

namespace distsetup {
namespace {

constexpr int kMaxTomlDepth = 100;

enum class Defined { kImplicit, kHeader, kDotted, kClosed };  // kClosed: a value, an inline table or array: nothing can be added

struct TomlNode {
  Value value;  // of a leaf; for tables and arrays the place and kind
  Defined defined = Defined::kImplicit;
  bool is_array_of_tables = false;
  std::vector<std::string> names;
  std::vector<Location> name_locations;
  std::vector<std::unique_ptr<TomlNode>> children;  // of a table beside names; of a list the items

  TomlNode* find(const std::string& name) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == name) return children[i].get();
    }
    return nullptr;
  }
};

Value to_value(const TomlNode& node) {
  Value out = node.value;
  for (size_t i = 0; i < node.children.size(); ++i) {
    Value child = to_value(*node.children[i]);
    if (out.kind == Value::Kind::kList) {
      out.items.push_back(std::move(child));
    } else {
      out.entries.push_back({node.names[i], std::move(child)});
      out.key_locations.push_back(node.name_locations[i]);
    }
  }
  return out;
}

struct Key {
  std::vector<std::string> parts;
  std::vector<size_t> starts;
};

class TomlReader {
 public:
  explicit TomlReader(const SourceText& source) : source_(source), text_(source.text()) {}

  Result<Value> read() {
    TomlNode root;
    root.value.kind = Value::Kind::kMap;
    root.value.location = source_.at(0);
    TomlNode* table = &root;
    for (skip_lines(); failed_.empty() && at_ < text_.size(); skip_lines()) {
      if (text_[at_] == '[') {
        table = header(root);
      } else {
        key_value(*table, 0);
      }
      if (failed_.empty()) end_of_line();
    }
    if (!failed_.empty()) return failed_;
    return to_value(root);
  }

 private:
  std::nullptr_t fail(size_t at, std::string message, std::string help = "") {
    if (failed_.empty()) failed_.push_back(error(code::kSyntax, source_.at(at), std::move(message), std::move(help)));
    return nullptr;
  }
  std::nullptr_t fail_twice(size_t at, const std::string& name, const Location& first) {
    if (failed_.empty())
      failed_.push_back(error(code::kDuplicateKey, source_.at(at), fmt::format("key '{}' is given twice, expected once", name),
                              fmt::format("remove this one or the first, at line {} column {}", first.line, first.column)));
    return nullptr;
  }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool starts(std::string_view word) const { return text_.substr(at_, word.size()) == word; }
  std::string found() const {
    return at_ >= text_.size() ? "the end" : peek() == '\n' ? "the end of the line" : fmt::format("'{}'", peek());
  }

  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t') ++at_;
  }
  void skip_comment() {
    if (peek() == '#') at_ = std::min(text_.find('\n', at_), text_.size());
  }
  // Blank lines, comments and blanks.
  void skip_lines() {
    for (;;) {
      skip_blanks();
      skip_comment();
      if (peek() == '\r' && peek(1) == '\n') ++at_;
      if (peek() != '\n') return;
      ++at_;
    }
  }
  void end_of_line() {
    skip_blanks();
    skip_comment();
    if (peek() == '\r' && peek(1) == '\n') ++at_;
    if (at_ < text_.size() && peek() != '\n') fail(at_, fmt::format("found {}, expected the end of the line", found()));
  }

  static bool is_bare(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; }

  Key key() {
    Key out;
    for (;;) {
      skip_blanks();
      out.starts.push_back(at_);
      if (peek() == '"' || peek() == '\'') {
        if (starts("\"\"\"") || starts("'''")) fail(at_, "found a string of several lines, expected a key");
        out.parts.push_back(string());
      } else {
        const size_t begin = at_;
        while (is_bare(peek())) ++at_;
        if (at_ == begin) fail(at_, fmt::format("found {}, expected a key", found()));
        out.parts.emplace_back(text_.substr(begin, at_ - begin));
      }
      skip_blanks();
      if (!failed_.empty() || peek() != '.') return out;
      ++at_;
    }
  }

  TomlNode* add(TomlNode& table, const std::string& name, size_t at, Value::Kind kind, Defined defined) {
    auto node = std::make_unique<TomlNode>();
    node->value.kind = kind;
    node->value.location = source_.at(at);
    node->defined = defined;
    table.names.push_back(name);
    table.name_locations.push_back(source_.at(at));
    table.children.push_back(std::move(node));
    return table.children.back().get();
  }
  TomlNode* add_item(TomlNode& list, size_t at) {
    auto node = std::make_unique<TomlNode>();
    node->value.kind = Value::Kind::kMap;
    node->value.location = source_.at(at);
    node->defined = Defined::kHeader;
    list.children.push_back(std::move(node));
    return list.children.back().get();
  }

  // [a.b] or [[a.b]]: the table whose keys follow.
  TomlNode* header(TomlNode& root) {
    const size_t begin = at_;
    const bool is_array = starts("[[");
    at_ += is_array ? 2 : 1;
    const Key path = key();
    if (failed_.empty() && !starts(is_array ? "]]" : "]"))
      fail(at_, fmt::format("found {}, expected '{}'", found(), is_array ? "]]" : "]"));
    if (!failed_.empty()) return &root;
    at_ += is_array ? 2 : 1;
    TomlNode* table = &root;
    for (size_t i = 0; i < path.parts.size(); ++i) {
      const std::string& name = path.parts[i];
      const bool is_last = i + 1 == path.parts.size();
      TomlNode* next = table->find(name);
      if (next == nullptr) {
        const bool is_list = is_last && is_array;
        next = add(*table, name, path.starts[i], is_list ? Value::Kind::kList : Value::Kind::kMap,
                   is_last ? Defined::kHeader : Defined::kImplicit);
        next->is_array_of_tables = is_list;
      } else {
        const bool is_taken = is_array ? !next->is_array_of_tables : next->defined != Defined::kImplicit;
        if ((is_last && is_taken) || next->defined == Defined::kClosed) {
          fail_twice(path.starts[i], name, next->value.location);
          return &root;
        }
      }
      if (is_last && !is_array) {
        next->defined = Defined::kHeader;
        next->value.location = source_.at(path.starts[i]);
      }
      table = next->is_array_of_tables ? (is_last ? add_item(*next, begin) : next->children.back().get()) : next;
    }
    return table;
  }

  void key_value(TomlNode& table, int depth) {
    const Key path = key();
    if (!failed_.empty()) return;
    if (peek() != '=') {
      fail(at_, fmt::format("found {}, expected '=' after the key", found()));
      return;
    }
    ++at_;
    TomlNode* node = &table;
    for (size_t i = 0; i + 1 < path.parts.size(); ++i) {
      TomlNode* next = node->find(path.parts[i]);
      if (next == nullptr) {
        next = add(*node, path.parts[i], path.starts[i], Value::Kind::kMap, Defined::kDotted);
      } else if (next->value.kind != Value::Kind::kMap || next->defined == Defined::kClosed || next->defined == Defined::kHeader) {
        fail_twice(path.starts[i], path.parts[i], next->value.location);
        return;
      }
      node = next;
    }
    const std::string& name = path.parts.back();
    if (const TomlNode* earlier = node->find(name)) {
      fail_twice(path.starts.back(), name, earlier->value.location);
      return;
    }
    TomlNode* leaf = add(*node, name, path.starts.back(), Value::Kind::kScalar, Defined::kClosed);
    skip_blanks();
    value(*leaf, depth);
  }

  // The value at the cursor into `node`, which is closed afterwards.
  void value(TomlNode& node, int depth) {
    node.defined = Defined::kClosed;
    node.value.location = source_.at(at_);
    if (depth > kMaxTomlDepth) {
      fail(at_, fmt::format("found nesting deeper than {} levels, expected less", kMaxTomlDepth));
      return;
    }
    if (peek() == '"' || peek() == '\'') {
      node.value.kind = Value::Kind::kScalar;
      node.value.quoted = true;
      node.value.text = string();
    } else if (peek() == '[') {
      array(node, depth);
    } else if (peek() == '{') {
      inline_table(node, depth);
    } else {
      node.value.kind = Value::Kind::kScalar;
      node.value.text = bare();
    }
  }

  void array(TomlNode& node, int depth) {
    node.value.kind = Value::Kind::kList;
    ++at_;
    for (;;) {
      skip_lines();
      if (peek() == ']') break;
      node.children.push_back(std::make_unique<TomlNode>());
      value(*node.children.back(), depth + 1);
      skip_lines();
      if (!failed_.empty() || peek() == ']') break;
      if (peek() != ',') {
        fail(at_, fmt::format("found {}, expected ',' or ']'", found()));
        return;
      }
      ++at_;
    }
    ++at_;
  }

  void inline_table(TomlNode& node, int depth) {
    node.value.kind = Value::Kind::kMap;
    node.defined = Defined::kImplicit;  // dotted keys inside may extend what they made
    ++at_;
    skip_blanks();
    while (failed_.empty() && peek() != '}') {
      key_value(node, depth + 1);
      skip_blanks();
      if (!failed_.empty()) return;
      if (peek() == '}') break;
      if (peek() != ',') {
        fail(at_, fmt::format("found {}, expected ',' or '}}'", found()), "an inline table stays on one line");
        return;
      }
      ++at_;
      skip_blanks();
      if (peek() == '}') fail(at_, "found '}' after ',', expected a key");
    }
    node.defined = Defined::kClosed;
    ++at_;
  }

  void escape(bool several_lines, std::string& out) {
    const size_t at = at_++;
    const char c = peek();
    ++at_;
    switch (c) {
      case 'b': out += '\b'; return;
      case 't': out += '\t'; return;
      case 'n': out += '\n'; return;
      case 'f': out += '\f'; return;
      case 'r': out += '\r'; return;
      case '"': out += '"'; return;
      case '\\': out += '\\'; return;
      case 'u':
      case 'U': {
        const size_t digits = c == 'u' ? 4 : 8;
        uint32_t code_point = 0;
        const std::string_view hex = text_.substr(at_, digits);
        const auto [end, status] = std::from_chars(hex.data(), hex.data() + hex.size(), code_point, 16);
        if (hex.size() != digits || status != std::errc() || end != hex.data() + digits) {
          fail(at, fmt::format("found '\\{}', expected {} hexadecimal digits after it", c, digits));
          return;
        }
        at_ += digits;
        if (!append_utf8(code_point, out)) fail(at, "found an escape that is no character");
        return;
      }
      default: break;
    }
    --at_;
    size_t rest = at_;
    while (rest < text_.size() && (text_[rest] == ' ' || text_[rest] == '\t' || text_[rest] == '\r')) ++rest;
    if (several_lines && rest < text_.size() && text_[rest] == '\n') {  // a line end behind '\': up to the next character
      while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
      return;
    }
    fail(at, fmt::format("found '\\{}', expected an escape of TOML", c), "use a 'literal string' or write '\\\\'");
  }

  std::string string() {
    const size_t begin = at_;
    const char quote = peek();
    const std::string triple(3, quote);
    const bool several_lines = starts(triple);
    at_ += several_lines ? 3 : 1;
    if (several_lines && peek() == '\r' && peek(1) == '\n') ++at_;
    if (several_lines && peek() == '\n') ++at_;
    std::string out;
    while (failed_.empty()) {
      if (at_ >= text_.size() || (!several_lines && peek() == '\n')) {
        fail(begin, fmt::format("found a string without end, expected '{}'", several_lines ? triple : std::string(1, quote)));
      } else if (several_lines ? starts(triple) : peek() == quote) {
        // Up to two quotes may stand before the three that end it.
        while (several_lines && peek(3) == quote && out.size() < text_.size()) {
          out += quote;
          ++at_;
        }
        at_ += several_lines ? 3 : 1;
        return out;
      } else if (quote == '"' && peek() == '\\') {
        escape(several_lines, out);
      } else {
        out += text_[at_++];
      }
    }
    return out;
  }

  // A boolean, number or date, up to a blank or punctuation.
  std::string bare() {
    const size_t begin = at_;
    const auto word_ends = [](char c) { return c == '\0' || std::string_view(" \t\r\n,]}#").find(c) != std::string_view::npos; };
    while (!word_ends(peek())) ++at_;
    // "1979-05-27 07:32:00": a blank between date and time.
    if (at_ - begin == 10 && text_[begin + 4] == '-' && peek() == ' ' && std::isdigit(static_cast<unsigned char>(peek(1))) != 0) {
      ++at_;
      while (!word_ends(peek())) ++at_;
    }
    if (at_ == begin) {
      fail(begin, fmt::format("found {}, expected a value", found()));
      return "";
    }
    TomlWord word = read_toml_word(std::string(text_.substr(begin, at_ - begin)));
    if (!word.problem.empty()) fail(begin, std::move(word.problem), std::move(word.help));
    return std::move(word.text);
  }

  const SourceText& source_;
  std::string_view text_;
  size_t at_ = 0;
  Diagnostics failed_;
};

}  // namespace

Result<Value> parse_toml(std::string_view text, std::string_view file_name) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (text.substr(0, kMark.size()) == kMark) text.remove_prefix(kMark.size());
  const SourceText source(text, file_name);
  if (Diagnostics bad = check_characters(source); !bad.empty()) return bad;
  return TomlReader(source).read();
}

}  // namespace distsetup
