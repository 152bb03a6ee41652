// A checkpoint of a run that trained a part of a model, or adapters beside it: its adapters as PEFT has them, and the whole model,
// with what was frozen out of the folder that the run started from and adapters merged into it.
#pragma once
#include <memory>
#include <string>

#include "plan/plan.h"
#include "weights/export.h"
#include "weights/export_tensors.h"

namespace distsetup {

// adapter_model.safetensors and adapter_config.json of a plan with adapters.
ExportedFile adapter_file(const Plan& plan);
// `is_beside_others`: the model is the text model of one with towers, whose modules have the same last names and are not meant.
std::string adapter_config(const Plan& plan, bool is_beside_others);

// The whole model. Adapters are added in fp32: W + scale · B · A. What was held as nf4 is what came back out of it, with or without
// adapters, unless `base` is the published weights. Errors (kWeights): the run began with no folder; its frozen
// parameters have another digest than the checkpoint was trained beside. `checkpoint` must outlive it.
class TunedModel;
Result<std::shared_ptr<TunedModel>> open_tuned_model(const Plan& plan, const CheckpointMetadata& metadata,
                                                     StoredCheckpoint& checkpoint, MergeBase base);
ReadParameter parameters_of(TunedModel& model);

}  // namespace distsetup
