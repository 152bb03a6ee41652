// A checkpoint's parameters as published safetensors: published names, shapes and order of rows, one type, files of bounded size.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "model/geometry.h"
#include "weights/convert.h"
#include "weights/match.h"
#include "weights/stored_checkpoint.h"

namespace distsetup {

// What a folder has beside the text model, written again as it is there.
struct CopiedTensor {
  TensorEntry entry;
  std::string path;  // of its file
};
struct OtherParts {
  FolderNames names = FolderNames::kOwn;  // of the text model beside them
  std::vector<CopiedTensor> tensors;
};

struct ExportedFile {
  std::string name;                   // "model.safetensors", "model-00001-of-00003.safetensors"
  std::string prefix = {};            // before the names of its parameters
  std::vector<Parameter> parameters;  // of one model on one rank, in the order of the file
  FolderNames names = FolderNames::kOwn;
  std::vector<CopiedTensor> copied = {};  // behind them
};
// The parameters in the model's order; a file is full when one more would take its tensors beyond `max_bytes`. Names as Transformers
// gives them. A tied head is no parameter, so there is none.
std::vector<ExportedFile> exported_files(const Geometry& geometry, StoredType type, int64_t max_bytes, const OtherParts& others = {});

// Where values come from: `box` of a parameter in the program's order, as box.numel() values, row-major.
using ReadParameter = std::function<Diagnostics(const Parameter& parameter, const Box& box, float* values)>;
ReadParameter parameters_of(StoredCheckpoint& checkpoint);

// Writes one of them into `directory`. Memory: two pieces (weights/read_box.h), whatever the size of a tensor. Errors: the source
// cannot be read, the file not be written, or a value is beyond the type (kWeights).
Diagnostics write_exported_file(const ExportedFile& file, const Geometry& geometry, StoredType type, const ReadParameter& from,
                                const std::string& directory);

// model.safetensors.index.json.
std::string exported_index(const std::vector<ExportedFile>& files, StoredType type);

}  // namespace distsetup
