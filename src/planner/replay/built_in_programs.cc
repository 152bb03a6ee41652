#include "planner/replay/built_in_programs.h"

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "planner/replay/kernel_file.h"
#include "planner/replay/program_file.h"

namespace distsetup::replay {
namespace {

// What programs refer to, read when the first of them asks.
class ProgramLibrary {
 public:
  explicit ProgramLibrary(const Presets& presets) : presets_(presets) {}

  Result<BlockProgram> program(const Value& value, const std::string& id, const Location& at) {
    if (kernels_ == nullptr) {
      const PresetFile* file = find_preset(presets_, "kernels", "torch");
      if (file == nullptr) return error(code::kUnknownProgram, at, "no presets/kernels/torch.yaml beside this program");
      const Result<Value> text = read_preset(*file);
      if (!text.ok()) return text.diagnostics;
      Result<KernelFile> kernels = kernels_from_value(*text);
      if (!kernels.ok()) return kernels.diagnostics;
      kernels_ = std::make_shared<const KernelFile>(std::move(*kernels));
    }
    if (const Value* base = value.find("base")) {
      const PresetFile* file = find_preset(presets_, "programs", base->text);
      if (file == nullptr) return error(code::kUnknownProgram, base->location, "no presets/programs/" + base->text + ".yaml");
      const Result<Value> of = read_preset(*file);
      if (!of.ok() || of->find("base") != nullptr) return error(code::kUnknownProgram, base->location, "not a program of its own");
      return program(*of, id, at);
    }
    return program_from_value(value, id, kernels_, [this](std::string_view name) { return weights(name); });
  }

 private:
  const Value* weights(std::string_view name) {
    const auto [it, fresh] = weights_.try_emplace(std::string(name));
    const PresetFile* file = fresh ? find_preset(presets_, "weights", name) : nullptr;
    if (file != nullptr) {
      Result<Value> table = read_preset(*file);
      if (table.ok()) it->second = std::move(*table);
    }
    return it->second.kind == Value::Kind::kMap ? &it->second : nullptr;
  }

  const Presets& presets_;
  std::shared_ptr<const KernelFile> kernels_;
  std::map<std::string, Value> weights_;
};

const std::map<std::string, BlockProgram, std::less<>>& built_in_programs() {
  static const std::map<std::string, BlockProgram, std::less<>> programs = [] {
    const Result<Presets> presets = load_presets();
    CHECK(presets.ok());
    ProgramLibrary library(*presets);
    std::map<std::string, BlockProgram, std::less<>> all;
    for (const PresetFile& file : presets->files) {
      if (file.folder != "programs") continue;
      const Result<Value> value = read_preset(file);
      CHECK(value.ok(), "{}", format_diagnostics(value.diagnostics));
      if (value->find("form") != nullptr) continue;  // another form of the same facts (frameworks/lifetimes.h)
      Result<BlockProgram> program = library.program(*value, file.id, {});
      CHECK(program.ok(), "{}", format_diagnostics(program.diagnostics));
      all.emplace(file.id, std::move(*program));
    }
    return all;
  }();
  return programs;
}

}  // namespace

Result<std::shared_ptr<const BlockProgram>> load_program(const Presets& presets, const PresetFile& file) {
  const Result<Value> text = read_preset(file);
  if (!text.ok()) return text.diagnostics;
  Result<BlockProgram> program = ProgramLibrary(presets).program(*text, file.id, {file.path, 0, 0});
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
