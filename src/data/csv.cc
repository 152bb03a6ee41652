#include "data/csv.h"

#include <fmt/format.h>

#include <utility>

namespace distsetup {

void CsvReader::end_field() {
  record_.fields.push_back(std::move(field_));
  field_.clear();
  at_ = At::kStart;
}

void CsvReader::end_record() {
  if (at_ != At::kQuote && field_.ends_with('\r')) field_.pop_back();
  if (at_ == At::kQuote || has_record_) end_field();
  is_done_ = has_record_;
  has_record_ = false;
  at_ = At::kStart;
}

void CsvReader::take(char c) {
  if (!has_record_ && c != '\n' && c != '\r') {
    has_record_ = true;
    record_.line = line_;
  }
  const bool ends_field = c == separator_, ends_record = c == '\n';
  if (ends_record) ++line_;
  switch (at_) {
    case At::kStart:
      if (c == '"') {
        at_ = At::kQuoted;
        return;
      }
      at_ = At::kPlain;
      [[fallthrough]];
    case At::kPlain:
      if (ends_field) return end_field();
      if (ends_record) return end_record();
      if (has_record_) field_ += c;
      return;
    case At::kQuoted:
      if (c == '"')
        at_ = At::kQuote;
      else
        field_ += c;
      return;
    case At::kQuote:
      if (c == '"') {
        field_ += c;
        at_ = At::kQuoted;
        return;
      }
      if (ends_field) return end_field();
      if (ends_record) return end_record();
      if (c != '\r' && record_.problem.empty()) record_.problem = "text follows a closing quote";
      return;
  }
}

void CsvReader::read(std::string_view text, const std::function<bool(CsvRecord)>& use) {
  for (const char c : text) {
    take(c);
    if (!is_done_) continue;
    is_done_ = false;
    if (!use(std::exchange(record_, {}))) return;
  }
}

std::optional<CsvRecord> CsvReader::finish() {
  if (!has_record_) return std::nullopt;
  if (at_ == At::kQuoted) {
    record_.problem = "a quote is not closed before the file ends";
    return std::exchange(record_, {});
  }
  end_record();
  is_done_ = false;
  return std::exchange(record_, {});
}

}  // namespace distsetup
