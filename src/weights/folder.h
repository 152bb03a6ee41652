// A folder of published weights, as Hugging Face's libraries write it: model.safetensors, or several files that
// model.safetensors.index.json names. Only the headers of the files are read.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "base/safetensors.h"
#include "plan/plan.h"

namespace distsetup {

struct PublishedTensor {
  size_t file = 0;  // number in WeightsFolder::plan.files
  TensorEntry entry;
  // Of a matrix in MXFP4 (mxfp4.h), whose blocks `entry` has: where its scales are.
  struct Scales {
    size_t file = 0;
    int64_t begin = 0;
  };
  std::optional<Scales> scales = std::nullopt;
};
struct WeightsFolder {
  WeightsPlan plan;                                             // the folder and its files: relative names, sizes, digests of headers
  std::map<std::string, PublishedTensor, std::less<>> tensors;  // by published name
};

// True: the folder holds safetensors of a whole model, by their names.
bool has_weights(const std::string& directory);
// Errors (kWeights): no safetensors there, and what is there instead; an index and files that contradict each other; a tensor twice; a
// file that is cut off or malformed.
Result<WeightsFolder> read_weights_folder(const std::string& directory);
// The same of a folder that a plan names. Errors: a file has another size or header than when the plan was made.
Result<WeightsFolder> read_planned_weights(const WeightsPlan& plan, const std::string& directory);

}  // namespace distsetup
