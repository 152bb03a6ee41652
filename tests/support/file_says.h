// What a configuration file or script says, read as the commands do, for tests of readers.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/read/read.h"

#include <catch2/catch.hpp>

namespace distsetup {

struct FileSays {
  ReadFields fields;
  std::vector<Reading> readings;

  std::string text(const std::string& field) const {
    const auto it = fields.find(field);
    return it == fields.end() ? "" : field_text(it->second.value);
  }
  bool is_read_as(std::string_view tool) const {
    return std::any_of(readings.begin(), readings.end(), [tool](const Reading& one) { return one.tool == tool; });
  }
};

inline FileSays merged(std::vector<Reading> readings) {
  const Result<ReadFields> fields = merge_readings(readings);
  REQUIRE(fields.ok());
  return {*fields, std::move(readings)};
}

// Files by name and text, read as one run.
inline FileSays read_together(const std::vector<std::pair<std::string, std::string>>& files) {
  std::vector<Reading> all;
  for (const auto& [name, text] : files) {
    INFO(text);
    Result<std::vector<Reading>> read = read_config(embedded_templates(), text, name);
    REQUIRE(read.ok());
    for (Reading& one : *read) all.push_back(std::move(one));
  }
  return merged(std::move(all));
}

}  // namespace distsetup
