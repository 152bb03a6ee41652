#include "planner/resolve/starter.h"

#include <utility>

#include "plan/plan.h"

namespace distsetup {

void settle_via(std::string& target, std::string& via) {
  if (target == kNative && !via.empty()) target = std::exchange(via, "");
  if (via == target) via = "";
}

Spec with_settled_via(const Spec& spec) {
  Spec out = spec;
  const std::string said = spec.text("launch.via").value_or("");
  if (said.empty()) return out;
  std::string target = spec.text("launch.target").value_or(std::string(kNative)), via = said;
  settle_via(target, via);
  if (via == said) return out;
  (void)set(out, "launch.target", target, spec.at("launch.via"));
  out.settings.erase("launch.via");
  return out;
}

}  // namespace distsetup
