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
  std::vector<OuterVariable> given;  // exported variables, and the arguments
};

// srun ./run.sh, bash run.sh 8: of lines that run, each script once; where it is started in several ways, what all of
// them give it.
std::vector<StartedScript> started_scripts(const Document& document);

// srun bash -c "bash run.sh": a script that a text for a shell starts, which `line` hands to it.
bool starts_script_inside(const ShellScript& script, const LaunchLine& line);

// source env.sh: of lines that run, each file once, with the variables that the script sets, exported or not.
std::vector<StartedScript> sourced_scripts(const Document& document);

}  // namespace distsetup::foreign
