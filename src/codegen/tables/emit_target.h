// Writing a target: each of its files is plan.json, a key table or a script template. Everything that is particular to a target is in
// its folder; adding one touches no C++ (templates/README.md).
#pragma once
#include <string>

#include "base/diagnostic.h"
#include "codegen/artifact.h"
#include "codegen/tables/fields.h"
#include "codegen/tables/templates.h"
#include "plan/plan.h"

namespace distsetup {

// What the files are written from. `plan` absent: files that need one (plan.json) are left out.
struct TargetInput {
  Fields fields;
  const Plan* plan = nullptr;
  std::string command;
  Location at;                         // where the user's mistakes are reported: "command line", or a file
  bool configs_only = false;           // only files that a key table writes
  const Artifacts* started = nullptr;  // files of the trainer that this target starts (target.h, `node_script`); no plan.json then
};

Result<Artifacts> emit_target(const TemplateSet& templates, const std::string& target, TargetInput input);

// One configuration file from one key table ("deepspeed/keys.yaml"); one of YAML as JSON where `path` ends in .json. YAML and TOML
// files begin with the header as a comment.
Result<Artifact> emit_table(const TemplateSet& templates, const std::string& table, const TargetInput& input, const std::string& path);

}  // namespace distsetup
