#include "codegen/lint/lint_setup.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "codegen/lint/batch_launch.h"
#include "codegen/lint/pinned.h"

namespace distsetup::lint {
namespace {

int64_t or_zero(std::optional<long long> n) { return n ? *n : 0; }

int64_t script_nodes(const Document& d) {
  for (const ScriptPart& part : d.parts) {
    if (const Directive* nodes = part.script.directive("nodes")) {
      if (const auto n = number(nodes->value)) return *n;
    }
    for (const LaunchLine& line : part.lines) {
      const LaunchStage* torchrun = line.find(LaunchProgram::kTorchrun);
      if (torchrun == nullptr) continue;
      if (const auto n = number(torchrun->value("nnodes"))) return *n;
      if (torchrun->has("standalone")) return 1;
    }
  }
  return 0;
}

int64_t script_gpus(const Document& d) {
  for (const ScriptPart& part : d.parts) {
    for (const char* name : {"gpus-per-node", "gres"}) {
      const Directive* gpus = part.script.directive(name);
      const int64_t n = gpus == nullptr ? 0 : or_zero(option_count(name, gpus->value));
      if (n > 0) return n;
    }
    for (const LaunchLine& line : part.lines) {
      if (const LaunchStage* torchrun = line.find(LaunchProgram::kTorchrun)) {
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

int64_t LintSetup::nodes() const {
  if (context.nodes > 0) return context.nodes;
  for (const auto& d : documents) {
    if (const int64_t n = script_nodes(*d); n > 0) return n;
  }
  for (const auto& d : documents) {
    if (d->is(file_kind::kAccelerate)) {
      if (const auto n = real(d->root, "num_machines")) return static_cast<int64_t>(*n);
    }
    if (d->is(file_kind::kPlan)) {
      if (const auto n = real(d->root, "hardware.nodes")) return static_cast<int64_t>(*n);
    }
  }
  return 0;
}

int64_t LintSetup::gpus_per_node() const {
  if (context.gpus_per_node > 0) return context.gpus_per_node;
  for (const auto& d : documents) {
    if (const int64_t n = script_gpus(*d); n > 0) return n;
    if (d->is(file_kind::kPlan)) {
      if (const auto n = real(d->root, "hardware.gpus_per_node")) return static_cast<int64_t>(*n);
    }
  }
  return 0;
}

int64_t LintSetup::world() const { return nodes() * gpus_per_node(); }

std::string LintSetup::consumer(const Document& deepspeed) const {
  if (!context.consumer.empty()) return context.consumer;
  const std::string base = deepspeed.path.substr(deepspeed.path.rfind('/') + 1);
  for (const auto& d : documents) {
    if (d->is(file_kind::kAccelerate) && has(d->root, "deepspeed_config")) return "accelerate";
    const bool is_trainer = d->takes_training_arguments() || d->is(file_kind::kAxolotl);
    if (is_trainer && has(d->root, "deepspeed")) return "hf";
    if (d->is(file_kind::kLightning)) return "lightning";
    for (const ScriptPart& part : d->parts) {
      for (const LaunchLine& line : part.lines) {
        const LaunchStage* script = line.find(LaunchProgram::kScript);
        if (script == nullptr) continue;
        if (script->value("deepspeed").find(base) != std::string::npos && !base.empty()) return "hf";
        if (script->has("deepspeed_config")) return "deepspeed";
      }
    }
  }
  return "";
}

std::string LintSetup::version(std::string_view package) const {
  const std::string said = said_version(package);
  return said.empty() ? pinned_version(package, [this](const std::string& tool) { return said_version(tool); }) : said;
}

std::string LintSetup::said_version(std::string_view package) const {
  if (const auto known = context.tools.find(std::string(package)); known != context.tools.end()) return known->second;
  if (const auto said = versions_said.find(package); said != versions_said.end()) return said->second;
  std::string found;
  for (const auto& d : documents) {
    if (found.empty()) found = installed(*d, package);
  }
  return versions_said[std::string(package)] = found;
}

const Document* LintSetup::first(std::string_view kind) const {
  for (const auto& d : documents) {
    if (d->is(kind)) return d.get();
  }
  return nullptr;
}

const EnvironmentSetting* LintSetup::environment(std::string_view name) const {
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

}  // namespace distsetup::lint
