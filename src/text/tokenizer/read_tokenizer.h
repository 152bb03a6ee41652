// Tokenizer files, whichever of the formats they have:
//
//   tokenizer.json    Hugging Face's tokenizers
//
// Of a folder the first of these is taken. bos, eos and pad come from tokenizer_config.json beside it.
#pragma once
#include <string>

#include "text/tokenizer/tokenizer.h"

namespace distsetup {

Result<Tokenizer> read_tokenizer(const std::string& path);  // of a folder or a file

}  // namespace distsetup
