// The part of a Problem that only trainers other than the bundled one have: their facts, the axes they add, and a Setup in which all
// that is settled is filled in. Problem's own fields (shardings, recomputes, mesh, batch) mean the same for every trainer.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "planner/planner.h"
#include "planner/resolve/trainers.h"
#include "planner/search/search.h"

namespace distsetup {

struct TrainerProblem {
  TrainerFacts facts;
  Setup base;
  std::map<std::string, Gpu> gpus;                                  // by preset id: smallest-that-fits tries others
  int tp = 0, pp = 0, cp = 0, ep = 0, virtual_stages = 0, hpz = 0;  // 0 = searched
  std::vector<CpMethod> cp_methods;                                 // to try where cp > 1
  bool sequence_parallel = true;                                    // with tp
  std::string chosen_for;  // the target whose trainer it is; empty: the user named the trainer
};

// Reads the settings of another trainer; refuses by name what its facts do not have. `problem` is resolved in everything else.
Diagnostics resolve_trainer(const Spec& spec, const Presets& presets, const std::map<std::string, Gpu>& gpus, Problem& problem);

// Adapters as the settings say, where a plan has some; refuses targets that are none by name.
Diagnostics resolve_adapters(const Spec& spec, Problem& problem, TrainerProblem& trainer);
// Adapters of the default rank on every matrix that gets one; `kind`: lora or qlora.
void set_adapters(Setup& setup, std::string_view kind);

// What the trainer's release does on the setup's GPU.
void set_software(const TrainerProblem& trainer, Setup& setup);

// For the bundled trainer: settings that only others have, refused with the reason.
Diagnostics refuse_not_native(const Spec& spec);

// The answer for another trainer: as solve() (search.h), by bound, time and simulated or replayed memory of a Setup.
std::optional<Plan> solve_trainer(const Problem& problem, Diagnostics& why, Shortfall shortfall);

}  // namespace distsetup
