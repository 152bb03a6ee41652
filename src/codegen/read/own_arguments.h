// Arguments of a script of one's own that takes a tool's and may declare more of them.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/read/found.h"
#include "codegen/read/reading.h"
#include "codegen/shell/launch_line.h"
#include "codegen/tables/templates.h"

namespace distsetup {

// train.py --job.config_file q.toml --training.steps=500: until release 0.2 torchtitan takes such flags over its file.
std::optional<Result<Reading>> over_file_of_torchtitan(const TemplateSet& templates, const std::vector<FoundKey>& found,
                                                       const std::string& file);

// A file of settings, by its ending.
bool is_settings_file(std::string_view path);

// llamafactory-cli train sft.yaml, accelerate launch -m axolotl.cli.train sft.yaml: the word that names the file; nullptr: there is
// none.
const foreign::ShellWord* file_of_tool(const foreign::LaunchStage& stage, const foreign::LaunchLine& line);

// A path, or a name on the Hub; "SiT-XL/2" is a size of a script's own, and "hf-hub:a/b" a name in another library.
bool names_model(const std::string& text);

// "--lr 1e-5", "--per_device_batch_size 2", "--sequence_length 4096" of whatever table was the nearest.
void take_usual_names(Reading& reading);

// --use_lora, --enable_peft: by the name that people give such a switch.
bool switches_adapters_on(const std::vector<FoundKey>& found);

// How the model is sharded, by words that one tool alone has: --ds_stage, --use_distributed_optimizer.
void take_sharding(Reading& reading);

// The key names a file of settings, which is read where it is given too.
void name_file(LostKey& lost);

// --deepspeed_config FILE, an argument of DeepSpeed's own (deepspeed/__init__.py, _add_core_arguments), and --ds_config as scripts of
// people's own have it: a file of settings.
void name_file_of_deepspeed(Reading& reading);

// "--epochs 3", whoever declares it: how many steps they are only the data say.
void explain_epochs(LostKey& lost);

// "--model_name meta-llama/Llama-3.1-8B", "--model_name gpt2": a name that means a model wherever it stands.
void take_model(Reading& reading);

// Why what the tool does not have could not be carried over: the script declares it, or stops at it.
void explain_own_arguments(const std::string& program, Reading& reading);

}  // namespace distsetup
