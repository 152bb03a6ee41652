#include "data/record_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>
#include <vector>

#include "base/diagnostic_codes.h"
#include "base/digest.h"
#include "base/file.h"
#include "data/csv.h"
#include "data/megatron_files.h"

namespace distsetup {
namespace {

// A header, then a record on each line.
class RecordReading {
 public:
  RecordReading(const std::string& path, char separator, SourceReading& reading) : path_(path), csv_(separator), reading_(reading) {}

  Diagnostics read() {
    std::ifstream file(path_, std::ios::binary);
    if (!file) return {error(code::kUnreadableFile, {path_}, fmt::format("cannot read '{}', {}", path_, errno_text(errno)))};
    Sha256 digest;
    std::vector<char> piece(1 << 20);
    bool is_first = true;
    while (file && !has_error(said_)) {
      file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
      std::string_view text(piece.data(), static_cast<size_t>(file.gcount()));
      digest.update(text);
      if (std::exchange(is_first, false) && text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
      csv_.read(text, [&](CsvRecord record) { return take(std::move(record)); });
    }
    if (file.bad()) return {error(code::kData, {path_}, fmt::format("cannot read '{}' to its end", path_))};
    if (std::optional<CsvRecord> last = csv_.finish(); last.has_value() && !has_error(said_)) take(std::move(*last));
    if (header_.empty() && !has_error(said_))
      return {error(code::kData, {path_}, "it is empty, expected a header with names of fields")};
    reading_.counts.sha256 = digest.hex();
    return said_;
  }

 private:
  bool take(CsvRecord record) {
    if (header_.empty()) return take_header(std::move(record));
    const Location at = {path_, record.line, 1};
    if (record.problem.empty() && record.fields.size() != header_.size())
      record.problem = fmt::format("it has {} fields, the header {}", record.fields.size(), header_.size());
    if (!record.problem.empty()) {
      reading_.drop(record.problem, at);
      return true;
    }
    nlohmann::ordered_json row = nlohmann::ordered_json::object();
    for (size_t i = 0; i < header_.size(); ++i) row[header_[i]] = std::move(record.fields[i]);
    said_ = reading_.take(row, at);
    return !has_error(said_);
  }

  bool take_header(CsvRecord record) {
    const Location at = {path_, record.line, 1};
    std::set<std::string> names(record.fields.begin(), record.fields.end());
    if (!record.problem.empty())
      said_ = {error(code::kData, at, fmt::format("the header: {}", record.problem))};
    else if (names.size() != record.fields.size())
      said_ = {error(code::kData, at, "the header has a name twice", "the first line names the fields: prompt,completion")};
    header_ = std::move(record.fields);
    return !has_error(said_);
  }

  const std::string& path_;
  CsvReader csv_;
  SourceReading& reading_;
  std::vector<std::string> header_;
  Diagnostics said_;
};

}  // namespace

Diagnostics read_commas(const std::string& path, SourceReading& reading) {
  Diagnostics said = RecordReading(path, ',', reading).read();
  reading.name_format("csv");
  return said;
}
Diagnostics read_tabs(const std::string& path, SourceReading& reading) {
  Diagnostics said = RecordReading(path, '\t', reading).read();
  reading.name_format("tsv");
  return said;
}

Diagnostics read_token_ids(const std::string& path, SourceReading& reading) {
  for (const char* ending : {".bin", ".idx"}) {
    const std::string file = std::filesystem::path(path).replace_extension(ending).string();
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(file, ignored)) continue;  // read_megatron() says so
    const Result<std::string> digest = sha256_of_file(file);
    if (!digest.ok()) return digest.diagnostics;
    reading.counts.sha256 = ending == std::string_view(".bin") ? *digest : sha256(reading.counts.sha256 + *digest);
  }
  reading.counts.format = "megatron tokens";
  return read_megatron(path, [&](int64_t document, std::vector<uint32_t> ids) {
    SourceRow row;
    row.kind = SourceRow::Kind::kTokens;
    row.ids = std::move(ids);
    row.at = {path, static_cast<int>(std::min<int64_t>(document + 1, INT32_MAX)), 0};
    return reading.use(std::move(row));
  });
}

}  // namespace distsetup
