// Which rows of a table account for a key of a file, under values that are tried for the fields which conditions ask about.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/read/domains.h"
#include "codegen/read/found.h"
#include "codegen/tables/key_table.h"

namespace distsetup {

// How a key of the file comes about under some values of the variables.
struct KeyReading {
  enum class How { kNone, kConstant, kField, kDropped, kAutomatic };
  How how = How::kNone;
  std::string field;
  Json value;
  std::string reason;  // kDropped
  bool is_file = false;
  bool is_settled = false;  // kDropped: the key itself is lost, and yet it says what the row's conditions do
};

// A pattern of a table ("aio.*") or a key, '-' and '_' the same.
bool is_below(const std::string& pattern, const std::string& key);

// A key of a file under the name that the rows of a table have for it (`read_as`).
std::string named(const KeyTable& table, const std::string& key);

// Of `found`: keys by name, or below a pattern, have one of these texts ("null": is not there; "*": is there).
bool given_holds(const FieldCondition& given, const std::vector<FoundKey>& found);

// A key of the file with the rows that know it and the variables these ask about.
struct FileKey {
  const FoundKey* found = nullptr;
  std::vector<const KeyRow*> rows;
  std::vector<const ReadRow*> reads;
  std::vector<size_t> variables;
};

class Explainer {
 public:
  // `table` and `found` must outlive it.
  Explainer(const KeyTable& table, const std::vector<FoundKey>& found);

  const std::vector<FileKey>& keys() const { return keys_; }
  const std::vector<ReadVariable>& variables() const { return variables_; }
  // Index of a field's variable; variables().size() when it is none.
  size_t variable(std::string_view field) const;
  // The value that is tried, by variable; "" = none yet.
  std::vector<std::string>& chosen() { return chosen_; }
  // Of a field; "" for one that is no variable.
  std::string_view text_of(std::string_view field) const;
  bool applies(const FieldCondition& when, const FieldCondition& unless) const;

  KeyReading explain(const FileKey& key) const;
  // The key says "auto" where it would choose a value.
  bool is_read_otherwise(const KeyRow& row, const FileKey& key) const;
  bool leaves_open(const FileKey& key) const;
  // Rules of the table that refuse the chosen values, of those that ask about `among` and about chosen variables alone.
  int num_refusals(const std::vector<size_t>& among) const;
  // Constants that the table would write under the chosen values and the file does not have.
  int num_missing() const;
  const KeyTable& table() const { return table_; }

 private:
  FileKey key_of(const FoundKey& found, const std::vector<FoundKey>& all) const;
  bool holds_now(const FieldCondition& condition) const;
  bool agrees(const std::string& field, const Json& value) const;
  // By rows of reads that are asked before those that write (`first`), or by the others.
  KeyReading explain_by_reads(const FileKey& key, bool is_first) const;

  const KeyTable& table_;
  std::vector<ReadVariable> variables_;
  std::map<std::string, size_t, std::less<>> index_;
  std::vector<FileKey> keys_;
  std::vector<std::pair<const Rule*, std::vector<size_t>>> refusals_;  // errors that ask about variables alone
  std::vector<std::string> chosen_;
};

}  // namespace distsetup
