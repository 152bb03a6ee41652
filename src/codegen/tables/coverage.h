// Which plan field a target writes, refuses or has no use for. Generated from the target's tables, templates and rules; only the
// reasons of what is not applicable are written down (templates/coverage.yaml, or `not_applicable` of a user's own). A field that is
// none of the three is a gap: a test fails on it, and `distsetup emit --coverage` names it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "codegen/tables/templates.h"

namespace distsetup {

enum class Coverage { kEmitted, kRefused, kNotApplicable, kGap };
std::string_view name(Coverage coverage);  // "emitted", "refused", "not applicable", "gap"

struct FieldCoverage {
  std::string field;  // of plan.json: "train.grad_clip"
  Coverage how = Coverage::kGap;
  std::string reason;  // kNotApplicable
};

// Every leaf of plan.json, sorted.
std::vector<std::string> plan_fields();
Result<std::vector<FieldCoverage>> target_coverage(const TemplateSet& templates, const std::string& target);

}  // namespace distsetup
