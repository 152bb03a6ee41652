// The words behind `--`: a command of one's own, as those take it that start it. `train.py` is no program: a shell that is told to run
// it looks for it on PATH. `python3 train.py` is one, and torchrun would run it as a script named python3.
#pragma once
#include <string>
#include <vector>

namespace distsetup {

// As a shell or exec runs them: a Python script or a module (-m) by python3.
std::vector<std::string> as_command(const std::vector<std::string>& words);

// As torchrun and accelerate launch take them behind their own options, which start Python by themselves: without the interpreter, and
// with --no_python where it is another program.
std::vector<std::string> as_python_script(const std::vector<std::string>& words);

// Without a Python interpreter in front of a script or module; anything else as it is.
std::vector<std::string> without_interpreter(const std::vector<std::string>& words);

}  // namespace distsetup
