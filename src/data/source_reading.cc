#include "data/source_reading.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace distsetup {
namespace {

// A reason without what changes from row to row: numbers, and what stands in quotes.
std::string without_details(const std::string& reason) {
  std::string out;
  for (size_t i = 0; i < reason.size(); ++i) {
    const char c = reason[i];
    if (c == '\'') {
      const size_t end = reason.find(c, i + 1);
      if (end != std::string::npos) i = end;
      constexpr std::string_view kQuoted = "''", kNext = "'', ";
      if (out.ends_with(kNext))
        out.resize(out.size() - 2);  // several after commas are one
      else
        out += kQuoted;
      continue;
    }
    const bool is_digit = c >= '0' && c <= '9';
    if (is_digit && out.ends_with('0')) continue;
    out += is_digit ? '0' : c;
  }
  constexpr std::string_view kMore = ", …";  // "'', …": a list that is not shown whole
  if (out.ends_with(kMore)) out.resize(out.size() - kMore.size());
  return out;
}

}  // namespace

void SourceReading::drop(const std::string& reason, const Location& at) {
  ++counts.rows;
  const std::string& said = reasons_.try_emplace(without_details(reason), reason).first->second;
  ++counts.dropped[said];
  counts.first_dropped.emplace(said, at);
}

Diagnostics SourceReading::take(const nlohmann::ordered_json& json, const Location& at) {
  if (!json.is_object()) return drop("it is no JSON object", at), Diagnostics{};
  RowOrReason row = row_of(json, options_);
  if (!row.reason.empty()) return drop(row.reason, at), Diagnostics{};
  kinds_.insert(row.kind);
  row.row.at = at;
  return use(std::move(row.row));
}

Diagnostics SourceReading::use(SourceRow row) {
  const Location at = row.at;
  const Result<std::string> reason = use_(std::move(row));
  if (!reason.ok()) return reason.diagnostics;
  if (!reason->empty())
    drop(*reason, at);
  else
    ++counts.rows;
  return {};
}

void SourceReading::name_format(std::string_view file) { counts.format = fmt::format("{} {}", file, fmt::join(kinds_, ", ")); }

}  // namespace distsetup
