// A script under inspection, and what its sruns start. Internal to the SLURM checks.
#pragma once
#include <string_view>
#include <vector>

#include "codegen/lint/report.h"

namespace distsetup::lint {

struct JobScript {
  const Setup& setup;
  const Document& d;
  Report& report;
  const ScriptPart& part;
  bool is_batch = false;
  int64_t nodes = 0, gpus = 0;

  const ShellCommand& command(const Line& line) const { return part.script.commands[line.command]; }
  const Directive* directive(std::string_view name) const { return part.script.directive(name); }
  int64_t count(std::string_view name) const {
    const Directive* found = directive(name);
    return found == nullptr ? 0 : number(found->value).value_or(0);
  }
};

// The launcher that a line starts, itself or inside its bash -c or script; nullptr: none.
const Stage* launcher_under(const JobScript& in, const Line& line);
bool starts_training(const JobScript& in, const Line& line);

// The rules of a whole job script; `sruns` are its lines with an srun.
void check_job(const JobScript& in, const std::vector<const Line*>& sruns);

}  // namespace distsetup::lint
