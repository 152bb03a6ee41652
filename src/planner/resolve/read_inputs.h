// What a spec names on disk, read before anything is decided: planning itself depends on its arguments alone.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "base/diagnostic.h"
#include "data/pieces.h"
#include "model/hardware.h"
#include "model/presets.h"
#include "plan/plan.h"
#include "planner/spec/spec.h"
#include "weights/adapter_folder.h"
#include "weights/folder.h"

namespace distsetup {

struct Inputs {
  std::optional<Geometry> model;                    // of a model directory
  std::string model_text;                           // its config.json, for the digest
  std::optional<Machine> machine;                   // of a machine file, as `distsetup probe` writes it
  std::string machine_text;                         // the file, for the digest
  std::optional<DataPlan> data;                     // the files of data.paths
  bool data_holds_pairs = false;                    // of preferences (a prepared set)
  int64_t data_vocabulary = 256;                    // ids of the data's tokens are below it
  std::string data_tokenizer_digest;                // of a prepared set
  std::optional<PreparedSplit> long_samples;        // of a prepared set, where some may be longer than a training sequence
  std::string own_tokenizer, own_tokenizer_digest;  // the file in the folder of the weights; "": there is none
  std::optional<SetLengths> samples;                // of a prepared data set, where epochs are asked for
  std::optional<WeightsFolder> weights;             // what the parameters start from, when published weights are asked for
  std::string unused_weights;                       // the model's directory has safetensors, and they are not asked for
  std::optional<AdapterFolder> adapter;             // what adapters start from
  Diagnostics notes;                                // files that were passed over
};
// Reads <model>/config.json when `model` is a directory or a config.json (or a model of the hub that is downloaded, and its weights
// are asked for), the headers of the weights, hardware.machine when it is a .yaml file, and scans data.paths. Relative paths start at
// the folder of the file that says them, those of flags and variables at `root`. plan.data.root becomes the absolute path that
// data.paths start from.
Result<Inputs> read_inputs(const Spec& spec, const Presets& presets, const std::string& root = ".");

// data.held_out, or its default.
int64_t held_out_every(const Spec& spec);
// What a relative path in a setting starts from: the folder of the file that says it, or `root` for flags and variables.
std::filesystem::path folder_of_setting(const Spec& spec, std::string_view setting, const std::string& root = ".");
// The directory that the setting `model.weights` or `model` names, also of a downloaded model of the hub; "": none, or a preset's
// name.
std::string folder_of_model(const Spec& spec, const std::string& root = ".");

}  // namespace distsetup
