// A preference pair as two samples, chosen and rejected. Their prompt ends where the tokens of the prompt alone, of the prompt with
// the chosen answer, and of the prompt with the rejected one stop being the same; what comes after it is trained. Conversations are
// rendered by the model's template, the prompt alone with the words that ask for an answer. Source: TRL 1.16, dpo_trainer.py,
// _prepare_dataset. A prompt that is longer than it may be loses its beginning, as with TRL 0.18's max_prompt_length.
#pragma once
#include "data/set_writer.h"
#include "text/prepare/prepare.h"

namespace distsetup {

struct PairOrReason {
  NewSample chosen, rejected;
  std::string reason;  // why the pair is of no use; "": it is
};
// Errors stop everything: a conversation, and no template.
Result<PairOrReason> pair_of(const SourceRow& row, const PrepareRequest& request, Encoder& encoder);

}  // namespace distsetup
