// Reading a map by the keys one knows and complaining about the others. Messages start with the full name of the key
// ("train.steps: …"), because JSON output and editors show them without the source line.
#include "base/map_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/names.h"

namespace distsetup {
namespace {

std::string full_name(std::string_view what, std::string_view key) {
  return what.empty() ? std::string(key) : fmt::format("{}.{}", what, key);
}

bool same_key(std::string_view a, std::string_view b) {
  const auto same = [](char x, char y) { return x == y || ((x == '-' || x == '_') && (y == '-' || y == '_')); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

// Moves the value or the diagnostics of `result` to where they belong.
template <class T>
bool take(Result<T> result, std::string_view name, T& out, Diagnostics& diagnostics) {
  for (Diagnostic& d : result.diagnostics) d.message = fmt::format("{}: {}", name, d.message);
  append(diagnostics, std::move(result.diagnostics));
  if (!result.value) return false;
  out = std::move(*result.value);
  return true;
}

}  // namespace

MapReader::MapReader(const Value& map, std::string what, Diagnostics& diagnostics, Nulls nulls)
    : map_(map), what_(std::move(what)), diagnostics_(diagnostics), nulls_(nulls) {
  const bool is_readable = map.kind == Value::Kind::kMap || map.kind == Value::Kind::kNull;  // `train:` with nothing below is empty
  if (is_readable) return;
  const std::string name = what_.empty() ? "" : what_ + ": ";
  const std::string found = map.kind == Value::Kind::kList ? "a list" : fmt::format("'{}'", map.text);
  diagnostics_.push_back(error(code::kWrongType, map.location, fmt::format("{}found {}, expected 'key: value' lines", name, found)));
}

const Value* MapReader::child(std::string_view key) {
  known_.emplace_back(key);
  return map_.find(key);
}

// The value to read, nullptr when there is none.
const Value* MapReader::present(std::string_view key) {
  const Value* value = child(key);
  const bool absent = value == nullptr || (value->kind == Value::Kind::kNull && nulls_ == Nulls::kAbsent);
  return absent ? nullptr : value;
}

bool MapReader::get(std::string_view key, bool& out) {
  const Value* value = present(key);
  return value != nullptr && take(as_bool(*value), full_name(what_, key), out, diagnostics_);
}

bool MapReader::get(std::string_view key, int64_t& out) {
  const Value* value = present(key);
  return value != nullptr && take(as_int(*value), full_name(what_, key), out, diagnostics_);
}

bool MapReader::get(std::string_view key, double& out) {
  const Value* value = present(key);
  return value != nullptr && take(as_double(*value), full_name(what_, key), out, diagnostics_);
}

bool MapReader::get(std::string_view key, std::string& out) {
  const Value* value = present(key);
  return value != nullptr && take(as_text(*value), full_name(what_, key), out, diagnostics_);
}

bool MapReader::get(std::string_view key, std::vector<std::string>& out) {
  const Value* value = present(key);
  if (value == nullptr) return false;
  const std::string name = full_name(what_, key);
  std::vector<std::string> texts;
  if (value->kind != Value::Kind::kList) {
    std::string text;
    if (!take(as_text(*value), name, text, diagnostics_)) return false;
    texts.push_back(std::move(text));
  }
  bool all_read = true;
  for (size_t i = 0; i < value->items.size(); ++i) {
    std::string text;
    all_read = take(as_text(value->items[i]), fmt::format("{}[{}]", name, i), text, diagnostics_) && all_read;
    texts.push_back(std::move(text));
  }
  if (all_read) out = std::move(texts);
  return all_read;
}

void MapReader::require(std::string_view key) {
  if (present(key) != nullptr || (map_.kind != Value::Kind::kMap && map_.kind != Value::Kind::kNull)) return;
  const std::string where = what_.empty() ? "" : fmt::format(" in '{}'", what_);
  diagnostics_.push_back(error(code::kMissingKey, map_.location, fmt::format("found no key '{}'{}, expected one", key, where),
                               fmt::format("add '{}: ...'", key)));
}

void MapReader::finish() {
  std::vector<std::string> known;  // each once, in the order they were asked for
  for (const std::string& key : known_) {
    if (std::find(known.begin(), known.end(), key) == known.end()) known.push_back(key);
  }
  for (size_t i = 0; i < map_.entries.size(); ++i) {
    const std::string& key = map_.entries[i].first;
    if (std::any_of(known.begin(), known.end(), [&key](const std::string& k) { return same_key(k, key); })) continue;
    const std::string where = what_.empty() ? "" : fmt::format(" in '{}'", what_);
    Diagnostic d = error(code::kUnknownKey, i < map_.key_locations.size() ? map_.key_locations[i] : map_.location,
                         fmt::format("unknown key '{}'{}", key, where), suggest(key, known));
    d.length = std::max(static_cast<int>(key.size()), 1);
    d.replacement = nearest_name(key, known);
    diagnostics_.push_back(std::move(d));
  }
}

}  // namespace distsetup
