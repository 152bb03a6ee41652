// The settings of a run as layers, each over the next: the order of precedence is the list in layers.cc, and is nowhere else. A
// layer is read when all stronger ones are known, since a file may leave unsaid what they say. Every setting keeps the place that it
// was written at, which `config show --origin` prints. A site file is no layer of a run: it says how jobs start (job_flags.h).
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/settings/session.h"
#include "planner/spec/spec.h"

namespace distsetup {

// `assumed`: what a tool takes where nobody says anything. It is below what every layer gives.
struct LayerSpec {
  Spec given, assumed;
};

struct Layer {
  std::string_view name;
  std::function<Result<LayerSpec>(const Spec& stronger)> read;
  std::function<Diagnostics(const Spec& whole)> check = nullptr;  // what can be said only when all layers are known
};

// Strongest first; an absent setting overrides nothing. The mistakes of all layers are told together. Of two layers that assume, the
// weaker is over the stronger: a file's tool over a script that is given flags.
Result<Spec> merge_layers(const std::vector<Layer>& layers);

// Their names, strongest first: "flags, --set, ...".
std::string precedence();

// What files of other tools say and no setting of a run holds, for files that are made of the run.
struct SaidByFiles {
  std::string saves;         // when checkpoints are written, where no setting says it: "no", "epoch"; "" = nothing says that
  bool keeps_all = false;    // files were read, and nothing says how many checkpoints stay
  std::string other_method;  // what no plan does, where no setting says the method: "'grpo.py' trains by rollouts"
  Location other_method_at;
};

// The layers of a command line. Warnings: DISTSETUP_ variables that no key reads.
Result<Spec> read_spec(const Arguments& arguments, const Session& session, SaidByFiles* beside = nullptr);

}  // namespace distsetup
