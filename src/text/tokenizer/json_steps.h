// The steps of tokenizer.json around the model: each reader appends what an object of the file stands for. What is not supported is
// refused by its type and path.
#pragma once
#include <vector>

#include "text/tokenizer/json_node.h"
#include "text/tokenizer/tokenizer.h"

namespace distsetup {

void read_normalizers(const JsonNode& node, std::vector<Normalizer>& steps);
void read_pre_tokenizers(const JsonNode& node, std::vector<PreTokenizer>& steps);
void read_decoders(const JsonNode& node, std::vector<Decoder>& steps);
void read_post_processor(const JsonNode& node, Tokenizer& tokenizer);

}  // namespace distsetup
