// Reads and writes groups of constants: a file is a map of maps of numbers; `source` and `date` are for the reader of the file.
#include "planner/time/calibration.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/value_yaml.h"

namespace distsetup {
namespace {

// For the reader of the file.
bool is_note(std::string_view key) { return key == "version" || key == "source" || key == "date"; }

void collect(const Value& value, const std::string& prefix, Calibration& into, Diagnostics& said) {
  for (const Value::Entry& entry : value.entries) {
    if (prefix.empty() && is_note(entry.first)) continue;
    const std::string name = prefix.empty() ? entry.first : prefix + "." + entry.first;
    if (entry.second.kind == Value::Kind::kMap) {
      collect(entry.second, name, into, said);
      continue;
    }
    Result<double> number = as_double(entry.second);
    append(said, std::move(number.diagnostics));
    if (number.value) into.constants[name] = *number.value;
  }
}

}  // namespace

double Calibration::at(std::string_view name) const {
  const auto it = constants.find(name);
  CHECK(it != constants.end(), "no calibration constant", name);
  return it->second;
}

double Calibration::get(std::string_view name, double fallback) const {
  const auto it = constants.find(name);
  return it == constants.end() ? fallback : it->second;
}

Result<Calibration> calibration_from_value(const Value& value) {
  if (value.kind != Value::Kind::kMap) {
    return error(code::kWrongType, value.location, "found no map, expected groups of constants ('gemm:', below it 'name: number')");
  }
  Calibration calibration;
  Diagnostics said;
  collect(value, "", calibration, said);
  if (has_error(said)) return said;
  return {std::move(calibration), std::move(said)};
}

std::string calibration_text(const Calibration& calibration, std::string_view comment) {
  std::string text(comment);
  text += "version: 1\n";
  std::vector<std::string> open;  // groups the last line is in
  for (const auto& [name, number] : calibration.constants) {
    std::vector<std::string> path;
    for (size_t begin = 0; begin <= name.size();) {
      const size_t dot = std::min(name.find('.', begin), name.size());
      path.push_back(name.substr(begin, dot - begin));
      begin = dot + 1;
    }
    const std::string leaf = path.back();
    path.pop_back();
    size_t shared = 0;
    while (shared < path.size() && shared < open.size() && path[shared] == open[shared]) ++shared;
    for (size_t i = shared; i < path.size(); ++i) text += fmt::format("{:{}}{}:\n", "", 2 * i, path[i]);
    text += fmt::format("{:{}}{}: {:.6g}\n", "", 2 * path.size(), leaf, number);
    open = std::move(path);
  }
  return text;
}

}  // namespace distsetup
