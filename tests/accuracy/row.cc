// Reads the CSV (RFC 4180: quoted cells may hold commas, quotes and line ends).
#include "row.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/names.h"

namespace distsetup::accuracy {
namespace {

constexpr size_t kRequired = 42;

struct Cell {
  std::string text;
  Location location;
};

// One record; `at` moves behind it. An unterminated quote ends with the file and is reported by the caller as a short record.
std::vector<Cell> next_record(std::string_view text, size_t& at, Location& location) {
  std::vector<Cell> cells;
  Cell cell{"", location};
  bool quoted = false;
  const auto advance = [&] {
    if (text[at] == '\n') {
      ++location.line;
      location.column = 1;
    } else {
      ++location.column;
    }
    ++at;
  };
  while (at < text.size()) {
    const char c = text[at];
    if (quoted) {
      if (c == '"' && at + 1 < text.size() && text[at + 1] == '"') {
        cell.text += '"';
        advance();
      } else if (c == '"') {
        quoted = false;
      } else {
        cell.text += c;
      }
      advance();
    } else if (c == '"' && cell.text.empty()) {
      quoted = true;
      advance();
    } else if (c == ',') {
      advance();
      cells.push_back(std::move(cell));
      cell = Cell{"", location};
    } else if (c == '\n') {
      advance();
      break;
    } else {
      if (c != '\r') cell.text += c;
      advance();
    }
  }
  cells.push_back(std::move(cell));
  return cells;
}

enum class CellKind { kText, kNumber };
struct Column {
  std::string_view name;
  CellKind kind;
};
// In the order of measured.csv; the five before the last are b200.csv's.
constexpr Column kColumns[] = {
    {"id", CellKind::kText},
    {"source_repo_or_paper", CellKind::kText},
    {"source_path_or_section", CellKind::kText},
    {"model", CellKind::kText},
    {"params_b", CellKind::kNumber},
    {"layers", CellKind::kNumber},
    {"hidden", CellKind::kNumber},
    {"ffn", CellKind::kNumber},
    {"heads", CellKind::kNumber},
    {"kv_heads", CellKind::kNumber},
    {"vocab", CellKind::kNumber},
    {"seq_len", CellKind::kNumber},
    {"gpu", CellKind::kText},
    {"gpus", CellKind::kNumber},
    {"nodes", CellKind::kNumber},
    {"interconnect", CellKind::kText},
    {"framework", CellKind::kText},
    {"strategy", CellKind::kText},
    {"tp", CellKind::kNumber},
    {"cp", CellKind::kNumber},
    {"pp", CellKind::kNumber},
    {"dp_shard", CellKind::kNumber},
    {"dp_replicate", CellKind::kNumber},
    {"micro_batch_per_gpu", CellKind::kNumber},
    {"global_batch_tokens_or_seqs", CellKind::kText},
    {"grad_accum", CellKind::kNumber},
    {"precision", CellKind::kText},
    {"param_dtype", CellKind::kText},
    {"grad_reduce_dtype", CellKind::kText},
    {"optimizer", CellKind::kText},
    {"activation_ckpt", CellKind::kText},
    {"compile", CellKind::kText},
    {"flash_attention", CellKind::kText},
    {"offload", CellKind::kText},
    {"finetune", CellKind::kText},
    {"peak_mem_gib", CellKind::kNumber},
    {"mem_kind", CellKind::kText},
    {"tokens_per_s_per_gpu", CellKind::kNumber},
    {"mfu_pct", CellKind::kNumber},
    {"tflops_per_gpu", CellKind::kNumber},
    {"step_time_s", CellKind::kNumber},
    {"notes", CellKind::kText},
    {"experts", CellKind::kNumber},
    {"top_k", CellKind::kNumber},
    {"expert_ffn", CellKind::kNumber},
    {"ep", CellKind::kNumber},
    {"attention_kind", CellKind::kText},
    {"software", CellKind::kText},
};

bool is_numeric_column(std::string_view column) {
  return std::any_of(std::begin(kColumns), std::end(kColumns),
                     [&](const Column& c) { return c.name == column && c.kind == CellKind::kNumber; });
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Where each column stands in the file; -1: absent.
Result<std::vector<int>> read_header(const std::vector<Cell>& header) {
  std::vector<int> place(columns().size(), -1);
  Diagnostics said;
  for (size_t i = 0; i < header.size(); ++i) {
    const std::string column = header[i].text.substr(0, header[i].text.find('('));
    const auto it = std::find(columns().begin(), columns().end(), column);
    if (it == columns().end()) {
      said.push_back(error(code::kUnknownKey, header[i].location, fmt::format("unknown column '{}'", header[i].text),
                           suggest(column, columns())));
      continue;
    }
    int& seen = place[static_cast<size_t>(it - columns().begin())];
    if (seen >= 0) said.push_back(error(code::kDuplicateKey, header[i].location, fmt::format("column '{}' a second time", column)));
    seen = static_cast<int>(i);
  }
  for (size_t i = 0; i < kRequired; ++i) {
    if (place[i] < 0)
      said.push_back(error(code::kMissingKey, header[0].location, fmt::format("no column '{}' in the header", columns()[i])));
  }
  if (has_error(said)) return said;
  return place;
}

}  // namespace

std::string_view name(Metric metric) {
  switch (metric) {
    case Metric::kAllocated: return "allocated";
    case Metric::kReserved: return "reserved";
    case Metric::kDevice: return "device";
    case Metric::kTokensPerSecond: return "tokens_per_s_per_gpu";
  }
  CHECK(false, "metric", static_cast<int>(metric));
  return "";
}

bool contains(std::string_view text, std::string_view part) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

std::optional<double> number_after(std::string_view text, std::string_view before) {
  const size_t at = text.find(before);
  if (at == std::string_view::npos) return std::nullopt;
  size_t begin = at + before.size();
  while (begin < text.size() && text[begin] == ' ') ++begin;
  size_t end = begin;
  while (end < text.size() && (std::isdigit(static_cast<unsigned char>(text[end])) || text[end] == '.')) ++end;
  while (end > begin && text[end - 1] == '.') --end;
  return parse_number(text.substr(begin, end - begin));
}

const std::vector<std::string>& columns() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> names;
    for (const Column& column : kColumns) names.emplace_back(column.name);
    return names;
  }();
  return all;
}

void Row::set(std::string_view column, std::string_view text) {
  for (size_t i = 0; i < columns().size(); ++i) {
    if (columns()[i] == column) cells[i] = text;
  }
}

const std::string& Row::text(std::string_view column) const {
  const auto it = std::find(columns().begin(), columns().end(), column);
  CHECK(it != columns().end(), "no column", column);
  return cells[static_cast<size_t>(it - columns().begin())];
}

std::optional<double> Row::number(std::string_view column) const { return parse_number(text(column)); }

int64_t Row::integer(std::string_view column, int64_t absent) const {
  const std::optional<double> value = number(column);
  return value ? static_cast<int64_t>(*value) : absent;
}

bool Row::says(std::string_view column, std::string_view part) const { return contains(text(column), part); }

bool Row::ran_out() const { return text("notes").starts_with("OOM"); }

Result<std::vector<Row>> read_rows(std::string_view text, const std::string& file_name) {
  Location location{file_name, 1, 1};
  size_t at = 0;
  const std::vector<Cell> header = next_record(text, at, location);
  const Result<std::vector<int>> place = read_header(header);
  if (!place) return place.diagnostics;
  std::vector<Row> rows;
  std::set<std::string> ids;
  Diagnostics said;
  while (at < text.size()) {
    Row row;
    row.location = location;
    std::vector<Cell> cells = next_record(text, at, location);
    if (cells.size() == 1 && cells[0].text.empty()) continue;
    if (cells.size() != header.size()) {
      said.push_back(error(code::kSyntax, row.location, fmt::format("found {} cells, expected {}", cells.size(), header.size())));
      continue;
    }
    row.cells.resize(columns().size());
    for (size_t i = 0; i < columns().size(); ++i) {
      if ((*place)[i] < 0) continue;
      Cell& cell = cells[static_cast<size_t>((*place)[i])];
      if (!cell.text.empty() && is_numeric_column(columns()[i]) && !parse_number(cell.text)) {
        said.push_back(
            error(code::kWrongType, cell.location, fmt::format("'{}' in column '{}' is no number", cell.text, columns()[i])));
      }
      row.cells[i] = std::move(cell.text);
    }
    row.id = row.cells[0];
    row.block = row.id.substr(0, row.id.find('-'));
    if (!row.id.empty() && !ids.insert(row.id).second)
      said.push_back(error(code::kDuplicateKey, row.location, fmt::format("id '{}' a second time", row.id)));
    rows.push_back(std::move(row));
  }
  if (has_error(said)) return said;
  return rows;
}

namespace {

// torchtune divided bytes by 1e9 until 2024-08-15 (d0b89e206).
bool prints_decimal_gb(const Row& row) {
  return row.says("framework", "torchtune") && contains(row.text("notes"), "GB as printed") && row.says("software", "2024-05");
}

}  // namespace

std::vector<Measurement> measurements(const Row& row) {
  std::vector<Measurement> all;
  const auto add = [&](Metric metric, std::optional<double> value) {
    const bool known = std::any_of(all.begin(), all.end(), [&](const Measurement& m) { return m.metric == metric; });
    if (value && *value > 0 && !known) all.push_back({metric, *value});
  };
  const std::string& kind = row.text("mem_kind");
  const std::string& notes = row.text("notes");
  if (kind == "allocated") add(Metric::kAllocated, row.number("peak_mem_gib"));
  if (kind == "reserved") add(Metric::kReserved, row.number("peak_mem_gib"));
  if (kind == "nvidia-smi") add(Metric::kDevice, row.number("peak_mem_gib"));
  if (!kind.empty()) {  // as the sources print them; percentages are no GiB
    add(Metric::kAllocated, number_after(notes, "(active = "));
    add(Metric::kAllocated, number_after(notes, "(active "));
    add(Metric::kAllocated, number_after(notes, "peak active "));
    add(Metric::kAllocated, number_after(notes, "peak allocated "));
    if (kind == "allocated" && notes.starts_with("reserved ")) add(Metric::kReserved, number_after(notes, "reserved "));
    add(Metric::kDevice, number_after(notes, "nvidia-smi "));
  }
  if (prints_decimal_gb(row)) {
    for (Measurement& m : all) m.value *= 1e9 / (1024.0 * 1024 * 1024);
  }
  if (!contains(notes, "do not use for time")) add(Metric::kTokensPerSecond, row.number("tokens_per_s_per_gpu"));
  return all;
}

}  // namespace distsetup::accuracy
