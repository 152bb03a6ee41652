// Fields that plan.json does not spell out, and what they follow from: one table, so that a derived field has a place in the coverage
// of every target from the start.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace distsetup {

// Every derived.* field, and those of options.* and job.* that a plan fills -> the plan fields that it follows from.
const std::map<std::string, std::vector<std::string>, std::less<>>& field_sources();
// Of one field; empty for one that follows from none.
std::vector<std::string> sources_of(std::string_view field);

}  // namespace distsetup
