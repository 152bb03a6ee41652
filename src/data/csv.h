// CSV as RFC 4180 has it: records of fields, a field may be quoted and then hold separators, line ends and doubled quotes. Line ends
// are CR LF or LF. Read piece by piece, so that a file need not fit in memory. (Debian's libcsv does not say on which line a record
// is.)
// A quote inside a field that does not begin with one is a character like any other, as Python's csv and pandas read it.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distsetup {

struct CsvRecord {
  std::vector<std::string> fields;
  int line = 1;         // it begins on
  std::string problem;  // "": it is one
};

class CsvReader {
 public:
  explicit CsvReader(char separator) : separator_(separator) {}
  // Calls `use` for each record that ends in `text`, which goes on where the last one ended; false stops.
  void read(std::string_view text, const std::function<bool(CsvRecord)>& use);
  // The last record, where it has no line end; with a problem where a quote is still open.
  std::optional<CsvRecord> finish();

 private:
  enum class At { kStart, kPlain, kQuoted, kQuote };  // of a field; kQuote: behind a quote within a quoted one

  void take(char c);
  void end_field();
  void end_record();

  char separator_;
  At at_ = At::kStart;
  int line_ = 1;
  std::string field_;
  CsvRecord record_;
  bool has_record_ = false, is_done_ = false;
};

}  // namespace distsetup
