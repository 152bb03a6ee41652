#include "codegen/lint/deepspeed_file.h"

#include <fmt/format.h>

namespace distsetup::lint {

int stage_of(const Value& root) {
  const TreeNode zero = node(root, "zero_optimization");
  if (!zero) return 0;
  if (zero.value->kind == Value::Kind::kScalar) return zero.text() == "true" ? 1 : 0;
  return static_cast<int>(real(root, "zero_optimization.stage").value_or(0));
}

bool offloads(const Value& root, std::string_view what) {
  const std::string device = text(root, fmt::format("zero_optimization.{}.device", what));
  return device == "cpu" || device == "nvme";
}

}  // namespace distsetup::lint
