// The programs of a step without stages, and how many parameters its units have.
#pragma once
#include <memory>

#include "plan/plan.h"
#include "planner/native/row_costs.h"

namespace distsetup {

// `plan` may have stages. Where all is trained, without a list or a layout, which name the parameters of every expert and layer.
std::shared_ptr<const WholeList> whole_list(const Plan& plan);
std::shared_ptr<const WholeList> compiled_whole_list(const Plan& plan);  // the same, of a compiled list

}  // namespace distsetup
