// Tools whose own command starts a launcher by itself.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "codegen/shell/launch_line.h"

namespace distsetup::foreign {

// swift sft, megatron pt: ms-swift's two commands with a task that trains.
bool is_swift(const std::vector<ShellWord>& words, size_t at);

// The variable as a command's word `at` sees it: in front of the command, exported before it, or of the container.
bool variable_in_environment(const ShellScript& script, size_t command, size_t at, std::string_view name, LaunchOption& out);

// What the tool at word `at` starts because variables say of how many processes.
std::optional<LaunchStage> launcher_of_tool(const ShellScript& script, size_t command, size_t at);

// What the tool starts by its own options, which are taken out of `tool`; options behind a "--" are added by who reads them.
std::optional<LaunchStage> launcher_of_options(LaunchStage& tool);

}  // namespace distsetup::foreign
