// The families of models that are known by name: what FSDP wraps, and what their configuration classes assume when a key is absent.
// One row a family. Private to src/model.
// Source: Hugging Face Transformers, src/transformers/models/<family>/configuration_<family>.py and modeling_<family>.py.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "model/geometry.h"

namespace distsetup {

struct Family {
  std::string_view model_type;
  std::string_view layer_class;
  Norm norm = Norm::kRms;
  double norm_epsilon = 1e-6;
  bool tied_embeddings = false;
  double rope_base = 10000;
  int64_t norms_per_layer = 2;
  bool gated_mlp = true;
  std::string_view activation = "silu";
};

const Family* find_family(std::string_view model_type);  // nullptr when unknown
std::vector<std::string> family_names();

}  // namespace distsetup
