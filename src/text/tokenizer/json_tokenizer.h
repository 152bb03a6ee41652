// tokenizer.json, the file of Hugging Face's tokenizers library. Its `truncation` and `padding` are not applied: how long a text may
// be is the reader's business.
#pragma once
#include <string>

#include "base/json_fwd.h"
#include "text/tokenizer/tokenizer.h"

namespace distsetup {

Result<Tokenizer> parse_json_tokenizer(const Json& json, const std::string& file);

}  // namespace distsetup
