#include "planner/replay/built_in_programs.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

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
      return program(over(*of, value), id, at);
    }
    return program_from_value(value, id, kernels_, [this](std::string_view name) { return weights(name); });
  }

 private:
  // What a file says over its base: a section replaces the base's as a whole.
  static Value over(Value base, const Value& own) {
    for (const Value::Entry& entry : own.entries) {
      if (entry.first == "base") continue;
      const auto same = std::find_if(base.entries.begin(), base.entries.end(),
                                     [&](const Value::Entry& of_base) { return of_base.first == entry.first; });
      if (same != base.entries.end()) {
        same->second = entry.second;
      } else {
        base.entries.push_back(entry);
        base.key_locations.push_back(entry.second.location);
      }
    }
    return base;
  }

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

// Each is read when it is first asked for: a plan needs one or two of them.
class BuiltInPrograms {
 public:
  // nullptr: there is none.
  const BlockProgram* find(std::string_view id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [at, fresh] = read_.try_emplace(std::string(id));
    const PresetFile* file = fresh ? find_preset(presets_, "programs", id) : nullptr;
    if (file != nullptr) at->second = read(*file);
    return at->second.get();
  }
  std::vector<std::string> ids() {
    std::vector<std::string> ids;
    for (const PresetFile& file : presets_.files)
      if (file.folder == "programs" && find(file.id) != nullptr) ids.push_back(file.id);
    return ids;
  }

 private:
  static Presets load() {
    Result<Presets> presets = load_presets();
    CHECK(presets.ok());
    return std::move(*presets);
  }
  std::unique_ptr<const BlockProgram> read(const PresetFile& file) {
    const Result<Value> value = read_preset(file);
    CHECK(value.ok(), "{}", format_diagnostics(value.diagnostics));
    if (value->find("form") != nullptr) return nullptr;  // another form of the same facts (frameworks/lifetimes.h)
    Result<BlockProgram> program = library_.program(*value, file.id, {});
    CHECK(program.ok(), "{}", format_diagnostics(program.diagnostics));
    return std::make_unique<const BlockProgram>(std::move(*program));
  }

  const Presets presets_ = load();
  ProgramLibrary library_{presets_};
  std::map<std::string, std::unique_ptr<const BlockProgram>, std::less<>> read_;
  std::mutex mutex_;
};

BuiltInPrograms& built_in_programs() {
  static BuiltInPrograms programs;
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

const BlockProgram* find_program(std::string_view id) { return built_in_programs().find(id); }

std::vector<std::string> program_ids() { return built_in_programs().ids(); }

}  // namespace distsetup::replay
