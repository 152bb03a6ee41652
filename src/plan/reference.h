// The reference of preference pairs where it runs in the step, beside the policy (train.reference shared or sharded). Its programs are
// the policy's without backward; in place of a loss, the head leaves what it makes of each sequence in `reference_logps`, which the
// policy's loss reads.
//   shared   the model without its adapters, on the same parameters: what they stand beside is frozen
//   sharded  the model that training starts from: what is trained has a copy in reference units (layout.h), what is frozen is read
//            where it is
#pragma once
#include <memory>

#include "plan/native_program.h"

namespace distsetup {

inline bool keeps_reference(const PreferencePlan& preference) { return preference.reference == "sharded"; }
inline bool runs_reference(const PreferencePlan& preference) {
  return keeps_reference(preference) || preference.reference == "shared";
}
inline bool keeps_reference(const TrainPlan& train) { return learns_preferences(train) && keeps_reference(train.preference); }
inline bool runs_reference(const TrainPlan& train) { return learns_preferences(train) && runs_reference(train.preference); }

// `has_copies`: of what is trained; else adapters are left out.
std::shared_ptr<const NativePrograms> reference_programs(const NativePrograms& policy, bool has_copies);

// What of it the bundled trainer refuses of a plan, each by name.
Diagnostics check_reference(const Plan& plan);

}  // namespace distsetup
