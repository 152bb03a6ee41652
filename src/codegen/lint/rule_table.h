// The rules of lint, as templates/_lint/*.yaml state them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "codegen/lint/lint.h"

namespace distsetup {

struct LintExample {
  std::vector<LintFile> files;
  LintContext context;
};

struct LintRule {
  std::string code;  // DSJ003
  Severity severity = Severity::kError;
  std::string bites;
  std::string title;          // one line
  std::string why;            // a paragraph
  std::string fix;            // an action
  std::string fix_elsewhere;  // where no SLURM is, whose variables `fix` names; empty: `fix`
  std::string source;         // file or page and version
  LintExample bad, good;
};

// Every rule, from the embedded tables, in their order.
const std::vector<LintRule>& lint_rules();
const LintRule* find_lint_rule(std::string_view code);  // nullptr: none

}  // namespace distsetup
