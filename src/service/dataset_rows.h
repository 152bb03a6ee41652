// Rows of data sets: what they are by their keys, and what is wrong with the first bad one.
#pragma once
#include <optional>
#include <string>

#include "base/json.h"
#include "service/dataset_store.h"

namespace distsetup {

// "preference", "instruct", "messages", "text"; "": keys that no method of training reads.
std::string kind_of_row(const Json& row);
// Why a row cannot be trained by the method, with the name of the field; nothing: it can. Answers that are pairs are text or messages.
std::optional<std::string> row_mistake(const Json& row, const std::string& method);
// Of all rows of a file: "row 3: 'chosen' is blank"; nothing: all are right. `has_template`: the model says how conversations are
// written.
std::optional<std::string> rows_mistake(const std::string& path, const std::string& method, bool has_template);

struct WrittenRows {
  std::string path, digest;
  int64_t num_rows = 0, num_bytes = 0;
};
// An object a line, under a name that is the digest; nothing: the disk is full.
std::optional<WrittenRows> write_rows(const std::string& folder, const Json& rows);
std::optional<WrittenRows> write_lines(const std::string& folder, const std::string& text, int64_t num_rows);
// Rows `start` … `start` + `limit` - 1 of a file.
Json read_rows(const std::string& path, int64_t start, int64_t limit, bool& has_more);

}  // namespace distsetup
