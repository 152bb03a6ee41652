// Scripts of their own that a script starts, with what each of them is given. A reader that has the files follows them.
#pragma once
#include <string>
#include <vector>

#include "codegen/read/document.h"

namespace distsetup::foreign {

struct StartedScript {
  std::string path;  // as it is written
  TextSpan at;
  bool is_of_launcher = false;       // srun bash run.sh: it is what the job runs
  bool is_submitted = false;         // sbatch job.sh: a job of its own
  std::string directives;            // sbatch --nodes=4 job.sh: options that go over those of its own lines
  std::vector<OuterVariable> given;  // exported variables, and the arguments
};

// srun ./run.sh, bash run.sh 8, sbatch job.sh: of lines that run, each script once; where it is started in several ways, what all of
// them give it.
std::vector<StartedScript> started_scripts(const Document& document);

// srun bash -c "bash run.sh": a script that a text for a shell starts, which `line` hands to it.
bool starts_script_inside(const ShellScript& script, const LaunchLine& line);

// A file as the document names it, and the same below each folder that its scripts change to (cd runs && torchrun train.py --deepspeed
// ds.json): which of them is there only who has the files knows.
std::vector<std::string> possible_paths(const Document& document, const std::string& path);

// source env.sh: of lines that run, each file once, with the variables that the script sets, exported or not.
std::vector<StartedScript> sourced_scripts(const Document& document);

}  // namespace distsetup::foreign
