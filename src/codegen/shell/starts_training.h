// Whether a command line trains, as far as its words say it.
#pragma once
#include <vector>

#include "codegen/shell/launch_line.h"

namespace distsetup::foreign {

// "train.py --help": the program says what it takes, and ends.
bool shows_help(const LaunchLine& line);

// A launcher, or a program that is not known for something else (a server, a merge of weights): false of `srun hostname`.
bool starts_training_itself(const LaunchLine& line);
// What stands in its bash -c. `lines`: all of the script.
std::vector<const LaunchLine*> lines_inside(const ShellScript& script, const std::vector<LaunchLine>& lines, const LaunchLine& line);
// Itself or by what stands in its bash -c: the srun that counts.
bool starts_training(const ShellScript& script, const std::vector<LaunchLine>& lines, const LaunchLine& line);

// wrapper.sh python train.py: a script that is given the program it starts.
bool is_wrapper(const LaunchStage& script);

}  // namespace distsetup::foreign
