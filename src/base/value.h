// A configuration file as a tree of located values, read strictly: duplicate keys, `no`/`on`/`010` spellings and bad syntax are
// diagnostics with file:line:col. YAML, JSON and TOML (value_yaml.h, value_json.h, value_toml.h) end as the same tree, so every reader
// of run.yaml, presets, config.json and key tables uses one set of typed accessors.
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

enum class RepeatedKeys { kRefused, kAllKept };

Value scalar_value(std::string text, const Location& at = {});

// Scalars. Each says found and expected on a mismatch; a bare `no`, `on`, `yes`, `010`, `1_000` is kAmbiguousSpelling.
Result<bool> as_bool(const Value& value);
Result<int64_t> as_int(const Value& value);    // 1048576, 1e6 only when integral
Result<double> as_double(const Value& value);  // 1e-6 is a number
Result<std::string> as_text(const Value& value);

}  // namespace distsetup
