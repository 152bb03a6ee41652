// JSON text to a Value, through nlohmann's event parser. Its events carry no positions, but between two of them a valid text holds
// only blanks, ',' and ':', so a cursor that follows the events knows where each token starts. Numbers stay as written.
#include "base/value_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/diagnostic_codes.h"
#include "base/tree_builder.h"

namespace distsetup {
namespace {

using nlohmann::json;

// nlohmann's method names.
class JsonEvents : public json::json_sax_t {
 public:
  explicit JsonEvents(const SourceText& source) : source_(source), builder_(KeyRule::kExact) {}

  bool null() override { return leaf(Value::Kind::kNull, literal()); }
  bool boolean(bool) override { return leaf(Value::Kind::kScalar, literal()); }
  bool number_integer(number_integer_t) override { return leaf(Value::Kind::kScalar, literal()); }
  bool number_unsigned(number_unsigned_t) override { return leaf(Value::Kind::kScalar, literal()); }
  bool number_float(number_float_t, const string_t&) override { return leaf(Value::Kind::kScalar, literal()); }
  bool string(string_t& text) override {
    skip_quoted();
    is_quoted_ = true;
    return leaf(Value::Kind::kScalar, text);
  }
  bool binary(binary_t&) override { return false; }  // not in JSON text
  bool start_object(size_t) override { return begin(Value::Kind::kMap); }
  bool start_array(size_t) override { return begin(Value::Kind::kList); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(string_t& name) override {
    skip_quoted();
    builder_.key(name, source_.at(start_), static_cast<int>(cursor_ - start_));
    return !builder_.stopped();
  }

  bool parse_error(size_t position, const std::string&, const json::exception& e) override {
    // `position` counts the bytes read, the last of which is the one that is wrong.
    const size_t stop = std::min(position > 0 ? position - 1 : 0, source_.text().size());
    go_to_token();
    const std::string_view rest = source_.text().substr(std::min(start_, source_.text().size()));
    for (const std::string_view spelling : {"NaN", "Infinity", "-Infinity"}) {
      if (rest.substr(0, spelling.size()) == spelling) {
        builder_.fail(
            error(code::kSyntax, source_.at(start_), fmt::format("found '{}', expected a number that JSON can hold", spelling)));
        return false;
      }
    }
    std::string what =
        e.what();  // "[json.exception.…] parse error at line 1, column 3: syntax error while …; last read: …; expected …"
    if (const size_t colon = what.find(": "); colon != std::string::npos && what.find("parse error") < colon) what.erase(0, colon + 2);
    if (const size_t bracket = what.find("] "); what.rfind("[json", 0) == 0 && bracket != std::string::npos)
      what.erase(0, bracket + 2);
    if (const size_t read = what.find("; last read: "); read != std::string::npos) {
      const size_t wanted = what.rfind("; expected ");
      what.erase(read, wanted != std::string::npos && wanted > read ? wanted - read : std::string::npos);
    }
    // Inside a string the bad byte is the place, else the token.
    const bool in_string = what.find("invalid string") != std::string::npos && what.find("closing quote") == std::string::npos;
    builder_.fail(error(code::kSyntax, source_.at(in_string ? stop : start_), fmt::format("found invalid JSON: {}", what),
                        is_part() ? "it is a part of an object: put { in front of it and } behind it" : ""));
    return false;
  }

  Result<Value> finish() { return builder_.finish(); }

 private:
  // "key": … without the braces around it, as documents quote it.
  bool is_part() const {
    const std::string_view text = source_.text();
    const size_t open = std::min(text.find_first_not_of(" \t\r\n"), text.size());
    const size_t close = open < text.size() && text[open] == '"' ? text.find('"', open + 1) : std::string_view::npos;
    if (close == std::string_view::npos) return false;
    const size_t next = text.find_first_not_of(" \t\r\n", close + 1);
    return next != std::string_view::npos && text[next] == ':';
  }

  // Moves `start_` to the next token.
  void go_to_token() {
    const std::string_view text = source_.text();
    while (cursor_ < text.size() && std::string_view(" \t\r\n,:").find(text[cursor_]) != std::string_view::npos) ++cursor_;
    start_ = cursor_;
  }

  std::string literal() {
    go_to_token();
    const std::string_view text = source_.text();
    cursor_ = std::min(text.find_first_of(" \t\r\n,:]}", start_), text.size());
    return std::string(text.substr(start_, cursor_ - start_));
  }

  void skip_quoted() {
    go_to_token();
    const std::string_view text = source_.text();
    for (++cursor_; cursor_ < text.size() && text[cursor_] != '"'; ++cursor_) {
      if (text[cursor_] == '\\') ++cursor_;
    }
    ++cursor_;
  }

  bool leaf(Value::Kind kind, std::string text) {
    Value value;
    value.kind = kind;
    value.location = source_.at(start_);
    value.text = std::move(text);
    value.quoted = is_quoted_;
    is_quoted_ = false;
    builder_.leaf(std::move(value));
    return !builder_.stopped();
  }

  bool begin(Value::Kind kind) {
    go_to_token();
    ++cursor_;
    Value value;
    value.kind = kind;
    value.location = source_.at(start_);
    builder_.begin(std::move(value));
    return !builder_.stopped();
  }

  bool end() {
    go_to_token();
    ++cursor_;
    builder_.end();
    return !builder_.stopped();
  }

  const SourceText& source_;
  TreeBuilder builder_;
  size_t cursor_ = 0;  // behind the last token
  size_t start_ = 0;   // of the last token
  bool is_quoted_ = false;
};

}  // namespace

Result<Value> parse_json(std::string_view text, std::string_view file_name) {
  text = without_byte_order_mark(text);
  const SourceText source(text, file_name);
  JsonEvents events(source);
  json::sax_parse(text.begin(), text.end(), &events);
  return events.finish();
}

}  // namespace distsetup
