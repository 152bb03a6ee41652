// `values` of a file in target.yaml: fields in the forms that a script template asks for.
#pragma once
#include <string>

#include "base/diagnostic.h"
#include "base/value.h"
#include "codegen/job/script.h"
#include "codegen/tables/emit_target.h"
#include "codegen/tables/templates.h"

namespace distsetup {

// What a value is made from; mistakes of the target's files go to `diagnostics`.
struct ScriptSource {
  const TemplateSet& templates;
  const std::string& target;
  const TargetInput& input;
  Diagnostics& diagnostics;
};

// "hardware.gpus_per_node" | {list: field} | {lines: field} | {switch: condition} | {switch_not: condition} | {keys: table} |
// {manifest: field} | {manifest_list: field} | {plan_lines: true} | {files: true}
ScriptValue script_value(const ScriptSource& source, const std::string& name, const Value& from);

// {derived.single_node: true, ...}: all hold.
bool target_condition(const ScriptSource& source, const Value& map);

// A bare file name is in the target's folder; a path with a slash begins at templates/.
std::string path_of_target(const std::string& target, const std::string& path);

}  // namespace distsetup
