// tokenizer.json as its readers see it: a value with its path in the file ("pre_tokenizer.pretokenizers[1]"), which messages name.
// What is not as expected is noted once and read as a default, so that all mistakes of a file are told together.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "base/json.h"

namespace distsetup {

struct JsonNotes {
  std::string file;
  Diagnostics diagnostics;
};

class JsonNode {
 public:
  JsonNode(const Json* json, std::string path, JsonNotes* notes) : json_(json), path_(std::move(path)), notes_(notes) {}

  const Json* json() const { return json_; }  // nullptr: absent
  bool is_absent() const { return json_ == nullptr || json_->is_null(); }
  const std::string& path() const { return path_; }
  const std::string& file() const { return notes_->file; }

  JsonNode at(std::string_view key) const;  // of an object; absent where there is none
  std::vector<JsonNode> items() const;      // of a list; of anything else: noted, none
  std::string text() const;                 // required
  std::string text_or(std::string absent) const;
  bool flag_or(bool absent) const;
  int64_t number(int64_t min, int64_t max) const;  // required
  std::string type() const { return at("type").text(); }

  void note(std::string message, std::string help = "") const;  // "pre_tokenizer: message"
  void refuse_type(std::string_view what, const std::string& type) const;
  JsonNotes& notes() const { return *notes_; }

 private:
  const Json* json_;
  std::string path_;
  JsonNotes* notes_;
};

// The text as JSON; a syntax error with line and column.
Result<Json> parse_json_text(const std::string& text, const std::string& file);

}  // namespace distsetup
