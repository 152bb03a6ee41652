// Programs that start the rest of their line on the same node: containers, environments, limits. And words of a line that start
// nothing.
#pragma once
#include <string_view>
#include <vector>

#include "codegen/shell/shell.h"

namespace distsetup::foreign {

bool starts_rest_of_line(std::string_view word);

// find out/deepspeed -name x: a folder of a launcher's name starts nothing.
bool handles_files(const std::vector<ShellWord>& words);

// uv run --with deepspeed accelerate launch: a package or an interpreter that the environment gets.
bool is_value_of_uv(const std::vector<ShellWord>& words, size_t at);

// uv run -m verl.trainer.main_ppo: python -m (uv's reference, --module). `at`: of the module's name.
bool is_module_of_uv(const std::vector<ShellWord>& words, size_t at);

// The "--" of `submit.py --gpus 8 -- torchrun train.py`, behind which stands what a script hands on.
bool hands_on_program(const std::vector<ShellWord>& words, size_t at);

}  // namespace distsetup::foreign
