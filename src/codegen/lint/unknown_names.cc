#include "codegen/lint/unknown_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "codegen/tables/other_releases.h"

namespace distsetup::lint {
namespace {

// More names of nobody's than these: the file is another tool's, or the parser a fork's.
constexpr size_t kFewOwn = 2;

// What to do about names of releases that are past. Who leaves out one that has a new name changes the run.
std::string advice_for_gone(const std::string& table, const std::vector<const UnknownName*>& gone) {
  std::vector<std::string> renamed, others;
  for (const UnknownName* one : gone) {
    const std::string now = renamed_to(table, one->name);
    if (!now.empty()) renamed.push_back(fmt::format("{} for {}", now, one->name));
    if (now.empty()) others.push_back(fmt::format("'{}' until {}", one->name, gone_since(table, one->name)));
  }
  std::string help = "keep to the release that it was written for, or ";
  if (renamed.empty()) return help + fmt::format("remove them: {}", fmt::join(others, ", "));
  help += fmt::format("write {}", fmt::join(renamed, ", "));
  return others.empty() ? help : help + fmt::format(", and remove {}", fmt::join(others, ", "));
}

// Names of releases that are past: mistakes only where a later release is known to be used, else one line says it of all.
void report_gone(const Document& d, const UnknownNames& names, const std::vector<const UnknownName*>& gone, Findings& report) {
  if (!gone.empty() && names.version.empty()) {
    const std::string more = gone.size() == 1 ? "" : fmt::format(" and {} more names", gone.size() - 1);
    report.add(names.code, d, gone[0]->at,
               fmt::format("{} has no '{}'{}: the file is of an earlier release", names.tool, gone[0]->name, more),
               {advice_for_gone(names.table, gone), names.bites, {}, Severity::kNote});
    return;
  }
  for (const UnknownName* one : gone) {
    const std::string release = gone_since(names.table, one->name);
    const std::string now = renamed_to(names.table, one->name);
    const bool is_used = compare_versions(names.version, release) >= 0;
    report.add(names.code, d, one->at, fmt::format("{} has no '{}': releases before {} do", names.tool, one->name, release),
               {fmt::format("{}, or keep to the release that the file was written for", now.empty() ? "remove it" : "write " + now),
                names.bites,
                {},
                is_used ? std::optional<Severity>() : Severity::kWarning});
  }
}

void report_own(const Document& d, const UnknownNames& names, const std::vector<const UnknownName*>& own, NamesOf whose,
                Findings& report) {
  if (own.empty()) return;
  if (whose == NamesOf::kExtendedParser) {
    std::vector<std::string> spelled;
    for (const UnknownName* one : own) spelled.push_back(one->name);
    report.add(names.code, d, names.top,
               fmt::format("{} of the names here {} none of {}'s own: a script that declares more takes them", own.size(),
                           own.size() == 1 ? "is" : "are", names.tool),
               {fmt::format("these: {}", fmt::join(spelled, ", ")), names.bites, {}, Severity::kNote});
    return;
  }
  const bool is_sure = whose == NamesOf::kEveryRelease || !names.version.empty();
  if (own.size() > kFewOwn && !is_sure) {
    report.add(names.code, d, own[0]->at, fmt::format("'{}' and {} more are none of {}'s", own[0]->name, own.size() - 1, names.tool),
               {"another release may have them", names.bites, {}, Severity::kNote});
    return;
  }
  if (own.size() > kFewOwn && names.version.empty()) return;
  for (const UnknownName* one : own) {
    report.add(names.code, d, one->at, one->says,
               {is_sure ? "remove it" : "another release may have it",
                names.bites,
                {},
                is_sure ? std::optional<Severity>() : Severity::kWarning});
  }
}

}  // namespace

std::string and_others(const std::vector<std::string>& names) {
  constexpr size_t kMostNamed = 8;
  const size_t end = std::min(names.size(), 1 + kMostNamed), num_more = names.size() - end;
  std::string out;
  for (size_t i = 1; i < end; ++i)
    out += fmt::format("{}'{}'", i == 1 ? ", nor " : i + 1 == end && num_more == 0 ? " and " : ", ", names[i]);
  return num_more == 0 ? out : out + fmt::format(" and {} more", num_more);
}

void report_unknown_names(const Document& d, const UnknownNames& names, NamesOf whose, Findings& report) {
  std::vector<const UnknownName*> misspelt, gone, own;
  for (const UnknownName& one : names.all) {
    const std::string release = gone_since(names.table, one.name);
    const bool is_gone = !release.empty();
    if (release == kNeverGone) continue;
    (is_gone ? gone : one.near.empty() ? own : misspelt).push_back(&one);
  }
  const bool is_fork = whose == NamesOf::kExtendedParser && (own.size() + gone.size() >= kFewOwn || misspelt.size() > kFewOwn);
  for (const UnknownName* one : misspelt) {
    if (is_fork) {
      own.push_back(one);
      continue;
    }
    report.add(names.code, d, one->at, one->says,
               {fmt::format("did you mean '{}'", one->near),
                names.bites,
                {},
                names.is_own_parser ? std::optional<Severity>(Severity::kWarning) : std::nullopt});
  }
  report_gone(d, names, gone, report);
  report_own(d, names, own, whose, report);
}

}  // namespace distsetup::lint
