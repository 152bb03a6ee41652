// Defaults that DeepSpeed, OpenRLHF, TRL and accelerate have themselves, and words of scripts that no table knows. Each beside a near
// miss.
#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "codegen/read/read.h"
#include "support/file_says.h"

using namespace distsetup;

namespace {

// Why a key was not carried over; "": it was, or it is not there.
std::string reason(const FileSays& file, std::string_view key) {
  for (const Reading& one : file.readings) {
    for (const LostKey& lost : one.lost) {
      if (lost.key == key) return lost.reason;
    }
  }
  return "";
}

bool has_message(const Diagnostics& diagnostics, std::string_view words) {
  return std::any_of(diagnostics.begin(), diagnostics.end(),
                     [words](const Diagnostic& one) { return one.message.find(words) != std::string::npos; });
}

FileSays script(const std::string& line) { return read_together({{"a.sh", line + "\n"}}); }

FileSays deepspeed(const std::string& sections) {
  return read_together({{"ds.json", R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}, )" + sections + "}"}});
}

const std::string kOpenrlhf = "deepspeed --num_gpus 8 --module openrlhf.cli.";
const std::string kBatch = " --pretrain a/b --micro_train_batch_size 1 --train_batch_size 8 ";
const std::string kDotted = " --model.model_name_or_path a/b --train.micro_batch_size 1 --train.batch_size 8 --ds.zero_stage 2 ";

}  // namespace

TEST_CASE("defaults: an optimizer of DeepSpeed's is what its own class takes", "[read]") {
  const FileSays plain = deepspeed(R"("optimizer": {"type": "AdamW", "params": {"lr": 1e-4}})");
  CHECK(plain.text("train.weight_decay") == "0");
  CHECK(plain.text("train.beta2") == "0.999");
  const FileSays torch = deepspeed(R"("optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": true}})");
  CHECK(torch.text("train.weight_decay") == "0.01");
  const FileSays said = deepspeed(R"("optimizer": {"type": "Adam", "params": {"weight_decay": 0.1, "betas": [0.9, 0.95]}})");
  CHECK(said.text("train.weight_decay") == "0.1");
  CHECK(said.text("train.beta2") == "0.95");
  const FileSays own = deepspeed(R"("weight_decay": 0.1, "optimizer": {"type": "Adam", "params": {"lr": 1e-4}})");  // GPT-NeoX
  CHECK(own.text("train.weight_decay").empty());
  const FileSays none = deepspeed(R"("gradient_clipping": 1.0)");  // the script makes one
  CHECK(none.text("train.weight_decay").empty());
  CHECK(none.text("train.beta2").empty());
}

TEST_CASE("defaults: OpenRLHF's schedule, end and betas, and those that train_dpo alone has", "[read]") {
  const FileSays sft = script(kOpenrlhf + "train_sft" + kBatch + "--dataset x");
  CHECK(sft.text("train.lr_schedule") == "cosine");
  CHECK(sft.text("train.min_learning_rate") == "5e-07");
  CHECK(sft.text("train.beta2") == "0.95");
  CHECK(sft.text("derived.data_epochs") == "2");
  const FileSays dpo = script(kOpenrlhf + "train_dpo" + kBatch + "--dataset x --beta 0.3 --min_lr_ratio 0.2");
  CHECK(dpo.text("train.learning_rate") == "1e-05");
  CHECK(dpo.text("train.min_learning_rate") == "2e-06");
  CHECK(dpo.text("train.sequence_length") == "512");
  CHECK(dpo.text("derived.data_epochs") == "1");
  CHECK(dpo.text("options.preference_beta") == "0.3");
  const FileSays constant = script(kOpenrlhf + "train_sft" + kBatch + "--lr_scheduler constant_with_warmup --adam_betas 0.9 0.98");
  CHECK(constant.text("train.lr_schedule") == "constant");
  CHECK(constant.text("train.min_learning_rate").empty());
  CHECK(constant.text("train.beta2") == "0.98");
  const FileSays dotted = script(kOpenrlhf + "train_sft" + kDotted + "--adam.lr 1e-5 --train.max_epochs 3");
  CHECK(dotted.text("train.lr_schedule") == "cosine");
  CHECK(dotted.text("train.min_learning_rate") == "1e-06");
  CHECK(dotted.text("train.beta2") == "0.95");
  CHECK(dotted.text("train.weight_decay") == "0");
  CHECK(dotted.text("options.epochs") == "3");
}

TEST_CASE("defaults: the keys of preference pairs are train_dpo's own, and others are not", "[read]") {
  const FileSays dpo = script(kOpenrlhf + "train_dpo" + kBatch + "--chosen_key a --rejected_key b --prompt_key c --paint red");
  for (const char* key : {"chosen_key", "rejected_key", "prompt_key"}) CHECK(reason(dpo, key) == "a matter of the data: --data");
  CHECK(reason(dpo, "paint").find("the script declares it") != std::string::npos);
}

TEST_CASE("defaults: TRL's own, where its program is named for the file, and the Trainer's elsewhere", "[read]") {
  const std::string file =
      "model_name_or_path: a/b\ndataset_name: c/d\nper_device_train_batch_size: 4\nmax_length: 1024\nnum_train_epochs: 1\n";
  const auto said = [&file](const std::string& table) {
    Result<std::vector<Reading>> read = read_config(embedded_templates(), file, "a.yaml", table);
    REQUIRE(read.ok());
    return merged(std::move(*read));
  };
  CHECK(said("trl").text("precision.compute") == "bf16");
  CHECK(said("trl").text("recompute.policy") == "full");
  CHECK(said("").text("precision.compute") == "fp32");
  CHECK(said("").text("recompute.policy") == "none");
}

TEST_CASE("defaults: the learning rate of each of the Trainer's descendants", "[read]") {
  const std::string run = "torchrun --nproc_per_node 8 ",
                    end = " --model_name_or_path a/b --per_device_train_batch_size 1 --output_dir o";
  CHECK(script(run + "run_clm.py --num_train_epochs 2" + end).text("train.learning_rate") == "5e-05");
  CHECK(script(run + "run_clm.py --num_train_epochs 2 --learning_rate 1e-4" + end).text("train.learning_rate") == "0.0001");
  CHECK(script(run + "run_clm.py --num_train_epochs 2 --lr 1e-4" + end).text("train.learning_rate") == "0.0001");
  CHECK(script("accelerate launch trl/scripts/sft.py --max_length 512" + end).text("train.learning_rate") == "2e-05");
  CHECK(script("accelerate launch trl/scripts/dpo.py --max_length 512" + end).text("train.learning_rate") == "1e-06");
  CHECK(script(run + "own_sft.py --max_length 512 --num_train_epochs 2" + end).text("train.learning_rate").empty());  // of either
  // An example without a Trainer has rates of its own.
  CHECK(script(run + "run_clm_no_trainer.py --num_warmup_steps 10 --num_train_epochs 2" + end).text("train.learning_rate").empty());
}

TEST_CASE("defaults: Megatron's warm-up is a part of the iterations that the rate falls in", "[read]") {
  const std::string run = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --micro-batch-size 1 --train-iters 1000 ";
  CHECK(script(run + "--lr-warmup-fraction .01 --lr-decay-iters 800").text("train.warmup_steps") == "8");
  CHECK(script(run + "--lr-warmup-fraction .01 --lr-decay-iters 1000").text("train.warmup_steps") == "10");
  CHECK(script(run + "--lr-warmup-fraction .01 --lr-decay-iters $N").text("train.warmup_steps").empty());
}

TEST_CASE("defaults: pipeline stages of Megatron's are not interleaved unless it is told so", "[read]") {
  const std::string run =
      "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --micro-batch-size 1 --pipeline-model-parallel-size 2";
  CHECK(script(run).text("strategy.virtual_stages") == "1");
  CHECK(script(run + " --num-virtual-stages-per-pipeline-rank 2").text("strategy.virtual_stages") == "2");
  CHECK(script(run + " --num-layers-per-virtual-pipeline-stage 2").text("strategy.virtual_stages") != "1");
}

// megatron/training/arguments.py: gradients are summed in fp32 unless one of two flags says otherwise; the loss is fused where it is
// asked for, by PyTorch's compiler unless it is to be Transformer Engine's kernel.
TEST_CASE("defaults: Megatron-LM's gradients and its loss", "[read]") {
  const std::string run = "torchrun pretrain_gpt.py --num-layers 32 --hidden-size 4096 --tensor-model-parallel-size 1 --bf16 ";
  CHECK(script(run + "--main-grads-dtype bf16 --use-precision-aware-optimizer").text("precision.reduce") == "bf16");
  CHECK(script(run + "--grad-reduce-in-bf16").text("precision.reduce") == "bf16");
  CHECK(script(run).text("precision.reduce") != "bf16");
  CHECK(script(run).text("strategy.loss_head") == "eager");
  CHECK(script(run + "--cross-entropy-loss-fusion").text("strategy.loss_head") == "compiled");
  CHECK(script(run + "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te").text("strategy.loss_head") == "fused");
}

TEST_CASE("defaults: what TRL's commands hand on to accelerate", "[read]") {
  const std::string run = "trl sft --model_name_or_path a/b --per_device_train_batch_size 4 --max_length 512 ";
  const FileSays named = script(run + "--num_processes 4 --accelerate_config zero3");
  CHECK(named.text("strategy.sharding") == "zero3");
  CHECK(named.text("strategy.trainer") == "deepspeed");
  CHECK(named.text("derived.world") == "4");
  CHECK(script(run + "--accelerate_config fsdp2").text("derived.world") == "8");
  CHECK(script(run + "--accelerate_config fsdp2").text("strategy.trainer") == "fsdp2");
  CHECK(reason(script(run + "--accelerate_config own.yaml"), "accelerate_config").find("file of its own") != std::string::npos);
  CHECK(script(run).text("derived.world").empty());
}

TEST_CASE("defaults: what Axolotl's command hands on to its launcher", "[read]") {
  const FileSays torch = script("axolotl train a.yaml --launcher torchrun -- --nproc_per_node=8 --nnodes=2");
  CHECK(torch.text("hardware.gpus_per_node") == "8");
  CHECK(torch.text("hardware.nodes") == "2");
  CHECK(script("axolotl train a.yaml --nproc_per_node=8").text("hardware.gpus_per_node").empty());
}

TEST_CASE("defaults: Transformers' schedule ends at 0 in a script of one's own, too", "[read]") {
  const std::string run = "accelerate launch own/finetune.py --with_tracking --per_device_train_batch_size 1 --learning_rate 2e-5 ";
  CHECK(script(run + "--lr_scheduler_type linear").text("train.min_learning_rate") == "0");
  CHECK(script(run + "--lr_schedule linear").text("train.min_learning_rate").empty());
}

TEST_CASE("defaults: a gated unit by a fork's own argument is gated", "[read]") {
  const std::string run =
      "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --micro-batch-size 1 --hidden-size 64 --num-attention-heads 2 ";
  CHECK(script(run + "--activation swiglu").text("model.gated_mlp") == "true");
  CHECK(script(run + "--activation gelu").text("model.gated_mlp") == "false");
}

TEST_CASE("defaults: what SkyRL trains by", "[read]") {
  CHECK(reason(script("torchrun --nproc_per_node=4 mnist_ddp.py --epochs=100 --batch-size 4"), "epochs").find("--steps") !=
        std::string::npos);
  const auto warns = [](const std::string& program) {
    const Result<std::vector<Reading>> read =
        read_config(embedded_templates(), "uv run -m " + program + " trainer.strategy=fsdp2 trainer.train_batch_size=8\n", "a.sh");
    REQUIRE(read.ok());
    return has_message(read.diagnostics, "trains by rollouts");
  };
  CHECK(warns("skyrl.train.entrypoints.main_base"));
  CHECK_FALSE(warns("own.train.main_base"));
}

TEST_CASE("defaults: a Trainer's bf16 is over accelerate's mixed_precision, and its silence is not", "[read]") {
  const std::string launch = "distributed_type: MULTI_GPU\nnum_processes: 4\nnum_machines: 1\nmixed_precision: ";
  const std::string run = "accelerate launch train.py --output_dir out --per_device_train_batch_size 1 --learning_rate 1e-4";
  const auto both = [&](const std::string& precision, const std::string& words) {
    return read_together({{"accelerate.yaml", launch + precision + "\n"}, {"a.sh", run + words + "\n"}}).text("precision.compute");
  };
  CHECK(both("'no'", " --bf16 True") == "bf16");
  CHECK(both("'no'", "") == "fp32");
  CHECK(both("bf16", "") == "bf16");
}

TEST_CASE("defaults: the exchange of a context axis is accelerate's, and nothing without one", "[read]") {
  const auto file = [](const std::string& cp) {
    return read_together({{"a.yaml",
                           "distributed_type: FSDP\nnum_processes: 4\nnum_machines: 1\nfsdp_config:\n  fsdp_version: 2\n"
                           "  fsdp_reshard_after_forward: true\nparallelism_config:\n  parallelism_config_dp_shard_size: 1\n" +
                               cp}});
  };
  const std::string size = "  parallelism_config_cp_size: ", strategy = "  parallelism_config_cp_comm_strategy: ";
  CHECK(file(size + "4\n").text("strategy.cp_method") == "allgather");
  CHECK(file(size + "4\n" + strategy + "alltoall\n").text("strategy.cp_method") == "ring");
  CHECK(file(size + "1\n").text("strategy.cp_method").empty());
  // Which version of FSDP it is the trainer says.
  for (const LostKey& lost : settings_of(file(size + "4\n").fields).lost) CHECK(lost.text != "2");
}

TEST_CASE("defaults: a value where a section stands is told as that", "[read]") {
  const FileSays file =
      read_together({{"ds.json", R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": )"
                                 R"({"stage": 3, "offload_param": false, "offload_parameter": {"device": "cpu"}}})"}});
  CHECK(reason(file, "zero_optimization.offload_param") == "expected a section");
  CHECK(reason(file, "zero_optimization.offload_parameter.device").find("not a key that DeepSpeed") != std::string::npos);
}

TEST_CASE("defaults: Megatron's sharded optimizer is one in whatever script, and adapters need to be said", "[read]") {
  const std::string own = "torchrun --nproc_per_node 8 own.py --seq-length 4096 --micro-batch-size 1 --lr 1e-4 --paint red ";
  CHECK(script(own + "--use-distributed-optimizer").text("strategy.sharding") == "zero1");
  CHECK(script(own).text("strategy.sharding").empty());
  CHECK(script(own + "--use-distributed-optimizer --use-megatron-fsdp").text("strategy.sharding") == "zero3");
  const std::string tune = "torchrun --nproc_per_node 4 tune.py --model_id a/b --lr 2e-4 --lora_r 16 --lora_alpha 32 ";
  CHECK(script(tune).text("train.lora_alpha").empty());
  CHECK(reason(script(tune), "lora_alpha") == "no table knows the arguments of tune.py");
  CHECK(script(tune + "--use_lora").text("train.lora_alpha") == "32");
  CHECK(script(tune + "--use_lora").text("train.lora_rank") == "16");
}

TEST_CASE("defaults: words behind the one value of an option are told, and those of a list are its own", "[read]") {
  const std::string megatron =
      "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --hidden-size 512 --num-attention-heads 8 --micro-batch-size 1 ";
  const FileSays cut = script(megatron + "--save my model path --bf16");
  CHECK(cut.text("checkpoint.directory") == "my");
  CHECK(reason(cut, "save").starts_with("words behind its value"));
  CHECK(reason(script(megatron + "--save 'my model path' --bf16"), "save").empty());
  CHECK(reason(read_together({{"a.sh", megatron + "--save out \\"}}), "save").empty());  // bash drops the last backslash of a file
  CHECK(reason(script(kOpenrlhf + "train_sft" + kBatch + "--adam_betas 0.9 0.95"), "adam_betas").empty());
}
