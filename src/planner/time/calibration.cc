// Reads and writes groups of constants: a file is a map of maps of numbers; `source` and `date` are for the reader of the file.
#include "planner/time/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/embedded.h"
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

bool is_name(std::string_view key) {
  return !key.empty() &&
         key.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string_view::npos;
}

}  // namespace

std::optional<Calibration> calibration_from_lines(std::string_view text) {
  Calibration calibration;
  std::vector<std::string> open;  // "gemm.", "gemm.a100."
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t indent = line.find_first_not_of(' ');
    if (indent == std::string_view::npos || line[indent] == '#') continue;
    const size_t colon = line.find(':', indent);
    if (indent % 2 != 0 || indent / 2 > open.size() || colon == std::string_view::npos) return std::nullopt;
    const std::string_view key = line.substr(indent, colon - indent);
    if (!is_name(key)) return std::nullopt;
    open.resize(indent / 2);
    if (open.empty() && is_note(key)) continue;
    const std::string name = (open.empty() ? "" : open.back()) + std::string(key);
    if (colon + 1 == line.size()) {
      open.push_back(name + ".");
      continue;
    }
    if (line[colon + 1] != ' ') return std::nullopt;
    const std::string_view digits = line.substr(colon + 2);
    double number = 0;
    const auto [stop, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (failed != std::errc() || stop != digits.data() + digits.size()) return std::nullopt;
    if (!calibration.constants.emplace(name, number).second) return std::nullopt;
  }
  return calibration;
}

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

const Calibration& embedded_calibration() {
  static const Calibration all = [] {
    Calibration calibration;
    for (const EmbeddedFile& file : embedded_files()) {
      if (!file.path.starts_with("presets/calibration/")) continue;
      if (std::optional<Calibration> plain = calibration_from_lines(file.text); plain.has_value()) {
        calibration.constants.merge(plain->constants);
        continue;
      }
      const Result<Value> value = parse_yaml(file.text, file.path);
      CHECK(value.ok(), "built-in calibration is not YAML", file.path);
      Result<Calibration> part = calibration_from_value(*value);
      CHECK(part.ok(), "built-in calibration is not a map of numbers", file.path);
      calibration.constants.merge(part->constants);
    }
    return calibration;
  }();
  return all;
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
