// Reading a map by the keys one knows, and complaining about the others.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/value.h"

namespace distsetup {

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
