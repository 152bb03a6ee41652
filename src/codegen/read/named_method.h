// What a program's name says of the way it trains (kto.py, trl dpo). Internal to the reader of scripts.
#pragma once
#include "codegen/read/found.h"
#include "codegen/read/reading.h"
#include "codegen/shell/launch_line.h"

namespace distsetup {

// Takes from a reading what was only assumed and the name says otherwise, and adds the method where the name says one. A warning where
// no plan trains like this.
Diagnostics apply_named_method(const foreign::LaunchStage& stage, const std::vector<FoundKey>& keys, const Location& at,
                               Reading& reading);

// A file of TRL's whose keys are of rollouts: what was assumed for other tasks is taken from the reading.
Diagnostics apply_keys_of_rollouts(Reading& reading);

// DistributedDataParallel is what TrainingArguments without DeepSpeed and FSDP train with; accelerate's configuration may say
// otherwise. Those with --fsdp train with the version of FSDP that their table reads.
void name_plain_trainer(const foreign::LaunchLine& line, const Location& at, Reading& reading);

// The arguments fsdp and fsdp_config of TrainingArguments, which drive Transformers' own program, by version 2 unless they say 1
// (training_args.py since 5.10). `has_no_axes`: no other file can split the model further.
void assume_fsdp_of_trainer(const Location& at, bool has_no_axes, Reading& reading);

}  // namespace distsetup
