#include "planner/spec/run_choices.h"

#include "plan/plan.h"

namespace distsetup {

const std::vector<SettingChoice>& trainers() {
  static const std::vector<SettingChoice> table = {
      {kNative, {"distsetup", "distsetup_train"}, "the bundled trainer", ""},
      {"fsdp2", {"torchtitan"}, "PyTorch FSDP2 as in torchtitan", ""},
      {"fsdp1", {"accelerate", "hf", "transformers"}, "PyTorch FSDP1 under the Hugging Face Trainer", ""},
      {"deepspeed", {"zero"}, "DeepSpeed under the Hugging Face Trainer", ""},
      {"megatron", {"megatron_lm", "nemo", "megatron_bridge"}, "Megatron-Core with Transformer Engine", ""},
      {"ddp", {"torch_ddp"}, "PyTorch DistributedDataParallel", ""},
      {"unknown", {"own_script"}, "a training script of your own: PyTorch FSDP2, eager modules", ""},
  };
  return table;
}

const std::vector<SettingChoice>& offload_places() {
  static const std::vector<SettingChoice> table = {
      {"none", {"no", "false", "off"}, "on the device", ""},
      {"host", {"cpu", "true", "yes", "on"}, "in host memory", ""},
      {"nvme", {"disk"}, "on a local disk", ""},
  };
  return table;
}

const std::vector<SettingChoice>& nan_answers() {
  static const std::vector<SettingChoice> table = {
      {kStop, {"error"}, "the run ends", ""},
      {kSkip, {}, "parameters and moments stay as they are in that step", ""},
  };
  return table;
}

const std::vector<SettingChoice>& spike_answers() {
  static const std::vector<SettingChoice> table = {
      {kIgnore, {"none", "off", "no"}, "nothing is compared", ""},
      {kNote, {"warn"}, "it is said and recorded", ""},
      {kSkip, {}, "parameters and moments stay as they are in that step", ""},
      {kStop, {"error"}, "the run ends", ""},
  };
  return table;
}

}  // namespace distsetup
