// What the readers of YAML, JSON and TOML share: places in a text, and building a `Value` from a stream of events while watching for
// duplicate keys, too deep nesting and too many values (an alias can stand for a million). Internal to base.
#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/value.h"

namespace distsetup {

// Where a line of a text stands in the file that it was made from; column 0: where it has its own.
struct LinePlace {
  int line = 0, column = 0;
};

// A text with its name. Columns count characters (code points) from 1.
class SourceText {
 public:
  SourceText(std::string_view text, std::string_view file_name);
  // `places` of its lines, for at().
  SourceText(std::string_view text, std::string_view file_name, std::vector<LinePlace> places);
  std::string_view text() const { return text_; }
  Location at(size_t offset) const;
  // From a 0-based line and a 0-based byte in it; places past the end become the last place.
  size_t offset(int line, int byte_column) const;
  // From a place as at() makes it.
  size_t offset(const Location& at) const;
  // Where the line that holds `offset` starts.
  size_t line_start(size_t offset) const;
  const std::string& file_name() const { return file_name_; }

 private:
  std::string_view text_;
  std::string file_name_;
  std::vector<size_t> line_starts_;
  std::vector<LinePlace> places_;
  // The last place asked for: a reader goes forward, and a file of one line must not cost its square.
  mutable size_t last_offset_ = 0;
  mutable size_t last_num_characters_ = 0;
};

// Some editors put one in front of UTF-8 text.
std::string_view without_byte_order_mark(std::string_view text);

// An error when the text is not UTF-8 or holds control characters.
Diagnostics check_characters(const SourceText& source);

// kFolded: `global-batch` and `global_batch` are one key (files people write); kExact: as JSON has it.
enum class KeyRule { kFolded, kExact };

class TreeBuilder {
 public:
  explicit TreeBuilder(KeyRule key_rule, RepeatedKeys repeats = RepeatedKeys::kRefused) : key_rule_(key_rule), repeats_(repeats) {}
  // Each leaf and container is the next list item, the value of the last key, or the root.
  void leaf(Value value, size_t anchor = 0);
  void begin(Value container, size_t anchor = 0);
  void end();
  void key(std::string name, Location at, int length);
  void remember(size_t anchor, Value value) { anchors_[anchor] = std::move(value); }  // what an alias will stand for
  void alias(size_t anchor, const Location& at);
  void fail(Diagnostic d);
  void complain(Diagnostic d);  // a mistake after which the rest still has a meaning

  bool in_map() const { return !open_.empty() && open_.back().value.kind == Value::Kind::kMap; }
  bool expects_key() const { return in_map() && !open_.back().has_key; }
  // Where the value after the last key would be reported when it is empty.
  const Location& last_key_location() const { return open_.back().value.key_locations.back(); }
  bool stopped() const { return stopped_; }  // a mistake after which the rest means nothing
  Result<Value> finish();

 private:
  struct Open {
    Value value;
    size_t anchor = 0;
    bool has_key = false;
    std::map<std::string, size_t> seen;  // key -> which of value.entries
  };
  void add(Value value);
  void count(size_t num_values, const Location& at);

  KeyRule key_rule_;
  RepeatedKeys repeats_;
  std::vector<Open> open_;
  std::map<size_t, Value> anchors_;
  std::set<size_t> open_anchors_;
  size_t num_values_ = 0, num_alias_values_ = 0;
  Value root_;
  Diagnostics diagnostics_;
  bool stopped_ = false;
};

}  // namespace distsetup
