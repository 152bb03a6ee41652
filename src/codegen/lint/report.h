// What the checks work with: all files of the set-up, and where findings go. Internal to lint.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/lint/document.h"

namespace distsetup::lint {

struct Setup {
  std::vector<std::unique_ptr<Document>> documents;
  LintContext context;

  // Of the whole set-up, 0 = not known: the command line's, else what a script, accelerate's file or a manifest says.
  int64_t nodes() const;
  int64_t gpus_per_node() const;
  int64_t world() const;
  // "deepspeed", "hf", "accelerate", "lightning", or "" when nothing says who reads the DeepSpeed JSON.
  std::string consumer(const Document& deepspeed) const;
  // Version of a package: --tools, a requirements file, pip install in a script; "" = not known.
  std::string version(std::string_view package) const;
  const Document* first(FileKind kind) const;
  // The last setting of a variable in any file; nullptr: none.
  const EnvironmentSetting* environment(std::string_view name) const;
};

// -1, 0, 1 by the numbers of a version ("0.9" before "0.11").
int compare_versions(std::string_view a, std::string_view b);

struct More {
  std::string help;             // empty: the rule's own
  std::string bites;            // empty: the rule's own
  std::vector<LintEdit> edits;  // a fix that changes nothing else
  std::optional<Severity> severity;
};

class Report {
 public:
  explicit Report(const Setup& setup) : setup_(setup) {}
  void add(std::string_view code, const Document& document, Span span, std::string message, More more = {});
  std::vector<LintFinding> take() { return std::move(findings_); }

 private:
  const Setup& setup_;
  std::vector<LintFinding> findings_;
};

using Check = void (*)(const Setup&, const Document&, Report&);

// One per group of rules; each looks at the documents it knows.
void check_keys(const Setup&, const Document&, Report&);
void check_names(const Setup&, const Document&, Report&);
void check_options(const Setup&, const Document&, Report&);
void check_deepspeed(const Setup&, const Document&, Report&);
void check_deepspeed_values(const Setup&, const Document&, Report&);
void check_accelerate(const Setup&, const Document&, Report&);
void check_fsdp(const Setup&, const Document&, Report&);
void check_trainer(const Setup&, const Document&, Report&);
void check_torchtitan(const Setup&, const Document&, Report&);
void check_megatron(const Setup&, const Document&, Report&);
void check_trainers(const Setup&, const Document&, Report&);
void check_llama_stack(const Setup&, const Document&, Report&);
void check_slurm(const Setup&, const Document&, Report&);
void check_launchers(const Setup&, const Document&, Report&);
void check_kubernetes(const Setup&, const Document&, Report&);
void check_environment(const Setup&, const Document&, Report&);
void check_plan_level(const Setup&, const Document&, Report&);

}  // namespace distsetup::lint
