// A target: a folder of templates with a target.yaml that lists the files it writes and where their values come from.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "codegen/codegen.h"
#include "codegen/tables/fields.h"
#include "codegen/tables/key_table.h"

namespace distsetup {

// What one emit works on. `plan` absent: files that need one (plan.json) are left out.
struct Source {
  Fields fields;
  const Plan* plan = nullptr;
  std::string command;
  Location at;                // where the user's mistakes are reported: "command line", or a file
  bool configs_only = false;  // only files that a key table writes
};

Result<Artifacts> emit_target(const TemplateSet& templates, const std::string& target, Source source);

// A table with those that it includes; read once for a set of templates.
Result<std::shared_ptr<const KeyTable>> load_key_table(const TemplateSet& templates, const std::string& path, const Location& at);

// One configuration file from one key table ("deepspeed/keys.yaml"). YAML files begin with the header as a comment.
Result<Artifact> emit_table(const TemplateSet& templates, const std::string& table, const Source& source, const std::string& path);

// '#' lines: version, digest of what the files follow from, the command, the arithmetic of the plan. No final newline.
std::string header(const Source& source);

// The job.* fields, checked. With a plan, nodes and GPUs are the plan's.
Result<Fields> job_fields(const JobOptions& options, Fields fields, const Plan* plan);

}  // namespace distsetup
