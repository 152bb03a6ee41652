#include "data/parquet_file.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/diagnostic_codes.h"
#include "base/digest.h"
#include "base/json_text.h"
#include "base/own_program.h"

namespace distsetup {
namespace {

using TakeParquetRow = int (*)(void* to, const char* json, size_t size);
using ReadParquet = int (*)(const char* path, void* to, TakeParquetRow take, char* problem, size_t problem_size);
constexpr const char* kReadFunction = "distsetup_read_parquet_1";

std::string plugin_path() {
  if (const char* named = std::getenv("DISTSETUP_PARQUET"); named != nullptr) return named;
  return (own_program().parent_path().parent_path() / "lib" / "libdistsetup_parquet.so").string();
}

struct RowsOnTheWay {
  const std::string& path;
  SourceReading& reading;
  int number = 0;
  Diagnostics said;
};

int take_parquet_row(void* to, const char* json, size_t size) {
  auto& rows = *static_cast<RowsOnTheWay*>(to);
  const Location at = {rows.path, ++rows.number, 0};
  rows.said = rows.reading.take(ordered_json_from_text(std::string_view(json, size)), at);
  return has_error(rows.said) ? 0 : 1;
}

}  // namespace

Diagnostics read_parquet(const std::string& path, SourceReading& reading) {
  const std::string plugin = plugin_path();
  void* const library = ::dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays loaded
  if (library == nullptr)
    return {error(code::kUnsupportedFeature, {path},
                  fmt::format("parquet files are read by a plugin, which cannot be loaded: {}", ::dlerror()),
                  "scripts/parquet_plugin build/release builds it from pyarrow's wheel; or write the rows as .jsonl")};
  const auto read = reinterpret_cast<ReadParquet>(::dlsym(library, kReadFunction));
  if (read == nullptr)
    return {error(code::kUnsupportedFeature, {path}, fmt::format("'{}' is a plugin of another version of this program", plugin),
                  "build it again: scripts/parquet_plugin")};
  const Result<std::string> digest = sha256_of_file(path);
  if (!digest.ok()) return digest.diagnostics;
  reading.counts.sha256 = *digest;
  RowsOnTheWay rows = {path, reading, 0, {}};
  char problem[512] = {};
  if (read(path.c_str(), &rows, take_parquet_row, problem, sizeof problem) != 0)
    return {error(code::kData, {path}, fmt::format("this parquet file cannot be read: {}", problem))};
  reading.name_format("parquet");
  return rows.said;
}

}  // namespace distsetup
