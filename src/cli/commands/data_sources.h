// What `distsetup data prepare` reads: files and folders on the command line, or the sources of a run file:
//   data:
//     sources:
//       - {path: chats.jsonl, weight: 0.7}
//       - {path: notes, weight: 0.3, format: text}
//       - {path: rows.csv, weight: 1, fields: {prompt: question, completion: answer}}
//     tokenizer: model
//     template: chat.jinja
// Paths in a run file are relative to it.
#pragma once
#include <string>
#include <vector>

#include "cli/line/flags.h"
#include "text/prepare/prepare.h"

namespace distsetup {

struct PrepareInputs {
  std::vector<PrepareSource> sources;
  std::string tokenizer, chat_template;  // "": not said
};
Result<PrepareInputs> prepare_inputs(const Arguments& arguments);

// A flag's whole number from 0 on.
Result<int64_t> whole_number(const Arguments& arguments, std::string_view flag, int64_t absent);

}  // namespace distsetup
