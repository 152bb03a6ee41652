// Where a run's data come from, in a run file:
//   data:
//     sources:
//       - chats.jsonl
//       - {path: notes, format: text}
//       - {path: rows.csv, fields: {prompt: question, completion: answer}}
//       - {path: HuggingFaceFW/fineweb, subset: sample-10BT}
//     weights: [0.5, 0.2, 0.3]
// A weight, a format and names of fields may stand with a source; data.weights and data.fields are for all that have none.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "planner/spec/spec.h"

namespace distsetup {

struct DataSource {
  std::string path;                           // as written: a file, a folder of them, or a data set of the hub ("org/name")
  std::string subset;                         // of a data set of the hub; "": the only or the default one
  double weight = 0;                          // in a mixture; 0: none is given
  std::string format;                         // of data/source_rows.h; "": by the file's ending
  std::map<std::string, std::string> fields;  // our name of a key -> the file's
};

// What the setting data.sources holds: a source's path, or, where it says more, a map on one line. Errors: with the place of each.
Result<Setting> sources_setting(const Value& value);
// Of a text: paths with commas between them, or a list as a file has it, in brackets.
Result<Setting> sources_setting(const std::string& text, const Location& at);
// What one source of that setting says.
Result<DataSource> source_of(const std::string& item, const Location& at);
// The sources of a run, with what data.weights, data.fields say. Errors: weights for some of them only.
Result<std::vector<DataSource>> sources_of(const Spec& spec);

// "prompt=question", "completion=answer" -> {prompt: question, completion: answer}; `what` names the flag or key in messages.
Result<std::map<std::string, std::string>> fields_of(const std::vector<std::string>& items, const std::string& what,
                                                     const Location& at);
// "": by the file's ending.
Diagnostics check_source_format(const std::string& format, const Location& at);
// A number above 0 for each of `sources`.
Diagnostics take_weights(const std::vector<std::string>& weights, const std::string& what, const Location& at,
                         std::vector<DataSource>& sources);

}  // namespace distsetup
