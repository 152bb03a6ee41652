// Of what files of other trainers say, what the bundled trainer alone takes from a run: their trainers read it from those files, and a
// plan for them need not know it.
#pragma once
#include <optional>
#include <vector>

#include "codegen/read/reading.h"
#include "codegen/read/settings.h"
#include "planner/spec/spec.h"

namespace distsetup {

class BundledSettings {
 public:
  // `stronger`: what the user says over the files.
  BundledSettings(const std::vector<ReadSetting>& settings, const Spec& stronger);
  // Why the setting is not one of this run; nullopt: it is.
  std::optional<LostKey> lost(const ReadSetting& setting) const;

 private:
  bool is_native_ = false;  // the bundled trainer runs it
  bool is_fsdp2_ = true;    // nobody asks for a trainer without torch.compile
  bool is_ddp_ = true;      // nor for one without Unsloth's layers
  bool is_fsdp1_ = false, is_megatron_ = false;
  bool is_accelerates_ = false;  // accelerate drives it
  bool wraps_units_ = false;     // FSDP's units are as a policy says
  bool is_other_ = false;        // the user names another trainer than the files, or its code base
  bool reads_sources_ = false;   // and makes token ids of files that are here
};

}  // namespace distsetup
