// Files to findings: recognise, take apart, let every group of checks look. Findings come in the order of the files and of their
// lines.
#include "codegen/lint/lint.h"

#include <algorithm>
#include <tuple>

#include "base/diagnostic_codes.h"
#include "codegen/lint/report.h"

namespace distsetup {
namespace {

constexpr lint::Check kLintChecks[] = {
    lint::check_keys,        lint::check_names,       lint::check_options, lint::check_deepspeed,  lint::check_deepspeed_values,
    lint::check_accelerate,  lint::check_fsdp,        lint::check_trainer, lint::check_torchtitan, lint::check_megatron,
    lint::check_trainers,    lint::check_llama_stack, lint::check_slurm,   lint::check_launchers,  lint::check_kubernetes,
    lint::check_environment, lint::check_plan_level};

// A file that does not parse: its mistakes as they are; a key given twice in DeepSpeed's JSON is its own rule.
void report_broken(const lint::Document& d, lint::Report& report) {
  for (const Diagnostic& one : d.broken) {
    const size_t begin = d.offset(one.location);
    const bool is_twice = one.code == code::kDuplicateKey;
    report.add(is_twice ? d.kind == FileKind::kDeepspeed ? "DSJ040" : "FIL002" : "FIL001", d,
               {begin, begin + static_cast<size_t>(std::max(one.length, 1))}, one.message, {one.help, "", {}, {}});
  }
}

}  // namespace

LintReport lint_files(const std::vector<LintFile>& files, const LintContext& context) {
  LintReport out;
  lint::Setup setup;
  setup.context = context;
  for (const LintFile& file : files) {
    const Result<FileKind> kind = context.as.empty() ? recognise(file.path, file.text) : kind_of_name(context.as);
    if (!kind.ok()) {
      append(out.unreadable, kind.diagnostics);
      continue;
    }
    setup.documents.push_back(lint::read_document(file, *kind));
    out.files.push_back({file.path, std::string(kind_name(*kind)), std::string(kind_says(*kind))});
  }
  lint::Report report(setup);
  for (const auto& d : setup.documents) {
    report_broken(*d, report);
    if (d->is_structured() && d->root.kind != Value::Kind::kMap) continue;
    for (const lint::Check check : kLintChecks) check(setup, *d, report);
  }
  out.findings = report.take();
  std::stable_sort(out.findings.begin(), out.findings.end(), [](const LintFinding& a, const LintFinding& b) {
    return std::tie(a.file, a.diagnostic.location.line, a.diagnostic.location.column, a.diagnostic.code) <
           std::tie(b.file, b.diagnostic.location.line, b.diagnostic.location.column, b.diagnostic.code);
  });
  return out;
}

std::string apply_fixes(const LintReport& report, size_t index, std::string text, std::vector<const LintFinding*>& applied) {
  std::vector<const LintFinding*> fixable;
  for (const LintFinding& finding : report.findings) {
    if (finding.file == index && !finding.edits.empty()) fixable.push_back(&finding);
  }
  // A finding is made as a whole or not at all.
  std::vector<const LintEdit*> made;
  for (const LintFinding* finding : fixable) {
    const bool overlaps = std::any_of(finding->edits.begin(), finding->edits.end(), [&made](const LintEdit& edit) {
      return std::any_of(made.begin(), made.end(), [&edit](const LintEdit* other) {
        const bool same_insertion = edit.begin == edit.end && other->begin == other->end && edit.begin == other->begin;
        return same_insertion ? edit.text == other->text : edit.begin < other->end && other->begin < edit.end;
      });
    });
    if (overlaps) continue;
    for (const LintEdit& edit : finding->edits) made.push_back(&edit);
    applied.push_back(finding);
  }
  std::stable_sort(made.begin(), made.end(), [](const LintEdit* a, const LintEdit* b) { return a->begin > b->begin; });
  for (const LintEdit* edit : made) text.replace(edit->begin, edit->end - edit->begin, edit->text);
  return text;
}

}  // namespace distsetup
