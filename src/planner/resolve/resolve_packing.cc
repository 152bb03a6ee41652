#include "planner/resolve/resolve_packing.h"

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "plan/packed_rows.h"

namespace distsetup {

void resolve_packing(Resolving& r) {
  if (!r.spec.boolean("data.packing").value_or(false)) return;
  if (r.refuse_elsewhere("data.packing")) return;
  if (r.plan().train.method == "dpo")
    return r.fail(code::kUnsupportedFeature, "data.packing", "dpo has two documents in each row, and packs no more into it",
                  "leave packing out");
  // Without data there is nothing to pack yet: rows are planned full, which is what packing makes of them.
  if (r.plan().data.files.empty()) {
    r.assume("packing: rows are full until there is a data set");
    return;
  }
  r.plan().data.packing = true;
  Plan plan;
  plan.data = r.plan().data;
  plan.hardware = r.plan().hardware;
  plan.mesh.cp = std::max(r.problem.cp, 1);
  plan.strategy.cp_method = r.spec.text("parallel.cp_method").value_or(std::string(name(CpMethod::kUlysses)));
  if (const PackingProblem problem = packing_problem(plan); !problem.message.empty())
    return r.fail(code::kUnsupportedFeature, "data.packing", problem.message, problem.help);
  if (r.plan().hardware.accelerator == Accelerator::kCpu) return;
  std::erase_if(r.problem.cp_methods, [](CpMethod method) { return method != CpMethod::kUlysses; });
}

}  // namespace distsetup
