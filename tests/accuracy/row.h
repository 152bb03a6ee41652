// One measured run, as its source states it: text and numbers by column, nothing filled in. The reader refuses what it does not know:
// a column that is missing or new, a cell that is no number, an id twice. Format: README.md.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace distsetup::accuracy {

enum class Metric { kAllocated, kReserved, kDevice, kTokensPerSecond };
inline constexpr Metric kMetrics[] = {Metric::kAllocated, Metric::kReserved, Metric::kDevice, Metric::kTokensPerSecond};
std::string_view name(Metric metric);  // allocated, reserved, device, tokens_per_s_per_gpu

struct Measurement {
  Metric metric = Metric::kAllocated;
  double value = 0;  // GiB, or tokens/s per GPU
};

struct Row {
  Location location;                                       // of the line
  std::string id, block;                                   // "TT-001", "TT"; blank ids may repeat
  std::vector<std::string> cells;                          // in the order of columns()
  const std::string& text(std::string_view column) const;  // "" = not stated
  std::optional<double> number(std::string_view column) const;
  int64_t integer(std::string_view column, int64_t absent) const;
  void set(std::string_view column, std::string_view text);
  bool says(std::string_view column, std::string_view part) const;  // contains, without regard to case
  bool ran_out() const;                                             // of memory: the notes begin with "OOM"
};

// Names without what stands in parentheses; the first 42 are required.
const std::vector<std::string>& columns();

Result<std::vector<Row>> read_rows(std::string_view text, const std::string& file_name);

// What the row measures: the memory cell (of a stated kind), kinds that the notes print beside it, tokens/s.
std::vector<Measurement> measurements(const Row& row);

// First number after `before` in `text`: number_after("virtual PP 5; x", "virtual PP") is 5.
std::optional<double> number_after(std::string_view text, std::string_view before);
bool contains(std::string_view text, std::string_view part);  // without regard to case

}  // namespace distsetup::accuracy
