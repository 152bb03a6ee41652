// A data set as the Hugging Face hub keeps it: a folder of files with a card, README.md, whose first lines may list configurations
// (subsets) with the files of each split. Where they do not, a split follows from the files' names.
// Source: datasets 4.4, docs/source/repository_structure.mdx and src/datasets/data_files.py.
// Leaves out: a loading script; that `**` does not end at a folder while a `*` of the same pattern does.
#pragma once
#include <string>
#include <vector>

#include "base/diagnostic.h"

namespace distsetup {

// The folder has a card that begins as a data set's does.
bool is_hub_dataset(const std::string& folder);

struct HubDataset {
  std::string folder;  // where it lies
  std::string name;    // for messages
  std::string subset;  // "": the only one, or the default one
};
// Files of the training split, by name. Errors: no such subset, several and none is named, no training split, no files.
Result<std::vector<std::string>> training_files(const HubDataset& dataset, const Location& at);

}  // namespace distsetup
