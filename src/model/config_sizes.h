// The sizes that a config.json states, by the role they play: families name one role in many ways ("hidden_size", "d_model",
// "n_embd"). Private to src/model.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/value.h"

namespace distsetup {

using Keys = std::span<const char* const>;

class ConfigSizes {
 public:
  explicit ConfigSizes(const Value& config);

  // The first of these keys that holds a number above 0; of a list (one for each layer) their mean. Maps about attention, MLPs,
  // experts and scans inside the file ("ffn_config") are searched after the file's own level.
  int64_t first(Keys keys, int64_t absent = 0) const;
  int64_t first(std::initializer_list<const char*> keys, int64_t absent = 0) const;
  // What the first of these keys that is there says; none: nothing.
  const Value* find(Keys keys) const;
  const Value* find(std::initializer_list<const char*> keys) const;
  bool has(std::initializer_list<const char*> keys) const { return find(keys) != nullptr; }
  std::string text(std::initializer_list<const char*> keys) const;
  bool is_true(std::initializer_list<const char*> keys) const { return text(keys) == "true"; }

 private:
  std::vector<const Value*> maps_;
};

// What mixes the tokens of a layer: attention, a state-space scan (Mamba), attention without a softmax (DeltaNet, KDA, Lightning), a
// short convolution, or a gated linear recurrence.
enum class Mixer { kAttention, kWindow, kScan, kLinear, kConvolution, kRecurrence };

// How many layers of a model have which parts.
struct LayerParts {
  int64_t layers = 0;                 // as Geometry's: a mixer and the MLP after it are one, also where the file counts them apart
  int64_t attention = 0, window = 0;  // of all tokens, of a window
  int64_t scan = 0, linear = 0, convolution = 0, recurrence = 0;
  int64_t mlps = 0;                // dense or of experts
  int64_t shared_blocks = 0;       // > 0: all of `attention` and `mlps` are these few, used again and again (Zamba)
  int64_t decoders = 0;            // of `layers`, those that also attend to an encoder
  bool is_lone_decoder = false;    // of a pair of encoder and decoder, whose file has both
  std::vector<bool> expert_layer;  // as Geometry's
  // Where each layer has sizes of its own (block_configs of NVIDIA's pruned models).
  double mlp_multiple = 0;      // mean width of an MLP, of 2/3 hidden; 0: not so
  int64_t heads_per_group = 0;  // query heads to a key and value head
};
// 0 layers: the file does not say.
LayerParts layer_parts(const ConfigSizes& sizes, int64_t num_experts);

}  // namespace distsetup
