// What a target makes of a plan before it is made: who runs it, and what of the search it has a form for.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "codegen/tables/templates.h"
#include "planner/resolve/resolve.h"

namespace distsetup {

// A file for another trainer is planned for that trainer (`search: {trainer: ...}` of its target.yaml) unless the user names one: for
// the first of the target's that can run what the user pinned, or with the refusals of the first. `is_fsdp1`: the target writes
// version 1. passed_over: as resolve() takes it.
Result<Problem> resolve_for_target(const Spec& spec, const Presets& presets, const Inputs& inputs, const TemplateSet& templates,
                                   bool is_fsdp1, const std::vector<PassedOver>& passed_over = {});

// Whether the target of the settings is another trainer's.
bool has_trainers(const Spec& spec, const TemplateSet& templates);

// What a target cannot express is kept out of the search, so that the best plan is one that can be written. What the user pinned
// stays: codegen refuses it by name.
Diagnostics narrow_to_target(Problem& problem, std::string_view target, const TemplateSet& templates);

}  // namespace distsetup
