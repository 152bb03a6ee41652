// Where the checks put what they find, with the severity and the fix that the rule's table states. Internal to lint.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "codegen/lint/lint_setup.h"

namespace distsetup::lint {

struct FindingDetails {
  std::string help = {};             // empty: the rule's own
  std::string bites = {};            // empty: the rule's own
  std::vector<LintEdit> edits = {};  // a fix that changes nothing else
  std::optional<Severity> severity = {};
  // What has to be so for this to be an error, where the files do not say it: then it is a warning whose help says this. Empty:
  // nothing.
  std::string error_if = {};
};

class Findings {
 public:
  explicit Findings(const LintSetup& setup) : setup_(setup) {}
  void add(std::string_view code, const Document& document, TextSpan span, std::string message, FindingDetails more = {});
  std::vector<LintFinding> take() { return std::move(findings_); }

 private:
  const LintSetup& setup_;
  std::vector<LintFinding> findings_;
  std::unordered_multimap<size_t, size_t> by_place_;  // hash of the place -> index: each finding is told once
};

}  // namespace distsetup::lint
