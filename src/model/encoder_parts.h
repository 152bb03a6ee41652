// What encoders in BERT's style and pairs of encoder and decoder have beside their layers: token types, a pooler, the head of their
// class, relative positions, the decoder's own positions. Private to src/model.
#pragma once
#include <cstdint>
#include <string_view>

#include "model/config_sizes.h"
#include "model/geometry.h"

namespace distsetup {

// An encoder of Transformers, by its model_type, with what its configuration class assumes where the file is silent.
struct EncoderKind {
  std::string_view model_type;
  int64_t positions, token_types;
  int64_t first_position;  // rows of the position table that no token uses (RoBERTa counts from its padding token on)
  bool has_pooler;         // a square matrix on the first token, where the class is the model alone
};
// nullptr: not one of them. All have layer norms, biases, and an MLP of two matrices.
const EncoderKind* encoder_kind(const ConfigSizes& sizes);

// The class that the file names ("BertForMaskedLM"). Empty: it names none.
std::string_view model_class(const ConfigSizes& sizes);
// Whether that class computes scores over the vocabulary. Where none is named: yes, as in training on text.
bool scores_vocabulary(const ConfigSizes& sizes);

// Parameters that are in no layer, beside embeddings of tokens and of `geometry`'s positions, and one norm.
double parameters_beside_layers(const ConfigSizes& sizes, const Geometry& geometry, const LayerParts& parts);

}  // namespace distsetup
