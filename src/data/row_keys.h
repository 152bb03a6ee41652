// Values of a row by our names of keys, which --fields may map to others.
#pragma once
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>

#include "data/source_rows.h"

namespace distsetup {

class RowKeys {
 public:
  RowKeys(const nlohmann::ordered_json& json, const RowOptions& options) : json_(json), options_(options) {}
  // nullptr: not there, or null.
  const nlohmann::ordered_json* find(const std::string& ours) const {
    const auto renamed = options_.fields.find(ours);
    const auto found = json_.find(renamed == options_.fields.end() ? ours : renamed->second);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  const nlohmann::ordered_json* first(std::initializer_list<const char*> names) const {
    for (const char* name : names)
      if (const nlohmann::ordered_json* found = find(name)) return found;
    return nullptr;
  }

 private:
  const nlohmann::ordered_json& json_;
  const RowOptions& options_;
};

}  // namespace distsetup
