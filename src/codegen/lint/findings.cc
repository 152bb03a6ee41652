#include "codegen/lint/findings.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "codegen/lint/rule_table.h"
#include "codegen/read/job_steps.h"

namespace distsetup::lint {
namespace {

// DeepSpeed takes JSON or what a script hands it: a script reads YAML first, and may take its own keys out and put others in.
// JSON under a name of YAML is still JSON.
bool is_read_by_script_first(const Document& d) {
  const size_t first = d.text.find_first_not_of(" \t\r\n");
  return d.is(file_kind::kDeepspeed) && d.form == foreign::TextForm::kYaml && first != std::string::npos && d.text[first] != '{';
}

// Another scheduler starts it, or a cluster of containers: SLURM's variables are empty there.
bool is_elsewhere(const Document& d) {
  const bool is_other = d.is(file_kind::kKubernetes) || d.is(file_kind::kSkypilot) || d.is(file_kind::kPbs) || d.is(file_kind::kLsf) ||
                        !other_scheduler(d).empty();
  return is_other && d.text.find("SLURM_") == std::string::npos;
}

}  // namespace

void Findings::add(std::string_view code, const Document& document, TextSpan span, std::string message, FindingDetails more) {
  const LintRule* rule = find_lint_rule(code);
  CHECK(rule != nullptr, "no rule '{}'", code);
  LintFinding finding;
  Diagnostic& d = finding.diagnostic;
  d.code = std::string(code);
  d.severity = more.severity.value_or(rule->severity);
  const bool lacks_knowledge = d.severity == Severity::kError && !more.error_if.empty();
  if (lacks_knowledge) d.severity = Severity::kWarning;
  if (is_read_by_script_first(document) && d.severity == Severity::kError) d.severity = Severity::kWarning;
  d.location = document.place(span.begin);
  const size_t line_end = std::min(document.text.find('\n', span.begin), document.text.size());
  const std::string_view marked = document.cut({span.begin, std::clamp(span.end, span.begin, line_end)});
  d.length = static_cast<int>(
      std::count_if(marked.begin(), marked.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
  d.length = std::max(d.length, 1);
  d.message = std::move(message);
  d.help = !more.help.empty() ? more.help : !rule->fix_elsewhere.empty() && is_elsewhere(document) ? rule->fix_elsewhere : rule->fix;
  if (lacks_knowledge) d.help += "; an error if " + more.error_if;
  if (document.is(file_kind::kNotebook)) more.edits.clear();  // its text is not the file's
  const bool replaces = more.edits.size() == 1 && more.edits[0].begin == span.begin && more.edits[0].end == span.end;
  if (replaces) d.replacement = more.edits[0].text;
  finding.bites = more.bites.empty() ? rule->bites : more.bites;
  finding.edits = std::move(more.edits);
  while (finding.file < setup_.documents.size() && setup_.documents[finding.file].get() != &document) ++finding.file;
  const size_t place = std::hash<std::string_view>()(d.location.file) + (static_cast<size_t>(d.location.line) << 20) +
                       static_cast<size_t>(d.location.column);
  for (auto [at, end] = by_place_.equal_range(place); at != end; ++at) {
    if (findings_[at->second].diagnostic == d) return;
  }
  by_place_.emplace(place, findings_.size());
  findings_.push_back(std::move(finding));
}

}  // namespace distsetup::lint
