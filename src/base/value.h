// A configuration file as a tree of located values, read strictly: duplicate keys, `no`/`on`/`010` spellings and bad syntax are
// diagnostics with file:line:col. YAML through yaml-cpp, JSON through nlohmann_json; both end as the same tree, so every reader of
// run.yaml, presets, config.json and key tables uses one set of typed accessors.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/diagnostic.h"

namespace distsetup {

struct Value {
  struct Entry;  // {first: the key, second: its value}
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  Location location;
  std::string text;                     // the scalar as written, without quotes; for kNull its spelling ("null", "~", "")
  bool quoted = false;                  // '010' in quotes is text
  std::vector<Value> items = {};        // kList (= {}: clang 14 needs it, the type is recursive)
  std::vector<Entry> entries;           // kMap, in file order
  std::vector<Location> key_locations;  // beside entries

  const Value* find(std::string_view key) const;  // nullptr when absent or not a map
};

struct Value::Entry {
  std::string first;
  Value second;
};

Value scalar_value(std::string text, const Location& at = {});

Result<Value> parse_yaml(std::string_view text, std::string_view file_name);
Result<Value> parse_json(std::string_view text, std::string_view file_name);  // duplicate keys are errors here too, compared exactly
Result<std::string> read_file(const std::string& path);
Result<Value> read_yaml_file(const std::string& path);

// Scalars. Each says found and expected on a mismatch; a bare `no`, `on`, `yes`, `010`, `1_000` is kAmbiguousSpelling.
Result<bool> as_bool(const Value& value);
Result<int64_t> as_int(const Value& value);    // 1048576, 1e6 only when integral
Result<double> as_double(const Value& value);  // 1e-6 is a number
Result<std::string> as_text(const Value& value);

// What an explicit null means: in our files a mistake (`grad_clip: null` would silently become the default), in a model's
// config.json the same as leaving the key out.
enum class Nulls { kRefuse, kAbsent };

// Reads a map key by key and remembers which were asked for; finish() reports every other key with the nearest known one.
// Keys compare with '-' and '_' the same. get(): false and `out` untouched when the key is absent; false and a diagnostic when its
// value has the wrong type. `map` and `diagnostics` must outlive the reader.
class MapReader {
 public:
  MapReader(const Value& map, std::string what, Diagnostics& diagnostics, Nulls nulls = Nulls::kRefuse);  // what: "train" in messages
  bool get(std::string_view key, bool& out);
  bool get(std::string_view key, int64_t& out);
  bool get(std::string_view key, double& out);
  bool get(std::string_view key, std::string& out);
  bool get(std::string_view key, std::vector<std::string>& out);  // a list of text, or one text
  const Value* child(std::string_view key);                       // marks as known
  void require(std::string_view key);                             // kMissingKey when absent
  void finish();                                                  // unknown keys
 private:
  const Value* present(std::string_view key);
  const Value& map_;
  std::string what_;
  Diagnostics& diagnostics_;
  Nulls nulls_;
  std::vector<std::string> known_;
};

}  // namespace distsetup
