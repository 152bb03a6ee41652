// YAML text to a Value, through yaml-cpp's events rather than its nodes: nodes drop duplicate keys and whether a scalar was quoted.
// Strict: one document, keys are text, no tags but !!str and, of a text that is one, !!int, !!float and !!bool, no merge keys (but in
// files of other tools), and what yaml-cpp 0.7 lets pass (a quote never closed, text after the document) is found here. Scalars stay
// text; as_int() and its like decide what they mean.
#include "base/value_yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <vector>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/tree_builder.h"

namespace distsetup {
namespace {

constexpr std::string_view kCoreTag = "tag:yaml.org,2002:";

// The end of the quoted scalar that starts at `begin`, or npos when the closing quote is missing.
size_t end_of_quoted(std::string_view text, size_t begin) {
  const char quote = text[begin];
  for (size_t i = begin + 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      if (quote == '"' || i + 1 >= text.size() || text[i + 1] != '\'') return i + 1;
      ++i;  // '' inside single quotes
    }
  }
  return std::string_view::npos;
}

// Past anchors and tags: `&name !!str "text"` starts at the quote.
size_t content_begin(std::string_view text, size_t begin) {
  while (begin < text.size() && (text[begin] == '&' || text[begin] == '!')) {
    const size_t blank = std::min(text.find_first_of(" \t\r\n", begin), text.size());
    begin = std::min(text.find_first_not_of(" \t\r\n", blank), text.size());
  }
  return begin;
}

class YamlEvents : public YAML::EventHandler {
 public:
  YamlEvents(const SourceText& source, RepeatedKeys repeats)
      : source_(source), takes_merges_(repeats == RepeatedKeys::kAllKept), builder_(KeyRule::kFolded, repeats) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (num_documents_++ == 0) return;
    const size_t begin = offset(mark);
    const std::string_view between = source_.text().substr(last_offset_, begin > last_offset_ ? begin - last_offset_ : 0);
    const bool at_separator = source_.text().substr(begin, 3) == "---";
    const bool separated =
        at_separator || between.find("\n---") != std::string_view::npos || between.find("\n...") != std::string_view::npos;
    if (separated) {
      builder_.fail(error(code::kSyntax, source_.at(begin), "found a second document, expected one", "remove it and the '---' above"));
    } else {
      builder_.fail(error(code::kSyntax, source_.at(begin), "found text after the end of the value, expected the end of the file",
                          "indent this line like the lines above"));
    }
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Value value;
    const size_t begin = offset(mark);
    const std::string_view rest = source_.text().substr(begin);
    for (const std::string_view spelling : {"null", "Null", "NULL", "~"}) {
      if (rest.substr(0, spelling.size()) == spelling) value.text = spelling;
    }
    if (builder_.expects_key()) return key_must_be_text(begin);
    const bool is_empty_entry = value.text.empty() && builder_.in_map();
    if (is_empty_entry && !colon_follows_key()) return;
    value.location = is_empty_entry ? builder_.last_key_location() : source_.at(begin);
    last_offset_ = begin;
    builder_.leaf(std::move(value), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    last_offset_ = offset(mark);
    if (builder_.expects_key()) return key_must_be_text(last_offset_);
    builder_.alias(anchor, source_.at(last_offset_));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& text) override {
    const bool is_typed = is_of_type(tag, text);
    if (!is_typed && !check_tag(tag, offset(mark))) return;
    const bool is_empty_text = text.empty() && tag != "!";  // `!!str` with nothing behind it
    const size_t begin = is_empty_text ? offset(mark) : content_begin(source_.text(), offset(mark));
    last_offset_ = begin;
    if (!check_closed(begin)) return;
    const bool quoted = tag == "!" || (!is_plain(tag) && !is_typed);
    Value value;
    value.kind = Value::Kind::kScalar;
    value.location = source_.at(begin);
    value.text = text;
    value.quoted = quoted;
    if (builder_.expects_key()) {
      if (anchor != 0) builder_.remember(anchor, value);
      if (text == "<<" && !quoted && !takes_merges_) {
        return builder_.fail(
            error(code::kSyntax, source_.at(begin), "found the merge key '<<', expected a plain key", "write the merged keys out"));
      }
      key_begin_ = begin;
      key_end_ = is_quote_at(begin) ? end_of_quoted(source_.text(), begin) : begin + text.size();
      return builder_.key(text, value.location, std::max(static_cast<int>(key_end_ - key_begin_), 1));
    }
    builder_.leaf(std::move(value), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    begin(Value::Kind::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    begin(Value::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { end(); }

  // yaml-cpp's own complaint. It names the place where reading stopped; the cause is sometimes known better.
  void syntax_error(const YAML::Exception& e) {
    const size_t stop = e.mark.is_null() ? last_offset_ : source_.offset(e.mark.line, e.mark.column);
    const std::string_view line = source_.text().substr(source_.line_start(stop));
    if (const size_t blank = line.substr(0, line.find_first_not_of(" \t")).find('\t'); blank != std::string_view::npos) {
      return builder_.fail(error(code::kSyntax, source_.at(source_.line_start(stop) + blank),
                                 "found a tab in the indentation, expected spaces", "replace the tab with spaces"));
    }
    if (report_missing_colon(stop)) return;
    const std::string what = e.msg;
    const bool ends_inside =
        what.find("end of sequence flow") != std::string::npos || what.find("end of map flow") != std::string::npos;
    if (ends_inside && report_open_bracket()) return;
    const bool stray_colon = what == "illegal map value";
    builder_.fail(error(code::kSyntax, source_.at(stop),
                        fmt::format("found invalid YAML: {}, expected 'key: value' or '- item' lines", what),
                        stray_colon ? "check the indentation, and quote text that contains ': '" : ""));
  }

  void fail(Diagnostic d) { builder_.fail(std::move(d)); }
  bool stopped() const { return builder_.stopped(); }
  Result<Value> finish() { return builder_.finish(); }

 private:
  // `steps 8` or `steps:8` among `key: value` lines: yaml-cpp stops there or on the next line, blaming something else.
  bool report_missing_colon(size_t stop) {
    size_t begin = source_.line_start(stop);
    for (int num_tried = 0; num_tried < 2; ++num_tried) {
      const std::string_view rest = source_.text().substr(begin);
      std::string_view line = rest.substr(0, rest.find_first_of("\r\n"));
      const size_t indent = std::min(line.find_first_not_of(' '), line.size());
      line = line.substr(indent);
      const bool is_name = line.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_") != 0;
      const size_t colon = line.find(':');
      const bool has_value = colon != std::string_view::npos && (colon + 1 == line.size() || line[colon + 1] == ' ');
      if (is_name && !has_value && line.find_first_of("'\"[]{},#&*|>") == std::string_view::npos) {
        const bool glued = colon != std::string_view::npos;
        Diagnostic d = error(code::kSyntax, source_.at(begin + indent), fmt::format("found '{}', expected 'key: value'", line),
                             glued ? "put a space behind the ':'" : "put ': ' behind the key");
        d.length = static_cast<int>(line.size());
        builder_.fail(std::move(d));
        return true;
      }
      if (begin == 0) return false;
      begin = source_.line_start(begin - 1);
    }
    return false;
  }

  // `!!int "4"` is 4 (YAML 1.1, and PyYAML's SafeLoader).
  static bool is_of_type(const std::string& tag, const std::string& text) {
    if (text.empty() || tag.compare(0, kCoreTag.size(), kCoreTag) != 0) return false;
    const std::string_view type = std::string_view(tag).substr(kCoreTag.size());
    if (type == "int") return text.find_first_not_of("0123456789", text[0] == '-' ? 1 : 0) == std::string::npos && text != "-";
    if (type == "bool") return text == "true" || text == "false";
    double ignored = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), ignored);
    return type == "float" && status == std::errc() && end == text.data() + text.size();
  }
  static bool is_plain(const std::string& tag) { return tag.empty() || tag == "?"; }
  size_t offset(const YAML::Mark& mark) const { return source_.offset(mark.line, mark.column); }

  void begin(Value::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    const size_t begin = offset(mark);
    last_offset_ = begin;
    if (!check_tag(tag, begin)) return;
    if (builder_.expects_key()) return key_must_be_text(begin);
    Value value;
    value.kind = kind;
    value.location = source_.at(begin);
    builder_.begin(std::move(value), anchor);
    brackets_.push_back(content_begin(source_.text(), begin));
  }

  void end() {
    if (!brackets_.empty()) brackets_.pop_back();
    builder_.end();
  }

  // The innermost '[' or '{' that is open, if there is one.
  bool report_open_bracket() {
    for (auto begin = brackets_.rbegin(); begin != brackets_.rend(); ++begin) {
      const char bracket = *begin < source_.text().size() ? source_.text()[*begin] : ' ';
      if (bracket != '[' && bracket != '{') continue;
      builder_.fail(error(code::kSyntax, source_.at(*begin),
                          fmt::format("found '{}' without its '{}', expected both", bracket, bracket == '[' ? ']' : '}')));
      return true;
    }
    return false;
  }

  void key_must_be_text(size_t begin) {
    builder_.fail(error(code::kSyntax, source_.at(begin), "found a key that is not text, expected a name", "write 'name: value'"));
  }

  // yaml-cpp 0.7 takes a last line `steps:8` for a key without a value.
  bool colon_follows_key() {
    const std::string_view rest = source_.text().substr(std::min(key_end_, source_.text().size()));
    const size_t next = rest.find_first_not_of(" \t\r\n");
    if (next != std::string_view::npos && rest[next] == ':') return true;
    // {A100:1, H100:8}: keys without values, as SkyPilot takes them. In files of ours a blank is missing.
    if (takes_merges_ && next != std::string_view::npos && (rest[next] == '}' || rest[next] == ',')) return true;
    if (next == std::string_view::npos && report_open_bracket()) return false;
    const std::string_view key = source_.text().substr(key_begin_, key_end_ - key_begin_);
    Diagnostic d = error(code::kSyntax, source_.at(key_begin_), fmt::format("found '{}', expected 'key: value'", key),
                         key.find(':') != std::string_view::npos ? "put a space behind the ':'" : "put ': ' behind the key");
    d.length = std::max(static_cast<int>(key.size()), 1);
    builder_.fail(std::move(d));
    return false;
  }

  bool check_tag(const std::string& tag, size_t begin) {
    if (is_plain(tag) || tag == "!" || tag == "tag:yaml.org,2002:str") return true;
    const bool is_core = tag.compare(0, kCoreTag.size(), kCoreTag) == 0;
    const std::string shown = is_core ? "!!" + tag.substr(kCoreTag.size()) : tag;
    Diagnostic found =
        error(code::kSyntax, source_.at(begin), fmt::format("found the tag '{}', expected no tag", shown), "remove the tag");
    // `!include x.yaml` is a form of some tools, which the other keys of their files tell.
    const bool is_of_tool = takes_merges_ && !is_core;
    is_of_tool ? builder_.complain(std::move(found)) : builder_.fail(std::move(found));
    return is_of_tool;
  }

  bool is_quote_at(size_t begin) const {
    const std::string_view text = source_.text();
    return begin < text.size() && (text[begin] == '"' || text[begin] == '\'');
  }

  // yaml-cpp 0.7 takes the end of the file for a closing quote.
  bool check_closed(size_t begin) {
    if (!is_quote_at(begin) || end_of_quoted(source_.text(), begin) != std::string_view::npos) return true;
    builder_.fail(error(code::kSyntax, source_.at(begin), "found a quote that is never closed, expected its end", "close the quote"));
    return false;
  }

  const SourceText& source_;
  bool takes_merges_ = false;
  TreeBuilder builder_;
  int num_documents_ = 0;
  size_t last_offset_ = 0;
  std::vector<size_t> brackets_;  // where each open list or map starts
  size_t key_begin_ = 0;
  size_t key_end_ = 0;
};

// `<<: *base` and `<<: [*a, *b]`: the keys of those maps that the map itself does not have; of several the first that has a key counts
// (YAML 1.1, type merge).
void merge_maps(Value& value) {
  for (Value& item : value.items) merge_maps(item);
  for (auto& entry : value.entries) merge_maps(entry.second);
  for (size_t i = 0; i < value.entries.size();) {
    if (value.entries[i].first != "<<") {
      ++i;
      continue;
    }
    Value from = std::move(value.entries[i].second);
    value.entries.erase(value.entries.begin() + static_cast<std::ptrdiff_t>(i));
    value.key_locations.erase(value.key_locations.begin() + static_cast<std::ptrdiff_t>(i));
    std::vector<Value> maps;
    if (from.kind == Value::Kind::kMap) {
      maps.push_back(std::move(from));
    } else {
      maps = std::move(from.items);
    }
    for (Value& map : maps) {
      for (size_t k = 0; k < map.entries.size(); ++k) {
        const auto is_it = [&name = map.entries[k].first](const Value::Entry& one) { return one.first == name; };
        if (std::any_of(value.entries.begin(), value.entries.end(), is_it)) continue;
        value.entries.push_back(std::move(map.entries[k]));
        value.key_locations.push_back(map.key_locations[k]);
      }
    }
  }
}

}  // namespace

Result<Value> parse_yaml(std::string_view text, std::string_view file_name, RepeatedKeys repeats) {
  text = without_byte_order_mark(text);
  const SourceText source(text, file_name);
  if (Diagnostics mistakes = check_characters(source); !mistakes.empty()) return mistakes;
  YamlEvents events(source, repeats);
  try {
    std::istringstream in{std::string(text)};
    YAML::Parser parser(in);
    while (!events.stopped() && parser.HandleNextDocument(events)) {
    }
  } catch (const YAML::Exception& e) {
    events.syntax_error(e);
  }
  Result<Value> result = events.finish();
  if (result.value && repeats == RepeatedKeys::kAllKept) merge_maps(*result.value);
  if (result.ok() && result->location.line == 0) result->location = source.at(0);  // an empty file
  return result;
}

Result<Value> read_yaml_file(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.diagnostics;
  return parse_yaml(*text, path);
}

}  // namespace distsetup
