// Facts by name: models, GPUs, machines (and, for other layers, programs and recipes) from presets/, as built in or from directories
// given by the user. Files are parsed when asked for, never before.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "base/value.h"
#include "model/geometry.h"
#include "model/hardware.h"

namespace distsetup {

struct PresetFile {
  std::string folder;     // "models", "families", "gpus", "machines", "programs", "recipes"
  std::string id;         // file name without .yaml
  std::string path;       // shown in messages; opened when `is_embedded` is false
  std::string_view text;  // of an embedded file
  bool is_embedded = false;
};

struct Presets {
  std::vector<PresetFile> files;  // sorted by folder and id; one file each
};

// The built-in files; then each directory in turn (DIR/models/*.yaml, DIR/gpus/*.yaml, ...), where a file with the same id replaces.
Result<Presets> load_presets(const std::vector<std::string>& directories = {});

// Ids of one folder, sorted ("sizes", an index and no model, is left out).
std::vector<std::string> preset_ids(const Presets& presets, std::string_view folder);
// Reads and parses one file.
Result<Value> read_preset(const PresetFile& file);
// Exactly this id; nullptr when there is none.
const PresetFile* find_preset(const Presets& presets, std::string_view folder, std::string_view id);

// Lookups by id, bare size ("70B"), hub id, alias or label; case-insensitive, and '-', '_', '.', ' ' count as the same or, beside a
// letter, as nothing ("Llama-3-8B" is llama3_8b). Unknown: kUnknownModel, kUnknownGpu, kUnknownMachine with the nearest name.
Result<Geometry> find_model(const Presets& presets, std::string_view name, const Location& at = {});
// {base: scratch_7b, vocabulary: 50257}: a preset with some of its keys replaced.
Result<Geometry> model_over_base(const Presets& presets, const Value& own);
// As find_model; a directory with a config.json, or the path of a config.json, is a model too.
Result<Geometry> resolve_model(const Presets& presets, const std::string& name_or_directory, const Location& at = {});

struct GpuChoice {
  int64_t count = 0;  // GPUs per node in "8xH100-80GB"; 0 = not stated
  Gpu gpu;
};
Result<GpuChoice> find_gpu(const Presets& presets, std::string_view name, const Location& at = {});
Result<Machine> find_machine(const Presets& presets, std::string_view name, const Location& at = {});

}  // namespace distsetup
