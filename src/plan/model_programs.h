// One model's programs from the file of its family (native_file.h): forward as the file has it, with the model's facts and what ranks
// do together, and backward as it follows (program_builder.h).
#pragma once
#include <string>

#include "plan/native_file.h"
#include "plan/native_program.h"

namespace distsetup {

// Which of a model's programs.
struct ProgramChoice {
  UnitKind kind = UnitKind::kBlock;
  LayerForm layer;  // of a block
  ProgramSplit split;
  const Tuning* tuning = nullptr;  // with `unit`, where not all of the model is trained
  const UnitTuning* unit = nullptr;
};
// One unit's program for a model, backward included. CHECKs where the file makes none: ask model_programs() first.
Program program_of(const NativeFile& file, const ProgramChoice& choice, const Geometry& geometry);
// All programs of a model of which everything is trained. "": they could be made; else why not. Kernels that are missing beyond some
// length only are no reason.
std::string model_programs(const NativeFile& file, const Geometry& geometry, const ProgramSplit& split, NativePrograms& programs);

}  // namespace distsetup
