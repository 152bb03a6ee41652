// Which published tensor holds which parameter of the bundled trainer's programs. Names are the family's (presets/programs/native);
// besides them a folder may have what older files hold and nobody reads (its `buffers`), names without the model's own prefix, the
// matrix of a tied head, and other parts than the text model: towers for pictures and sound, which are left as they are.
#pragma once
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/geometry.h"
#include "weights/folder.h"

namespace distsetup {

// How a folder names the text model's tensors. Source: Transformers, conversion_mapping.py, and what save_pretrained() writes.
enum class FolderNames {
  kOwn,            // "model.norm.weight", "lm_head.weight"; beside other parts in Qwen2-VL and Qwen2.5-VL
  kWithoutPrefix,  // "norm.weight": AutoModel without a head
  kBesideOthers,   // "language_model.model.norm.weight", "language_model.lm_head.weight": Gemma 3, Mistral 3, LLaVA
  kInsideModel     // "model.language_model.norm.weight", "lm_head.weight": Qwen3-VL, GLM-4.1V
};
// A name of the family's own as such a folder has it. Of kWithoutPrefix the own one: nobody writes such folders here.
std::string name_in_folder(FolderNames names, const std::string& own);
// The family's own name of what a folder with other parts beside the text model calls so; a name that is none of the text model's
// stays.
std::string own_name(std::string_view in_folder);

struct MatchedWeights {
  FolderNames names = FolderNames::kOwn;
  std::vector<const PublishedTensor*> others;             // of other parts than the text model
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
