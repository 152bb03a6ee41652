// Rows on their way from a file to whoever uses them, counted, with the reasons of those that are dropped here.
#pragma once
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "data/source_rows.h"

namespace distsetup {

class SourceReading {
 public:
  SourceReading(const RowOptions& options, const RowUser& use) : options_(options), use_(use) {}

  void drop(const std::string& reason, const Location& at);
  // Errors are those of the function that is given rows.
  Diagnostics take(const nlohmann::ordered_json& json, const Location& at);
  Diagnostics use(SourceRow row);
  void name_format(std::string_view file);  // "jsonl": with the kinds that its rows had

  RowCounts counts;

 private:
  const RowOptions& options_;
  const RowUser& use_;
  std::set<std::string> kinds_;
};

}  // namespace distsetup
