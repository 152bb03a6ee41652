// What the layers of a config.json are like, where its sizes alone do not say it: gated MLPs, norms and biases in BERT's style,
// learned positions, attention to all tokens. Private to src/model.
#pragma once
#include <initializer_list>

#include "model/config_sizes.h"
#include "model/geometry.h"

namespace distsetup {

bool is_of(const ConfigSizes& sizes, std::initializer_list<const char*> model_types);

int64_t stated_mlp_width(const ConfigSizes& sizes, int64_t absent = 0);
// Both halves of a gated MLP are stated as one width.
bool states_both_halves(const ConfigSizes& sizes);

// Encoders, and pairs of encoder and decoder: a decoder sees half of its own positions and all of the encoder's.
bool sees_all_positions(const ConfigSizes& sizes, const LayerParts& parts);

// Sets gated_mlp, activation, norm, biases and learned positions of `geometry`, whose sizes are read.
void read_style(const ConfigSizes& sizes, const LayerParts& parts, Geometry& geometry);

}  // namespace distsetup
