// Files to findings: recognise, take apart, let every group of checks look. Findings come in the order of the files and of their
// lines.
#include "codegen/lint/lint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "codegen/lint/accelerate.h"
#include "codegen/lint/allocation.h"
#include "codegen/lint/check_names.h"
#include "codegen/lint/check_options.h"
#include "codegen/lint/deepspeed.h"
#include "codegen/lint/deepspeed_values.h"
#include "codegen/lint/empty_values.h"
#include "codegen/lint/environment.h"
#include "codegen/lint/file_text.h"
#include "codegen/lint/fsdp.h"
#include "codegen/lint/keys.h"
#include "codegen/lint/kubernetes.h"
#include "codegen/lint/launch_sizes.h"
#include "codegen/lint/launchers.h"
#include "codegen/lint/llama_factory.h"
#include "codegen/lint/llama_stack.h"
#include "codegen/lint/megatron.h"
#include "codegen/lint/pipe_status.h"
#include "codegen/lint/plan_level.h"
#include "codegen/lint/pod_names.h"
#include "codegen/lint/ray_pods.h"
#include "codegen/lint/scheduler_variables.h"
#include "codegen/lint/slurm.h"
#include "codegen/lint/trainer_match.h"
#include "codegen/lint/trainers.h"
#include "codegen/lint/training_arguments.h"
#include "codegen/lint/unexported.h"
#include "codegen/lint/unset_values.h"
#include "codegen/lint/verl.h"
#include "codegen/read/loose_json.h"
#include "codegen/read/recognise.h"
#include "codegen/read/started_scripts.h"
#include "codegen/shell/quote.h"
#include "codegen/shell/starts_training.h"

namespace distsetup {
namespace {

// One per group of rules; each looks at the documents it knows.
using LintCheck = void (*)(const lint::LintSetup&, const foreign::Document&, lint::Findings&);
constexpr LintCheck kLintChecks[] = {lint::check_file_text,     lint::check_keys,         lint::check_names,
                                     lint::check_options,       lint::check_deepspeed,    lint::check_deepspeed_values,
                                     lint::check_accelerate,    lint::check_fsdp,         lint::check_training_arguments,
                                     lint::check_trainer_match, lint::check_megatron,     lint::check_trainers,
                                     lint::check_llama_factory, lint::check_verl,         lint::check_llama_stack,
                                     lint::check_slurm,         lint::check_launchers,    lint::check_allocation,
                                     lint::check_launch_sizes,  lint::check_kubernetes,   lint::check_pod_names,
                                     lint::check_environment,   lint::check_plan_level,   lint::check_pipes,
                                     lint::check_empty_values,  lint::check_unset_values, lint::check_scheduler_variables,
                                     lint::check_unexported,    lint::check_ray_pods};

// "debug: false" -> the key with its indentation, and the value without a remark.
std::pair<std::string_view, std::string_view> key_and_value(std::string_view line) {
  const size_t colon = std::min(line.find(':'), line.size());
  std::string_view value = line.substr(std::min(colon + 1, line.size()));
  value = value.substr(0, value.find(" #"));
  while (!value.empty() && std::string_view(" \t\r\n").find(value.back()) != std::string_view::npos) value.remove_suffix(1);
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return {line.substr(0, colon), value};
}

// A key of YAML that stands above with the same value, or with none: whichever of the two a reader keeps, it is what was meant.
bool is_said_again(const foreign::Document& d, size_t begin) {
  if (d.form != foreign::TextForm::kYaml || d.is(file_kind::kKubernetes)) return false;  // kubectl refuses it
  const foreign::TextSpan own = foreign::line_span(d, begin);
  const auto [key, value] = key_and_value(d.cut(own));
  for (size_t at = 0; at < own.begin;) {
    const foreign::TextSpan line = foreign::line_span(d, at);
    at = std::max(line.end, at + 1);
    const auto [other, first] = key_and_value(d.cut(line));
    if (other != key) continue;
    return (first == value && !value.empty()) || first == "null" || first == "~";
  }
  return false;
}

// Whether a command stands in no compound one, which a shell reads to its end before it runs any of it.
bool is_at_top(const foreign::ShellScript& script, size_t command) {
  static const std::set<std::string, std::less<>> kOpen = {"if", "for", "while", "until", "case", "{", "("};
  static const std::set<std::string, std::less<>> kClose = {"fi", "done", "esac", "}", ")"};
  int depth = 0;
  for (const foreign::ControlWord& one : script.controls) {
    if (one.command > command) break;
    depth += kOpen.count(one.word) > 0 ? 1 : kClose.count(one.word) > 0 ? -1 : 0;
  }
  return depth <= 0;
}

// Shells read command by command: what was started before the mistake has run.
bool starts_before(const foreign::Document& d, size_t begin) {
  const size_t line = foreign::line_span(d, begin).begin;
  for (const foreign::ScriptPart& part : d.parts) {
    for (const foreign::LaunchLine& one : part.lines) {
      const foreign::ShellCommand& command = part.script.commands[one.command];
      const bool is_before = !command.words.empty() && command.depth == 0 && command.words.back().span.end < line;
      if (is_before && is_at_top(part.script, one.command) && foreign::starts_training_itself(one)) return true;
    }
  }
  return false;
}

// A file that does not parse: its mistakes as they are; a key given twice in DeepSpeed's JSON is its own rule.
void report_broken(const foreign::Document& d, const lint::LintSetup& setup, lint::Findings& report) {
  // transformers and accelerate read the JSON themselves, and keep the last value.
  const std::string consumer = d.is(file_kind::kDeepspeed) ? setup.consumer(d) : "";
  const bool keeps_last = consumer == "hf" || consumer == "accelerate" || d.text.find("\"auto\"") != std::string::npos;
  // A file that holds a whole configuration twice is one mistake.
  const auto num_twice =
      std::count_if(d.broken.begin(), d.broken.end(), [](const Diagnostic& one) { return one.code == code::kDuplicateKey; });
  constexpr ptrdiff_t kMostCompared = 100;  // each is looked for in the text above it
  const bool is_all_again = num_twice <= kMostCompared && std::all_of(d.broken.begin(), d.broken.end(), [&d](const Diagnostic& one) {
                              return one.code != code::kDuplicateKey || is_said_again(d, d.offset(one.location));
                            });
  // Of several keys one is named: the first that says two different things.
  const auto is_other_twice = [&d](const Diagnostic& one) {
    return one.code == code::kDuplicateKey && !is_said_again(d, d.offset(one.location));
  };
  const auto named = num_twice <= kMostCompared ? std::find_if(d.broken.begin(), d.broken.end(), is_other_twice) : d.broken.end();
  bool said_twice = false;
  for (const Diagnostic& one : d.broken) {
    const size_t begin = d.offset(one.location);
    const bool is_twice = one.code == code::kDuplicateKey;
    if (is_twice && (said_twice || (named != d.broken.end() && &one != &*named))) continue;
    said_twice = said_twice || is_twice;
    const std::string others = !is_twice || num_twice < 2 ? ""
                               : num_twice == 2           ? "; so is 1 more"
                                                          : fmt::format("; so are {} more", num_twice - 1);
    const std::string word = is_twice || !d.is_structured() ? "" : foreign::template_mark(d.text, begin);
    if (!word.empty()) {
      report.add("FIL001", d, {begin, begin + word.size()},
                 fmt::format("'{}': the file is a template, which does not parse before it is filled in", word),
                 {"fill it in before the tool reads the file", "", {}, Severity::kNote});
      return;
    }
    // DeepSpeed's own reader takes Hjson, which has texts without quotes. What ends too early it does not take.
    const bool ends_early = d.text.find_first_not_of(" \t\r\n", begin + 1) == std::string::npos;
    const bool may_be_hjson = !is_twice && d.is(file_kind::kDeepspeed) && d.form == foreign::TextForm::kJson && !keeps_last &&
                              !ends_early && one.message.find("invalid literal") != std::string::npos;  // a text without quotes
    if (may_be_hjson) {
      report.add("FIL001", d, {begin, begin + static_cast<size_t>(std::max(one.length, 1))},
                 one.message + ": DeepSpeed itself reads Hjson, which may take it; transformers and accelerate stop here",
                 {one.help, "", {}, Severity::kWarning});
      continue;
    }
    if (d.is_script() && starts_before(d, begin)) {
      report.add("FIL001", d, {begin, begin + static_cast<size_t>(std::max(one.length, 1))},
                 one.message + "; what stands above has run by then", {one.help, "run", {}, Severity::kWarning});
      continue;
    }
    report.add(is_twice ? d.is(file_kind::kDeepspeed) ? "DSJ040" : "FIL002" : "FIL001", d,
               {begin, begin + static_cast<size_t>(std::max(one.length, 1))}, one.message + others,
               {one.help,
                is_twice && keeps_last                     ? "silent"
                : is_twice && d.is(file_kind::kKubernetes) ? "parse"
                                                           : "",
                {},
                is_twice && (is_all_again || (keeps_last && d.is(file_kind::kDeepspeed))) ? std::optional<Severity>(Severity::kWarning)
                                                                                          : std::nullopt});
  }
}

// --output_dir <DIR> --bf16: to the shell that reads from a file DIR and writes into a file --bf16.
void report_angles(const foreign::Document& d, lint::Findings& report) {
  for (const foreign::ScriptPart& part : d.parts) {
    for (const foreign::ShellCommand& command : part.script.commands) {
      const std::vector<foreign::ShellRedirection>& all = command.redirections;
      for (size_t i = 0; i + 1 < all.size() && command.depth == 0; ++i) {
        const size_t begin = all[i].target.span.begin, end = d.text.find_first_of("<>|;&\n", begin);
        const bool is_one = all[i].how == "<" && all[i + 1].how == ">" && begin > 0 && end < all[i + 1].target.span.begin &&
                            d.text[begin - 1] == '<' && d.text[end] == '>' && d.text[end - 1] != ' ' && d.text[end - 1] != '\t';
        if (!is_one) continue;
        report.add("FIL001", d, {begin - 1, end + 1},
                   fmt::format("'<{}>' is a placeholder that was not filled in: the shell reads a file '{}' there, and writes another",
                               d.text.substr(begin, end - begin), all[i].target.text),
                   {"fill it in", "run", {}, Severity::kWarning});
      }
    }
  }
}

// DeepSpeed reads its file as Hjson, which has comments; transformers, accelerate and everything else as JSON.
void report_comments(const foreign::Document& commented, const foreign::Document& d, const lint::LintSetup& setup,
                     lint::Findings& report) {
  const std::string consumer = d.is(file_kind::kDeepspeed) ? setup.consumer(d) : "hf";
  const bool is_strict = consumer == "hf" || consumer == "accelerate" || d.text.find("\"auto\"") != std::string::npos;
  const Diagnostic& first = commented.broken[0];
  const size_t begin = commented.offset(first.location);
  report.add("FIL003", d, {begin, begin + 1},
             is_strict
                 ? "JSON has neither comments nor commas before a closing bracket: the reader stops here"
                 : "comments, or commas before a closing bracket: DeepSpeed itself takes them, transformers and accelerate stop here",
             {"", "", {}, is_strict ? std::optional<Severity>() : Severity::kWarning});
}

// What lint knows, for a file that it does not.
Diagnostic no_rules_for(const foreign::Document& d) {
  if (d.kind != nullptr && d.kind->is_foreign) return foreign::foreign_format(d);
  if (d.kind != nullptr) {
    std::string instead = d.kind->instead;
    if (const size_t place = instead.find("{file}"); place != std::string::npos) instead.replace(place, 6, quote_shell(d.path));
    return error(code::kUnknownValue, {d.path, 1, 1}, fmt::format("the file is a {}, which lint has no rules for", d.kind->says),
                 std::move(instead));
  }
  if (foreign::says_nothing(d)) {
    return error(code::kUnknownValue, {d.path, 1, 1}, "the file is empty, or has nothing but comments",
                 "take out the # in front of what is meant to act");
  }
  return error(code::kUnknownValue, {d.path, 1, 1},
               fmt::format("the file looks like none of the kinds that lint knows, expected one of: {}",
                           fmt::join(built_in_kinds().lint_names(), ", ")),
               "say which it is with --as, such as --as deepspeed");
}

}  // namespace

Diagnostics check_kind_name(std::string_view as) {
  const FileKind* kind = built_in_kinds().find(as);
  if (as.empty() || (kind != nullptr && kind->has_lint_rules)) return {};
  const std::vector<std::string> names = built_in_kinds().lint_names();
  return {error(code::kUnknownValue, {"command line", 0, 0},
                fmt::format("'--as' is '{}', expected one of {}", as, fmt::join(names, ", ")), suggest(as, names))};
}

LintReport lint_documents(const std::vector<foreign::DocumentPointer>& documents, const LintContext& context) {
  LintReport out;
  lint::LintSetup setup;
  setup.context = context;
  std::vector<foreign::DocumentPointer> commented;  // as they are, of documents that were read without comments
  for (const foreign::DocumentPointer& d : documents) {
    if (d->kind == nullptr || !d->kind->has_lint_rules) {
      out.unreadable.push_back(no_rules_for(*d));
      continue;
    }
    const foreign::DocumentPointer read = foreign::without_comments(*d);
    setup.documents.push_back(read != nullptr ? read : d);
    commented.push_back(read != nullptr ? d : nullptr);
    out.files.push_back({d->path, d->kind->name, d->kind->says, ""});
  }
  // Beside files that are looked at, one that is known by its name is passed over.
  for (Diagnostic& one : out.unreadable) {
    const auto d = std::find_if(documents.begin(), documents.end(),
                                [&one](const foreign::DocumentPointer& other) { return other->path == one.location.file; });
    if (!setup.documents.empty() && d != documents.end() && (*d)->kind != nullptr) one.severity = Severity::kNote;
  }
  lint::Findings report(setup);
  for (size_t i = 0; i < setup.documents.size(); ++i) {
    const foreign::DocumentPointer& d = setup.documents[i];
    if (commented[i] != nullptr) report_comments(*commented[i], *d, setup, report);
    report_broken(*d, setup, report);
    report_angles(*d, report);
    if (d->is_structured() && d->root.kind != Value::Kind::kMap) continue;
    for (const LintCheck check : kLintChecks) check(setup, *d, report);
  }
  out.findings = report.take();
  std::stable_sort(out.findings.begin(), out.findings.end(), [](const LintFinding& a, const LintFinding& b) {
    return std::tie(a.file, a.diagnostic.location.line, a.diagnostic.location.column, a.diagnostic.code) <
           std::tie(b.file, b.diagnostic.location.line, b.diagnostic.location.column, b.diagnostic.code);
  });
  return out;
}

// What a script at `from` sources.
static foreign::ReadSourced read_sourced(const LintContext& context, const std::string& from) {
  if (context.find_script == nullptr || context.text_of_program == nullptr) return nullptr;
  foreign::ReadSourced out = [context, from](const std::string& path) -> std::optional<std::string> {
    const std::string found = context.find_script(path, from);
    std::string text = found.empty() ? "" : context.text_of_program(found);
    return text.empty() ? std::nullopt : std::optional<std::string>(std::move(text));
  };
  out.shows_calls = false;
  return out;
}

// A file that was followed from another one.
struct Followed {
  std::string from;
  bool is_sourced = false;
};

// What the scripts among the documents start (srun bash run.sh) and source (. env.sh), each file once, and what those do.
static std::map<std::string, Followed> follow_scripts(const LintContext& context, std::vector<foreign::DocumentPointer>& documents) {
  constexpr size_t kMostFollowed = 16, kMostBytes = 500'000;
  std::map<std::string, Followed> followed;
  size_t num_bytes = 0;
  if (context.find_script == nullptr || context.text_of_program == nullptr) return followed;
  for (size_t i = 0; i < documents.size(); ++i) {
    const foreign::DocumentPointer from = documents[i];
    std::vector<foreign::StartedScript> all = foreign::started_scripts(*from);
    const size_t num_started = all.size();
    for (foreign::StartedScript& one : foreign::sourced_scripts(*from)) all.push_back(std::move(one));
    for (size_t k = 0; k < all.size(); ++k) {
      const foreign::StartedScript& one = all[k];
      if (one.is_submitted) continue;  // a job of its own, which the options of the line change
      std::string path;
      for (const std::string& candidate : foreign::possible_paths(*from, one.path)) {
        if (path.empty()) path = context.find_script(candidate, from->path);
      }
      const bool is_known = std::any_of(documents.begin(), documents.end(),
                                        [&path](const foreign::DocumentPointer& other) { return other->path == path; });
      if (path.empty() || is_known || followed.size() >= kMostFollowed) continue;
      const std::string text = context.text_of_program(path);
      num_bytes += text.size();
      if (text.empty() || num_bytes > kMostBytes) continue;
      const Result<foreign::DocumentPointer> d =
          foreign::parse_document(embedded_templates(), path, text, one.given, read_sourced(context, path));
      if (!d.ok() || !(*d)->is_script()) continue;
      followed[path] = {from->path, k >= num_started};
      documents.push_back(*d);
    }
  }
  return followed;
}

LintReport lint_files(const std::vector<LintFile>& files, const LintContext& context) {
  std::vector<foreign::DocumentPointer> documents;
  const FileKind* wanted = built_in_kinds().find(context.as);
  CHECK(context.as.empty() || wanted != nullptr, "no kind '{}'", context.as);
  for (const LintFile& file : files) {
    if (wanted != nullptr) {
      documents.push_back(foreign::parse_document_as(std::make_shared<const FileKind>(*wanted), file.path, file.text));
      continue;
    }
    const Result<foreign::DocumentPointer> d =
        foreign::parse_document(embedded_templates(), file.path, file.text, {}, read_sourced(context, file.path));
    CHECK(d.ok(), "{}", format_diagnostics(d.diagnostics));
    documents.push_back(*d);
  }
  const std::map<std::string, Followed> followed = follow_scripts(context, documents);
  LintReport report = lint_documents(documents, context);
  for (LintReport::File& one : report.files) {
    const auto it = followed.find(one.path);
    if (it == followed.end()) continue;
    one.from = it->second.from;
    one.is_sourced = it->second.is_sourced;
  }
  return report;
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
