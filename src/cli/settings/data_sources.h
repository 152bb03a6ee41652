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
#include <optional>
#include <string>
#include <vector>

#include "cli/line/flags.h"
#include "planner/spec/data_source.h"
#include "planner/spec/spec.h"
#include "text/prepare/prepare.h"
#include "text/tokenizer/tokenizer.h"

namespace distsetup {

struct PrepareInputs {
  std::vector<PrepareSource> sources;
  std::string tokenizer, chat_template;  // "": not said
};
Result<PrepareInputs> prepare_inputs(const Arguments& arguments);
// Of data.sources, data.weights, data.fields, data.tokenizer and data.template.
Result<PrepareInputs> inputs_of_run(const Spec& spec);

// The same with the tokenizer and the template read.
struct ReadyInputs {
  std::vector<PrepareSource> sources;
  Tokenizer tokenizer;
  std::optional<ModelTemplate> chat;
  Diagnostics why_no_chat;
};
Result<ReadyInputs> open_inputs(PrepareInputs inputs);
// Points into `inputs`. Left to say: where the set is written, what is held out.
PrepareRequest request_of(const ReadyInputs& inputs);

// "": there is such a file or folder, seen from here, or a downloaded data set of the hub.
std::string why_not_here(const DataSource& source);

}  // namespace distsetup
