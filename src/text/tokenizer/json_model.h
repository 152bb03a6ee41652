// The model of tokenizer.json with its vocabulary: BPE and Unigram. WordPiece and WordLevel are refused: they belong to encoders.
#pragma once
#include "text/tokenizer/json_node.h"
#include "text/tokenizer/tokenizer.h"

namespace distsetup {

// Fills `model` and `tokens`. `bytes`: the words come as characters that stand for bytes (byte_level.h), and the vocabulary is turned
// into bytes.
enum class Alphabet { kCharacters, kBytes };
void read_json_model(const JsonNode& node, Alphabet alphabet, Tokenizer& tokenizer);
// <0x00> to <0xFF>, kNoId where the vocabulary has none.
void find_byte_tokens(const std::vector<std::string>& tokens, std::array<uint32_t, 256>& byte_tokens);

}  // namespace distsetup
