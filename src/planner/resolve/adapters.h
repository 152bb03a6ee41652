// Which matrices get adapters, of which rank, beside which frozen weights; and what else of a model is frozen.
#pragma once
#include <string_view>

#include "planner/resolve/problem.h"
#include "planner/resolve/resolving.h"
#include "planner/spec/spec.h"

namespace distsetup {

// Of the bundled trainer: adapters or patterns of parameters, as the settings say, checked against the model's programs.
void resolve_native_tuning(Resolving& r);
// Adapters as the settings say, where a plan has some; refuses targets that are none by name.
Diagnostics resolve_adapters(const Spec& spec, Problem& problem);
// Adapters of the default rank on every matrix that gets one; `kind`: lora or qlora.
void set_adapters(Setup& setup, std::string_view kind);

// Whether the trainer adapts the model's experts in a way that is not planned, so that no other trainer's plan stands for it.
bool adapts_experts_unplanned(const TrainerFacts& trainer, const Plan& plan);

}  // namespace distsetup
