// A checkpoint as a folder of published weights: safetensors and their index, config.json, and the files of a tokenizer. The folder is
// written under another name beside its place, and renamed when it is whole.
#pragma once
#include <string>
#include <vector>

#include "base/file.h"
#include "model/presets.h"
#include "plan/plan.h"
#include "weights/convert.h"

namespace distsetup {

// What adapters are added to, where they were trained beside nf4: the weights that they stood beside, or the published ones.
enum class MergeBase { kDequantized, kOriginal };

struct ExportRequest {
  std::string checkpoint;  // its directory
  std::string output;
  StoredType type = StoredType::kBf16;
  int64_t max_file_bytes = 0;
  Overwrite overwrite = Overwrite::kRefuse;  // kForce: a folder that is there is replaced as a whole
  bool merge = false;                        // adapters into the matrices that they stand beside
  MergeBase merge_base = MergeBase::kDequantized;
};
struct Exported {
  std::vector<std::string> files;  // names in the folder
  int64_t num_parameters = 0;
};

// `plan`: of the run, its weights' folder seen from here. When the run started from a folder, config.json (with the type written) and
// the tokenizer's files are that folder's, byte for byte; else config.json says the plan's model (model/hf_write.h). Of a run that
// trained adapters the folder is one of adapters, as PEFT writes it, unless they are merged. What was frozen is read from the folder
// that the run started from. Errors: the checkpoint is not whole or of another model; the output holds something (kFileExists); a
// value is beyond the type; what was frozen is not what it was, or came from no folder.
Result<Exported> export_checkpoint(const Plan& plan, const Presets& presets, const ExportRequest& request);

// Writes the adapters of a checkpoint alone.
Result<Exported> export_adapter(const Plan& plan, const ExportRequest& request);

}  // namespace distsetup
