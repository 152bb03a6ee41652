// The parameters of one unit of a family's file (native_file.h) for a model: those whose conditions hold, each expert's by itself.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/geometry.h"
#include "plan/native_file.h"
#include "plan/program_builder.h"

namespace distsetup {

// In the name of a weight that each expert has one of.
inline constexpr std::string_view kExpertNumber = "{expert}";

std::vector<ParameterDecl> parameters_of(const NativeFile::Unit& unit, const Geometry& geometry, LayerForm layer);

// Rows of the parameters of a slot, added; of a stack those of one expert, and then of all.
std::map<std::string, SlotShape> slots_of(const std::vector<ParameterDecl>& parameters);

// "": parts of fused weights add up, and where tensor parallelism splits them, it can.
std::string parts_problem(const std::vector<ParameterDecl>& parameters, const Geometry& geometry, int tp);

}  // namespace distsetup
