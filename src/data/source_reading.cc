#include "data/source_reading.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace distsetup {

void SourceReading::drop(const std::string& reason, const Location& at) {
  ++counts.rows;
  counts.dropped.add(reason, at);
}

Diagnostics SourceReading::take(const nlohmann::ordered_json& json, const Location& at) {
  if (!json.is_object()) return drop("it is no JSON object", at), Diagnostics{};
  RowOrReason row = row_of(json, options_);
  if (!row.reason.empty()) return drop(row.reason, at), Diagnostics{};
  if (options_.prompt_format.has_value()) {
    if (row.row.kind != SourceRow::Kind::kPromptCompletion && row.row.kind != SourceRow::Kind::kTextPair)
      return drop("there is a prompt format, and it has no prompt that is plain text", at), Diagnostics{};
    row.row.prompt = options_.prompt_format->before + row.row.prompt + options_.prompt_format->after;
  }
  kinds_.insert(row.kind);
  row.row.at = at;
  return use(std::move(row.row));
}

Diagnostics SourceReading::use(SourceRow row) {
  ++counts.rows;
  return use_(std::move(row));
}

void SourceReading::name_format(std::string_view file) { counts.format = fmt::format("{} {}", file, fmt::join(kinds_, ", ")); }

}  // namespace distsetup
