#include "planner/replay/built_in_programs.h"

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/embedded.h"
#include "base/value_yaml.h"
#include "planner/replay/kernel_file.h"
#include "planner/replay/program_file.h"

namespace distsetup::replay {
namespace {

const std::map<std::string, BlockProgram, std::less<>>& built_in_programs() {
  static const std::map<std::string, BlockProgram, std::less<>> programs = [] {
    std::shared_ptr<const KernelFile> kernels;
    std::map<std::string, BlockProgram, std::less<>> all;
    const auto parsed = [](const EmbeddedFile& file) {
      Result<Value> value = parse_yaml(file.text, file.path);
      CHECK(value.ok(), "{}", format_diagnostics(value.diagnostics));
      return std::move(*value);
    };
    for (const EmbeddedFile& file : embedded_files()) {  // kernels come before programs: sorted by path
      if (file.path == "presets/kernels/torch.yaml") {
        Result<KernelFile> read = kernels_from_value(parsed(file));
        CHECK(read.ok(), "{}", format_diagnostics(read.diagnostics));
        kernels = std::make_shared<const KernelFile>(std::move(*read));
      }
      constexpr std::string_view kFolder = "presets/programs/";
      if (!file.path.starts_with(kFolder)) continue;
      CHECK(kernels != nullptr, "no presets/kernels/torch.yaml");
      std::string id(file.path.substr(kFolder.size()));
      id.resize(id.size() - std::string_view(".yaml").size());
      const Value value = parsed(file);
      if (value.find("form") != nullptr) continue;  // another form of the same facts (frameworks/lifetimes.h)
      Result<BlockProgram> program = program_from_value(value, id, kernels);
      CHECK(program.ok(), "{}", format_diagnostics(program.diagnostics));
      all.emplace(id, std::move(*program));
    }
    return all;
  }();
  return programs;
}

}  // namespace

Result<std::shared_ptr<const BlockProgram>> load_program(const Presets& presets, const PresetFile& file) {
  const PresetFile* kernels_file = find_preset(presets, "kernels", "torch");
  if (kernels_file == nullptr)
    return error(code::kUnknownProgram, {file.path, 0, 0}, "no presets/kernels/torch.yaml beside this program");
  Result<Value> kernels_text = read_preset(*kernels_file);
  if (!kernels_text.ok()) return kernels_text.diagnostics;
  Result<KernelFile> kernels = kernels_from_value(*kernels_text);
  if (!kernels.ok()) return kernels.diagnostics;
  Result<Value> text = read_preset(file);
  if (!text.ok()) return text.diagnostics;
  Result<BlockProgram> program = program_from_value(*text, file.id, std::make_shared<const KernelFile>(std::move(*kernels)));
  if (!program.ok()) return program.diagnostics;
  return {std::make_shared<const BlockProgram>(std::move(*program)), std::move(program.diagnostics)};
}

const BlockProgram* find_program(std::string_view id) {
  const auto& programs = built_in_programs();
  const auto found = programs.find(id);
  return found == programs.end() ? nullptr : &found->second;
}

std::vector<std::string> program_ids() {
  std::vector<std::string> ids;
  for (const auto& entry : built_in_programs()) ids.push_back(entry.first);
  return ids;
}

}  // namespace distsetup::replay
