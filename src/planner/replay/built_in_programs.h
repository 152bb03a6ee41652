// The programs that the binary carries, and a user's own beside them.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/presets.h"
#include "planner/replay/program_file.h"

namespace distsetup::replay {

// A file of --presets DIR/programs, with the kernels that `presets` knows (DIR/kernels/torch.yaml replaces the built-in ones).
Result<std::shared_ptr<const BlockProgram>> load_program(const Presets& presets, const PresetFile& file);

// The built-in program of that id; nullptr: none.
const BlockProgram* find_program(std::string_view id);
std::vector<std::string> program_ids();

}  // namespace distsetup::replay
