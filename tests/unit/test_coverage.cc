// Every plan field × every target is emitted, refused, or not applicable with a reason.
#include <catch2/catch.hpp>

#include "codegen/tables/coverage.h"
#include "codegen/tables/field_sources.h"
#include "codegen/tables/fields.h"
#include "support/emitted.h"

using namespace distsetup;

TEST_CASE("coverage: no field of the plan is a gap in any target") {
  const TemplateSet templates = embedded_templates();
  const std::vector<std::string> targets = target_names(templates);
  REQUIRE(targets.size() >= 4);
  for (const std::string& target : targets) {
    const Result<std::vector<FieldCoverage>> coverage = target_coverage(templates, target);
    INFO(target << messages(coverage.diagnostics));
    REQUIRE(coverage.ok());
    int emitted = 0;
    for (const FieldCoverage& one : *coverage) {
      INFO(target << " " << one.field);
      CHECK(one.how != Coverage::kGap);
      CHECK((one.how != Coverage::kNotApplicable || one.reason.size() > 10));
      emitted += one.how == Coverage::kEmitted ? 1 : 0;
    }
    CHECK(emitted >= 3);
  }
}

TEST_CASE("coverage: a field that a table forgets is a gap") {
  TemplateSet templates = embedded_templates();
  for (auto& [path, text] : templates.files) {
    if (path == "coverage.yaml") text = "version: 1\n";
  }
  const Result<std::vector<FieldCoverage>> coverage = target_coverage(templates, "deepspeed");
  REQUIRE(coverage.ok());
  int gaps = 0;
  for (const FieldCoverage& one : *coverage) {
    gaps += one.how == Coverage::kGap ? 1 : 0;
    if (one.field == "micro_batch") CHECK(one.how == Coverage::kEmitted);
    if (one.field == "mesh.pp") CHECK(one.how == Coverage::kRefused);
    if (one.field == "data.root") CHECK(one.how == Coverage::kGap);
  }
  CHECK(gaps > 10);
}

TEST_CASE("coverage: every derived field says which plan fields it follows from") {
  const Fields fields = no_fields();
  for (const auto& [name, value] : fields) {
    if (name.compare(0, 8, "derived.") != 0 || name == "derived.source") continue;
    INFO(name);
    CHECK_FALSE(sources_of(name).empty());
    for (const std::string& source : sources_of(name)) CHECK(fields.count(source) == 1);
  }
}
