// Tokenizer files, whichever of the formats they have:
//
//   tokenizer.json    Hugging Face's tokenizers
//   tokenizer.model   SentencePiece, or tiktoken's ranks under this name (Llama 3)
//   tekken.json       Mistral's
//
// Of a folder the first of these is taken; a file may have any name. bos, eos and pad come from tokenizer_config.json beside it, and
// for SentencePiece whether bos and eos are put around a text (add_bos_token, add_eos_token).
#pragma once
#include <string>

#include "text/tokenizer/tokenizer.h"

namespace distsetup {

Result<Tokenizer> read_tokenizer(const std::string& path);  // of a folder or a file

}  // namespace distsetup
