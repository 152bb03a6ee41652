// What a trainer can run (presets/trainers/<name>.yaml): which axes, shardings and options it has and since which release, and how it
// keeps its states. Search stays inside it, and a setting that is outside is refused by name.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/presets.h"
#include "planner/frameworks/setup.h"
#include "planner/resolve/releases.h"

namespace distsetup {

struct TrainerFacts {
  std::string name, label;
  Setup defaults;                                    // framework, states, optimizer implementation, software
  std::shared_ptr<const ReleaseTable> releases;      // of the stack that it runs; nullptr: `defaults` say all
  int64_t release_day = 0;                           // yyyymmdd
  std::shared_ptr<const ReleaseTable> transformers;  // of the trainers that run Transformers: releases that a user can name
  std::map<std::string, std::pair<std::string, int64_t>, std::less<>>
      older_releases;                                        // target that writes for an older one -> name and day
  std::map<std::string, std::string, std::less<>> programs;  // eager, compiled -> presets/programs
  std::map<std::string, LossHead, std::less<>> loss_heads;   // our name -> what it is here; the first listed is the default
  std::string default_loss_head;
  std::vector<Sharding> shardings;
  std::map<Recompute, ActivationRecompute> recomputes;
  std::map<std::string, std::string, std::less<>> features;   // name -> first release
  std::map<std::string, std::string, std::less<>> later;      // the same of what the planned release does not have yet
  std::map<std::string, std::string, std::less<>> unplanned;  // and of what the tool has, and plans have not
  std::vector<std::string> cp_methods, optimizers;
  std::vector<std::string> families;  // models that it has; empty: whatever Transformers has, or what is described to it
  bool has(std::string_view feature) const { return features.find(feature) != features.end(); }
  bool has_family(std::string_view family) const;
};

// `target`: where the trainer is another program's part (fsdp2 under the Hugging Face Trainer), a variant of its own for some targets.
Result<TrainerFacts> find_trainer(const Presets& presets, std::string_view name, const Location& at = {},
                                  std::string_view target = "");
bool has_variant(const Presets& presets, std::string_view name, std::string_view target);
std::vector<std::string> trainer_names(const Presets& presets);  // without variants
// What the trainer's release does on the setup's GPU.
void set_software(const TrainerFacts& trainer, Setup& setup);
// Names of the trainers that have a feature, for "which can".
std::vector<std::string> trainers_with(const Presets& presets, std::string_view feature);

}  // namespace distsetup
