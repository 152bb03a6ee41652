#include "codegen/read/flag_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "codegen/read/key_reading.h"
#include "codegen/read/match.h"
#include "codegen/read/read_keys.h"
#include "codegen/tables/load_table.h"

namespace distsetup {
namespace {

bool is_long_flag(const std::string& word) { return word.size() > 2 && word.compare(0, 2, "--") == 0; }

// A flag with its words, as they were typed and taken apart.
struct TypedFlag {
  std::vector<std::string> words;
  std::string key;  // without dashes; empty: words in front of the first flag
  std::vector<std::string> values;
};

std::vector<TypedFlag> typed_flags(const std::vector<std::string>& words) {
  std::vector<TypedFlag> out;
  for (const std::string& word : words) {
    if (is_long_flag(word)) {
      const size_t equals = word.find('=');
      out.push_back({{word}, word.substr(2, equals == std::string::npos ? equals : equals - 2), {}});
      if (equals != std::string::npos) out.back().values.push_back(word.substr(equals + 1));
      continue;
    }
    if (out.empty()) out.emplace_back();
    out.back().words.push_back(word);
    out.back().values.push_back(word);
  }
  return out;
}

bool knows(const KeyTable& table, std::string_view key) {
  return std::any_of(table.rows.begin(), table.rows.end(), [&key](const KeyRow& row) { return is_same_key(row.key, key); }) ||
         std::any_of(table.reads.begin(), table.reads.end(),
                     [&key](const ReadRow& row) { return is_below(row.key, std::string(key)); });
}

int num_marks(const KeyTable& table, const std::vector<TypedFlag>& flags) {
  return static_cast<int>(std::count_if(flags.begin(), flags.end(), [&table](const TypedFlag& flag) {
    return std::any_of(table.marks.begin(), table.marks.end(),
                       [&flag](const std::string& mark) { return is_same_key(mark, flag.key); });
  }));
}

FoundKey found_of(const TypedFlag& flag, std::string key) {
  FoundKey found;
  found.key = std::move(key);
  found.at = {"command line"};
  found.stands_alone = flag.values.empty();
  found.is_list = flag.values.size() > 1;
  if (found.is_list) found.items = flag.values;
  for (const std::string& value : flag.values) found.text += (found.text.empty() ? "" : ",") + value;
  if (found.stands_alone) found.text = "true";
  return found;
}

std::vector<std::string> flag_spellings(const KeyTable& table) {
  std::vector<std::string> out;
  for (const KeyRow& row : table.rows) out.push_back("--" + row.key);
  for (const ReadRow& row : table.reads) out.push_back("--" + row.key);
  return out;
}

// What a flag takes, for a value that it does not.
std::string expected_of(const KeyTable& table, const std::string& key) {
  std::vector<std::string> texts;
  std::string type = "another value";
  const auto add = [&texts](const Json& one) {
    if (std::find(texts.begin(), texts.end(), field_text(one)) == texts.end()) texts.push_back(field_text(one));
  };
  for (const ReadRow& row : table.reads) {
    if (!is_same_key(row.key, key)) continue;
    for (const Json& one : row.of) add(one);
    for (const auto& [ours, theirs] : row.values) add(theirs);
    if (row.type == KeyType::kInt) type = "a whole number";
    if (row.type == KeyType::kNumber) type = "a number";
  }
  if (texts.empty()) return "expected " + type;
  return fmt::format("expected {}{}", texts.size() > 1 ? "one of " : "", fmt::join(texts, ", "));
}

}  // namespace

Result<FlagList> read_flag_list(const TemplateSet& templates, const std::vector<std::string>& words) {
  const std::vector<TypedFlag> flags = typed_flags(words);
  KeyTable best;
  int most = 0;
  FlagList out;
  for (const auto& [path, text] : templates.files) {
    if (text.find("\nmarks:") == std::string::npos) continue;
    const auto table = load_table_alone(templates, path, {"command line"});
    if (!table.ok()) return table.diagnostics;
    const int marks = num_marks(**table, flags);
    if (marks <= most) continue;
    most = marks;
    best = **table;
    out.table = path;
  }
  if (most == 0) {
    out.rest = words;
    return out;
  }
  out.tool = best.tool;
  out.known = flag_spellings(best);
  std::vector<FoundKey> found;
  for (const TypedFlag& flag : flags) {
    const bool is_negative = flag.key.size() > 3 && (flag.key.compare(0, 3, "no-") == 0 || flag.key.compare(0, 3, "no_") == 0) &&
                             flag.values.empty() && !knows(best, flag.key) && knows(best, flag.key.substr(3));
    if (is_negative) {
      FoundKey off = found_of(flag, flag.key.substr(3));
      off.stands_alone = false;
      off.text = "false";
      found.push_back(std::move(off));
    } else if (!flag.key.empty() && knows(best, flag.key)) {
      found.push_back(found_of(flag, flag.key));
    } else {
      out.rest.insert(out.rest.end(), flag.words.begin(), flag.words.end());
    }
  }
  out.reading = read_keys(best, found, "command line");
  out.reading.table = out.table;
  for (LostKey& one : out.reading.lost) {
    if (one.why == LostKey::Why::kValue) one.reason = expected_of(best, one.key);
  }
  return out;
}

}  // namespace distsetup
