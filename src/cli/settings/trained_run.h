// From a path that the user named to a trained model: a run, a checkpoint of it, or a folder of published weights.
#pragma once
#include <string>

#include "cli/line/flags.h"
#include "cli/settings/session.h"
#include "plan/plan.h"

namespace distsetup {

// The plan.json that a checkpoint was trained with: --plan, else the nearest in the folders above it.
Result<std::string> plan_path_of(const Arguments& arguments, const std::string& checkpoint);

struct TrainedModel {
  Plan plan;               // data and weights as seen from the working directory
  std::string checkpoint;  // its folder; "": the parameters are the weights that the plan names
  std::string folder;      // with config.json and tokenizer; "": the model was trained from bytes, or nothing says where they are
};
// `path`: a run or a checkpoint (checkpoint_folder.h's committed_checkpoint), a folder with safetensors, or the id of a downloaded
// model (org/name). Errors: none of these; what the bundled trainer has no program for.
Result<TrainedModel> find_trained_model(const Arguments& arguments, const Session& session, const std::string& path);

}  // namespace distsetup
