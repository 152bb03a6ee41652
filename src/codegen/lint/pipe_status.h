// Pipes that hide how a training ended: `torchrun train.py | tee log` ends with the status of tee.
#pragma once
#include <string_view>

#include "codegen/lint/job_script.h"

namespace distsetup::lint {

FailureRules failure_rules(const Document& d, const ShellScript& script);

// Of a job script: its own exit code is the job's. `by`: what starts the training.
void report_pipe(const JobScript& in, const ShellCommand& command, TextSpan span, std::string_view by);

// Of other scripts and of a container's command: where somebody looks at the status.
void check_pipes(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
