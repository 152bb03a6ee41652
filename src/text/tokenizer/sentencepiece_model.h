// tokenizer.model, SentencePiece's file: a protocol buffer of pieces with scores and kinds, of the training's settings and of the
// rules of normalization (sentencepiece_model.proto of github.com/google/sentencepiece). BPE and Unigram; what is refused is named.
#pragma once
#include <string>
#include <string_view>

#include "text/tokenizer/tokenizer.h"

namespace distsetup {

bool looks_like_sentencepiece(std::string_view bytes);
// Nothing is put around a text: whether bos and eos are, tokenizer_config.json says (read_tokenizer).
Result<Tokenizer> parse_sentencepiece(std::string_view bytes, const std::string& file);

}  // namespace distsetup
