// Facts of a set-up that no single file has, and findings with the severity their rule states.
#include "codegen/lint/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace distsetup::lint {
namespace {

int64_t or_zero(std::optional<long long> n) { return n ? *n : 0; }

int64_t script_nodes(const Document& d) {
  for (const ScriptPart& part : d.parts) {
    if (const Directive* nodes = part.script.directive("nodes")) {
      if (const auto n = number(nodes->value)) return *n;
    }
    for (const Line& line : part.lines) {
      const Stage* torchrun = line.find(Program::kTorchrun);
      if (torchrun == nullptr) continue;
      if (const auto n = number(torchrun->value("nnodes"))) return *n;
      if (torchrun->has("standalone")) return 1;
    }
  }
  return 0;
}

// "gpu:h100:8", "8", "h100:8"
int64_t count_of(const std::string& value) {
  const std::string last = value.substr(value.rfind(':') == std::string::npos ? 0 : value.rfind(':') + 1);
  return or_zero(number(last));
}

int64_t script_gpus(const Document& d) {
  for (const ScriptPart& part : d.parts) {
    for (const char* name : {"gpus-per-node", "gres"}) {
      const Directive* gpus = part.script.directive(name);
      if (gpus == nullptr || (std::string_view(name) == "gres" && gpus->value.rfind("gpu", 0) != 0)) continue;
      if (const int64_t n = count_of(gpus->value); n > 0) return n;
    }
    for (const Line& line : part.lines) {
      if (const Stage* torchrun = line.find(Program::kTorchrun)) {
        if (const auto n = number(torchrun->value("nproc_per_node"))) return *n;
      }
    }
  }
  return 0;
}

// pip install torchtitan==0.3.0 "torch==2.9"
std::string installed(const Document& d, std::string_view package) {
  const std::string wanted = std::string(package) + "==";
  for (size_t at = d.text.find(wanted); at != std::string::npos; at = d.text.find(wanted, at + 1)) {
    if (at > 0 && (std::isalnum(static_cast<unsigned char>(d.text[at - 1])) != 0 || d.text[at - 1] == '-' || d.text[at - 1] == '_'))
      continue;
    const size_t begin = at + wanted.size();
    const size_t end = d.text.find_first_not_of("0123456789.abcdefghijklmnopqrstuvwxyz+", begin);
    return d.text.substr(begin, std::min(end, d.text.size()) - begin);
  }
  return "";
}

}  // namespace

int64_t Setup::nodes() const {
  if (context.nodes > 0) return context.nodes;
  for (const auto& d : documents) {
    if (const int64_t n = script_nodes(*d); n > 0) return n;
  }
  for (const auto& d : documents) {
    if (d->kind == FileKind::kAccelerate) {
      if (const auto n = real(d->root, "num_machines")) return static_cast<int64_t>(*n);
    }
    if (d->kind == FileKind::kPlan) {
      if (const auto n = real(d->root, "hardware.nodes")) return static_cast<int64_t>(*n);
    }
  }
  return 0;
}

int64_t Setup::gpus_per_node() const {
  if (context.gpus_per_node > 0) return context.gpus_per_node;
  for (const auto& d : documents) {
    if (const int64_t n = script_gpus(*d); n > 0) return n;
    if (d->kind == FileKind::kPlan) {
      if (const auto n = real(d->root, "hardware.gpus_per_node")) return static_cast<int64_t>(*n);
    }
  }
  return 0;
}

int64_t Setup::world() const { return nodes() * gpus_per_node(); }

std::string Setup::consumer(const Document& deepspeed) const {
  if (!context.consumer.empty()) return context.consumer;
  const std::string base = deepspeed.path.substr(deepspeed.path.rfind('/') + 1);
  for (const auto& d : documents) {
    if (d->kind == FileKind::kAccelerate && has(d->root, "deepspeed_config")) return "accelerate";
    const bool is_trainer = takes_training_arguments(d->kind) || d->kind == FileKind::kAxolotl;
    if (is_trainer && has(d->root, "deepspeed")) return "hf";
    if (d->kind == FileKind::kLightning) return "lightning";
    for (const ScriptPart& part : d->parts) {
      for (const Line& line : part.lines) {
        const Stage* script = line.find(Program::kScript);
        if (script == nullptr) continue;
        if (script->value("deepspeed").find(base) != std::string::npos && !base.empty()) return "hf";
        if (script->has("deepspeed_config")) return "deepspeed";
      }
    }
  }
  return "";
}

std::string Setup::version(std::string_view package) const {
  if (const auto known = context.tools.find(std::string(package)); known != context.tools.end()) return known->second;
  for (const auto& d : documents) {
    if (std::string found = installed(*d, package); !found.empty()) return found;
  }
  return "";
}

const Document* Setup::first(FileKind kind) const {
  for (const auto& d : documents) {
    if (d->kind == kind) return d.get();
  }
  return nullptr;
}

const EnvironmentSetting* Setup::environment(std::string_view name) const {
  const EnvironmentSetting* found = nullptr;
  for (const auto& d : documents) {
    for (const EnvironmentSetting& one : d->environment) {
      if (one.name == name) found = &one;
    }
  }
  return found;
}

int compare_versions(std::string_view a, std::string_view b) {
  const auto next = [](std::string_view& text) {
    const size_t dot = std::min(text.find('.'), text.size());
    const std::string_view digits = text.substr(0, std::min(text.find_first_not_of("0123456789"), dot));
    const long long n = number(digits).value_or(0);
    text.remove_prefix(std::min(dot + 1, text.size()));
    return n;
  };
  while (!a.empty() || !b.empty()) {
    const long long left = next(a), right = next(b);
    if (left != right) return left < right ? -1 : 1;
  }
  return 0;
}

void Report::add(std::string_view code, const Document& document, Span span, std::string message, More more) {
  const LintRule* rule = find_lint_rule(code);
  CHECK(rule != nullptr, "no rule '{}'", code);
  LintFinding finding;
  Diagnostic& d = finding.diagnostic;
  d.code = std::string(code);
  d.severity = more.severity.value_or(rule->severity);
  d.location = document.place(span.begin);
  const size_t line_end = std::min(document.text.find('\n', span.begin), document.text.size());
  const std::string_view marked = document.cut({span.begin, std::clamp(span.end, span.begin, line_end)});
  d.length = static_cast<int>(
      std::count_if(marked.begin(), marked.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
  d.length = std::max(d.length, 1);
  d.message = std::move(message);
  d.help = more.help.empty() ? rule->fix : more.help;
  const bool replaces = more.edits.size() == 1 && more.edits[0].begin == span.begin && more.edits[0].end == span.end;
  if (replaces) d.replacement = more.edits[0].text;
  finding.bites = more.bites.empty() ? rule->bites : more.bites;
  finding.edits = std::move(more.edits);
  while (finding.file < setup_.documents.size() && setup_.documents[finding.file].get() != &document) ++finding.file;
  for (const LintFinding& other : findings_) {
    if (other.diagnostic == d) return;
  }
  findings_.push_back(std::move(finding));
}

}  // namespace distsetup::lint
