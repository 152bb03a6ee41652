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

const std::vector<AmbiguousChoice>& tools() {
  constexpr const char* kStarts =
      "it starts what others have written: write ddp for one GPU, fsdp1, fsdp2 or deepspeed for several, as its configuration says; "
      "emit --target writes its files";
  static const std::vector<AmbiguousChoice> table = {
      {"trl", kStarts},
      {"axolotl", kStarts},
      {"llamafactory", kStarts},
      {"llama_factory", kStarts},
      {"ms_swift", kStarts},
      {"unsloth",
       "it is the Hugging Face Trainer with kernels of its own: write ddp --code-base unsloth, with --recompute full "
       "--offload-activations host where checkpoints are \"unsloth\""},
      {"pytorch", "it is what all of them are made of: write ddp, fsdp1 or fsdp2, or unknown for a script of your own"},
      {"lightning", "it starts what PyTorch and DeepSpeed have: write ddp, fsdp1, fsdp2 or deepspeed, as its strategy says"},
      {"torchtune", "it is FSDP2 on several GPUs: write fsdp2 --code-base torchtune, and ddp --code-base torchtune for one"},
  };
  return table;
}

const std::vector<SettingChoice>& code_bases() {
  static const std::vector<SettingChoice> table = {
      {"torchtitan", {}, "its own layers and loss", ""},
      {"transformers", {"huggingface", "hf"}, "Transformers' layers and loss", ""},
      {"axolotl", {}, "fsdp2, ddp: Transformers' layers and loss, states in the type of the weights", ""},
      {"torchtune", {}, "fsdp2, ddp: its own layers and loss, states in the type of the weights", ""},
      {"unsloth", {}, "ddp: Unsloth's layers and loss", ""},
  };
  return table;
}

// Spelled as Transformers' attn_implementation and LLaMA-Factory's flash_attn do.
const std::vector<SettingChoice>& attention_kernels() {
  static const std::vector<SettingChoice> table = {
      {"sdpa", {"auto", "torch", "default"}, "what PyTorch's scaled_dot_product_attention takes on the GPU", ""},
      {"eager", {"unfused", "math", "disabled"}, "all scores in memory", ""},
      {"flash2", {"flash_attention_2", "fa2", "flash_attn_2"}, "the package FlashAttention 2", ""},
      {"flash3", {"flash_attention_3", "fa3", "flash_attn_3"}, "FlashAttention 3, from Ampere to Hopper", ""},
      {"flash4", {"flash_attention_4", "fa4", "flash_attn_4"}, "FlashAttention 4, on Hopper and Blackwell", ""},
  };
  return table;
}

const std::vector<SettingChoice>& network_kinds() {
  static const std::vector<SettingChoice> table = {
      {"infiniband", {"ib"}, "", ""},
      {"roce", {"rdma", "slingshot"}, "Ethernet with RDMA", ""},
      {"ethernet", {"tcp", "sockets"}, "Ethernet without RDMA", ""},
      {"efa", {}, "of AWS", ""},
      {"tcpx", {}, "of Google's A3 High", ""},
      {"tcpxo", {"fastrak"}, "of Google's A3 Mega", ""},
      {"omni_path", {"opa"}, "", ""},
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
