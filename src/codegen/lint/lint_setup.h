// The files that are linted together, and facts that no single one of them has. Internal to lint.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/lint/lint.h"
#include "codegen/read/document.h"

namespace distsetup::lint {

using namespace foreign;  // documents and scripts are what every check here is about

struct LintSetup {
  std::vector<DocumentPointer> documents;
  LintContext context;

  // Of the whole set-up, 0 = not known: the command line's, else what a script, accelerate's file or a manifest says.
  int64_t nodes() const;
  int64_t gpus_per_node() const;
  int64_t world() const;
  // "deepspeed", "hf", "accelerate", "lightning", or "" when nothing says who reads the DeepSpeed JSON.
  std::string consumer(const Document& deepspeed) const;
  // Version of a package: --tools, a requirements file, pip install in a script, or what a tool that is named so pins; "" = not known.
  std::string version(std::string_view package) const;
  std::string said_version(std::string_view package) const;
  const Document* first(std::string_view kind) const;
  // The last setting of a variable in any file; nullptr: none.
  const EnvironmentSetting* environment(std::string_view name) const;

  mutable std::map<std::string, std::string, std::less<>> versions_said;  // by package: the files are searched once for each
};

// -1, 0, 1 by the numbers of a version ("0.9" before "0.11").
int compare_versions(std::string_view a, std::string_view b);

}  // namespace distsetup::lint
