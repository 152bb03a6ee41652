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

// One file, with all that is said of it.
struct FileTold {
  FileSays says;
  std::string lost;               // "key=value: reason" of each, a line each
  std::string refusal;            // what is said of a file that is not read, or not with all that it says
  std::string warnings;           // a line each
  bool is_contradictory = false;  // its parts are read, and do not go together

  std::string text(const std::string& field) const { return says.text(field); }
  bool has_lost(std::string_view words) const { return lost.find(words) != std::string::npos; }
};

inline FileTold told_of(const std::string& name, const std::string& text) {
  INFO(text);
  Result<std::vector<Reading>> read = read_config(embedded_templates(), text, name);
  FileTold out;
  for (const Diagnostic& one : read.diagnostics) (read.ok() ? out.warnings : out.refusal) += one.message + "\n";
  if (!read.ok()) return out;
  for (const Reading& one : *read) {
    for (const LostKey& lost : one.lost) out.lost += lost.key + "=" + lost.text + ": " + lost.reason + "\n";
  }
  Result<ReadFields> fields = merge_readings(*read);
  for (const Diagnostic& one : fields.diagnostics) out.refusal += one.message + "\n";
  out.is_contradictory = !fields.ok();
  if (fields.ok()) out.says = {*fields, std::move(*read)};
  return out;
}

}  // namespace distsetup
