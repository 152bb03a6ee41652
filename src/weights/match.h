// Which published tensor holds which parameter of the bundled trainer's programs. Names are the family's (presets/programs/native);
// besides them a folder may have what older files hold and nobody reads (its `buffers`), names without the model's own prefix, and the
// matrix of a tied head.
#pragma once
#include <list>
#include <map>
#include <string>

#include "model/geometry.h"
#include "weights/folder.h"

namespace distsetup {

struct MatchedWeights {
  std::map<std::string, const PublishedTensor*> tensors;  // by a parameter's name; of the folder that was matched, or a part of one
  std::list<PublishedTensor> parts;                       // each expert's of what is stacked
  // A tied head that is published beside the embedding: this parameter's values once more, which the loader compares. nullptr: not so.
  const PublishedTensor* tied_head = nullptr;
  std::string tied_to;
};

// The model has programs (check_native). Errors (kWeights): one, which lists tensors that are missing, that no parameter takes, that
// have another shape, and types that are not read.
Result<MatchedWeights> match_weights(const WeightsFolder& folder, const Geometry& geometry);

// The published name of the head's matrix of a model whose head is the embedding, and the embedding's; empty names: it is not tied.
struct TiedNames {
  std::string head, embedding;
};
TiedNames tied_names(const Geometry& geometry);

}  // namespace distsetup
