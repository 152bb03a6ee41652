// Every rule of lint by its own examples: the bad one gives the finding, the good one neither that finding nor any error; fixes are
// safe (they remove their finding and leave a file that reads) and done once.
#include <catch2/catch.hpp>
#include <set>

#include "codegen/codegen.h"
#include "codegen/lint/lint.h"
#include "support/random_plan.h"

using namespace distsetup;

namespace {

std::string text_of(const LintReport& report) {
  Diagnostics all = report.unreadable;
  for (const LintFinding& one : report.findings) all.push_back(one.diagnostic);
  return format_diagnostics(all);
}

bool finds(const LintReport& report, std::string_view code) {
  for (const LintFinding& one : report.findings) {
    if (one.diagnostic.code == code) return true;
  }
  return false;
}

LintReport lint(const LintExample& example) { return lint_files(example.files, example.context); }

// Needs a whole plan.json: below.
bool needs_plan(const LintRule& rule) { return rule.code == "PLAN012"; }

}  // namespace

TEST_CASE("lint: every rule's bad example gives its finding", "[lint]") {
  REQUIRE(lint_rules().size() > 170);
  for (const LintRule& rule : lint_rules()) {
    if (needs_plan(rule)) continue;
    const LintReport report = lint(rule.bad);
    INFO(rule.code << "\n" << text_of(report));
    CHECK(finds(report, rule.code));
    CHECK(report.unreadable.empty());
    for (const LintFinding& one : report.findings) {
      if (one.diagnostic.code != rule.code) continue;
      CHECK(one.diagnostic.severity == rule.severity);
      CHECK(one.diagnostic.location.line >= 1);
      CHECK_FALSE(one.diagnostic.help.empty());
      CHECK(one.diagnostic.message.back() != '.');
    }
  }
}

TEST_CASE("lint: every rule's good example is clean of it and of errors", "[lint]") {
  for (const LintRule& rule : lint_rules()) {
    if (needs_plan(rule)) continue;
    const LintReport report = lint(rule.good);
    INFO(rule.code << "\n" << text_of(report));
    CHECK_FALSE(finds(report, rule.code));
    CHECK(report.unreadable.empty());
    for (const LintFinding& one : report.findings) CHECK(one.diagnostic.severity != Severity::kError);
  }
}

TEST_CASE("lint: codes are unique and silent findings say silently ignored or why", "[lint]") {
  std::set<std::string> codes;
  for (const LintRule& rule : lint_rules()) {
    INFO(rule.code);
    CHECK(codes.insert(rule.code).second);
    CHECK_FALSE(rule.why.empty());
    CHECK_FALSE(rule.fix.empty());
    CHECK_FALSE(rule.source.empty());
    CHECK_FALSE(rule.title.empty());
  }
}

TEST_CASE("lint: a fix removes its finding and nothing else", "[lint]") {
  size_t num_fixes = 0;
  for (const LintRule& rule : lint_rules()) {
    const LintReport before = lint(rule.bad);
    for (size_t i = 0; i < before.files.size(); ++i) {
      LintExample fixed = rule.bad;
      std::vector<const LintFinding*> applied;
      fixed.files[i].text = apply_fixes(before, i, fixed.files[i].text, applied);
      if (applied.empty()) {
        CHECK(fixed.files[i].text == rule.bad.files[i].text);
        continue;
      }
      const LintReport after = lint(fixed);
      INFO(rule.code << "\n" << fixed.files[i].text << "\n" << text_of(after));
      for (const LintFinding* one : applied) {
        CHECK_FALSE(finds(after, one->diagnostic.code));
        ++num_fixes;
      }
      CHECK(after.findings.size() + applied.size() <= before.findings.size());
      CHECK(after.files[i].kind == before.files[i].kind);
    }
  }
  CHECK(num_fixes > 12);
}

TEST_CASE("lint: a plan that its target cannot express", "[lint]") {
  const LintRule* rule = find_lint_rule("PLAN012");
  REQUIRE(rule != nullptr);
  for (const bool reshard : {true, false}) {  // ZeRO-3 has no form for parameters kept between forward and backward
    PlanChoice choice;
    choice.dp_shard = 4;
    choice.reshard = reshard;
    Plan plan = make_test_plan(tiny_geometry(), choice);
    plan.launch.target = "deepspeed";
    const LintReport report = lint_files({{"plan.json", dump_json(to_json(plan))}}, {});
    INFO(text_of(report));
    CHECK(finds(report, "PLAN012") == !reshard);
  }
}
