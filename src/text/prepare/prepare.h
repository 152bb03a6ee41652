// Texts, prompts with completions, and conversations into a prepared data set (data/prepared_set.h).
//   text                the tokenizer's own tokens around it, the end-of-text token behind it where there is one; every token is
//                       trained
//   prompt, completion  one after the other, the end-of-text token behind; trained from the first token that reaches into the
//                       completion; of these and of conversations all, where prompts are trained, too
//   conversation        as the model's chat template writes it; trained is what the assistant wrote (template/trained_ranges.h), but
//                       for messages that say otherwise
//   token ids           as they are; every token is trained
//   preference pair     two samples, one after the other (pair_samples.h)
// A row that cannot be used is dropped and counted by reason, with the place of the first.
// Rows are read one after the other and made into tokens by several threads; the set does not depend on how many.
#pragma once
#include <ctime>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/prepared_set.h"
#include "data/source_rows.h"
#include "text/template/read_chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace distsetup {

struct PrepareSource {
  std::string path;                // as it was given
  std::vector<std::string> files;  // that it is
  double weight = 0;               // in a mixture; 0: none is given
  RowOptions rows;
  bool is_validation = false;  // all of it is held out, and nothing of the others
};
struct PrepareRequest {
  std::vector<PrepareSource> sources;                // weights: of all of them or of none; those for validation last, without
  const Tokenizer* tokenizer = nullptr;              // required
  Diagnostics why_no_chat;                           // said where there is a conversation, and no template
  const ModelTemplate* chat = nullptr;               // null: conversations are an error
  std::string output;                                // a folder
  int64_t held_out_every = 20;                       // one sample in so many is held out, by its tokens; 0: none
  bool trains_prompts = false;                       // what users wrote, too; of pairs it is never trained
  int64_t longest_prompt = 0;                        // tokens; of a pair's longer prompt the last so many stay; 0: all of it does
  std::tm now = {};                                  // what templates are told
  int num_threads = 0;                               // 0: one for each processor that this process may use
  std::function<void(int64_t rows)> shows_progress;  // may be empty
};

struct Prepared {
  SetDescription set;
  Diagnostics notes;  // rows that were dropped, by source and reason
};
// Errors: a source that cannot be read, conversations without a template, nothing left to train on, what cannot be written.
Result<Prepared> prepare(const PrepareRequest& request);

}  // namespace distsetup
