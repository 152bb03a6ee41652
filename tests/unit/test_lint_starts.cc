// What stops a run when it starts, and what looks like it and does not.
#include <algorithm>
#include <catch2/catch.hpp>

#include "codegen/lint/lint.h"

using namespace distsetup;

namespace {

constexpr const char* kNothing = "";

// "error", "warning", "note", or "" when the rule says nothing.
std::string said(const std::vector<LintFile>& files, const std::string& code, std::string* help = nullptr) {
  std::string out;
  for (const LintFinding& one : lint_files(files, {}).findings) {
    if (one.diagnostic.code != code) continue;
    if (help != nullptr) *help = one.diagnostic.help;
    if (one.diagnostic.severity == Severity::kError) return "error";
    if (out != "warning") out = one.diagnostic.severity == Severity::kWarning ? "warning" : "note";
  }
  return out;
}

struct Start {
  std::string code, said, path, text;
};

void check_starts(const std::vector<Start>& cases) {
  for (const Start& one : cases) {
    INFO(one.code << "\n" << one.text);
    CHECK(said({{one.path, one.text}}, one.code) == one.said);
  }
}

std::string help_of(const std::string& path, const std::string& text, const std::string& code) {
  std::string help;
  said({{path, text}}, code, &help);
  return help;
}

}  // namespace

TEST_CASE("lint starts: values that TrainingArguments refuses", "[lint]") {
  const std::string trl = "output_dir: o\npacking: true\n", own = "output_dir: o\nper_device_train_batch_size: 1\n";
  const std::string best = own + "load_best_model_at_end: true\n", steps = best + "eval_strategy: steps\nsave_strategy: steps\n";
  check_starts({{"HF008", "error", "a.yaml", trl + "lr_scheduler_type: cosin\n"},
                {"HF008", "warning", "a.yaml", own + "lr_scheduler_type: cosin\n"},  // a script may read the file
                {"HF008", "warning", "a.yaml", trl + "optim: my_optimizer\n"},       // of a later release
                {"HF008", kNothing, "a.yaml", trl + "optim: adamw_hf\n"},
                {"HF008", kNothing, "a.yaml", trl + "optim: ${OPTIM}\n"},
                {"HF009", "error", "a.yaml", steps + "save_steps: 500\neval_steps: 300\n"},
                {"HF009", kNothing, "a.yaml", steps + "save_steps: 600\neval_steps: 300\n"},
                {"HF009", kNothing, "a.yaml", steps + "save_steps: 0.2\neval_steps: 0.1\n"},
                {"HF009", kNothing, "a.yaml", steps + "save_steps: 500\n"},
                {"HF009", "error", "a.yaml", best + "evaluation_strategy: epoch\nsave_strategy: steps\n"},
                {"HF009", "error", "a.yaml", best + "eval_strategy: epoch\n"},
                {"HF009", kNothing, "a.yaml", best + "eval_strategy: epoch\nsave_strategy: best\n"},
                {"HF009", kNothing, "a.yaml", best + "save_strategy: epoch\n"},  // the command line may say it
                {"HF010", "error", "a.yaml", trl + "weight_decay: -0.1\n"},
                {"HF010", "error", "a.yaml", trl + "num_train_epochs: -3\n"},
                {"HF010", kNothing, "a.yaml", trl + "num_train_epochs: -1\nmax_steps: 10\n"},
                {"HF010", kNothing, "a.yaml", trl + "adam_beta2: 0.999\nwarmup_steps: 0.1\n"},
                {"HF010", "warning", "a.yaml", own + "adam_beta2: 1\n"}});
}

TEST_CASE("lint starts: a DeepSpeed JSON beside an argument that is left at its usual value", "[lint]") {
  const auto found = [](const std::string& named, const std::string& clipping, const std::string& more) {
    return said({{"ds.json", R"({"train_micro_batch_size_per_gpu": "auto", "gradient_clipping": )" + clipping + "}"},
                 {"args.yaml", "output_dir: o\nper_device_train_batch_size: 1\ndeepspeed: " + named + "\n" + more}},
                "HF003");
  };
  CHECK(found("conf/ds.json", "0.3", "") == "warning");
  CHECK(found("conf/ds.json", "1.0", "").empty());
  CHECK(found("conf/ds.json", "\"auto\"", "").empty());
  CHECK(found("conf/ds.json", "0.3", "max_grad_norm: 0.3\n").empty());
  CHECK(found("conf/ds.json", "0.3", "max_grad_norm: 1.0\n") == "error");
  CHECK(found("other.json", "0.3", "").empty());
}

TEST_CASE("lint starts: DeepSpeed's settings beside the flags of a script", "[lint]") {
  const std::string flags = " --output_dir o --per_device_train_batch_size 4 ", loop = "loop.py --per_device_train_batch_size 4 ",
                    saves = "--save_steps 10 --logging_steps 1 --eval_strategy no ";
  struct Case {
    std::string script, settings, said;
  };
  const auto check_all = [](const std::string& path, const std::vector<Case>& cases) {
    for (const Case& one : cases) {
      INFO(one.script << "\n" << one.settings);
      const bool is_json = path.ends_with(".json");
      const std::string settings =
          is_json ? R"({"zero_optimization": {"stage": 2}, "steps_per_print": 9, )" + one.settings + "}" : one.settings;
      CHECK(said({{"run.sh", one.script + "\n"}, {path, settings}}, "HF003") == one.said);
    }
  };
  const std::string run = "deepspeed --num_gpus 8 t.py --deepspeed conf/ds.json" + flags,
                    own = "deepspeed t.py --deepspeed_config ds.json",
                    both = R"("train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto")";
  check_all(
      "ds.json",
      {{run + "--gradient_accumulation_steps 4", R"("gradient_accumulation_steps": 8)", "error"},
       {run + "--gradient_accumulation_steps 8", R"("gradient_accumulation_steps": 8)", kNothing},
       {run + "--gradient_accumulation_steps 4", R"("gradient_accumulation_steps": "auto")", kNothing},
       {"GAS=${1:-4}\n" + run + "--gradient_accumulation_steps $GAS", R"("gradient_accumulation_steps": 8)", "warning"},
       {run + "--gradient_accumulation_steps $GAS", R"("gradient_accumulation_steps": 8)", kNothing},
       {run, R"("gradient_accumulation_steps": 8)", "warning"},  // the Trainer's is 1
       {run + "\"$@\"", R"("gradient_accumulation_steps": 8)", kNothing},
       {run + "$MORE", R"("gradient_accumulation_steps": 8)", kNothing},
       {run + "--learning_rate 1e-5", R"("optimizer": {"type": "AdamW", "params": {"lr": 1e-3}})", "error"},
       {run + "--learning_rate 1e-5", R"("scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3}})", "error"},
       {run + "--learning_rate 1e-3", R"("optimizer": {"type": "AdamW", "params": {"lr": 0.001}})", kNothing},
       {run + "--warmup_steps 0.1", R"("scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 9}})", kNothing},
       {run + "--warmup_steps 10", R"("scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 9}})", "error"},
       {run + "--auto_find_batch_size", R"("train_micro_batch_size_per_gpu": 2)", kNothing},
       {run + "--fp16 False", R"("train_micro_batch_size_per_gpu": 2)", "error"},
       {run + "--bf16", R"("bf16": {"enabled": false})", "error"},
       {run + "--bf16 True", R"("bf16": {"enabled": true})", kNothing},
       {run + "--adam_beta2 0.999", R"("optimizer": {"type": "AdamW", "params": {"betas": [0.9, 0.95]}})", "error"},
       {run + "--adam_beta2 0.95", R"("optimizer": {"type": "AdamW", "params": {"betas": [0.9, 0.95]}})", kNothing},
       {run, R"("optimizer": {"type": "AdamW", "params": {"betas": [0.9, 0.95]}})", "warning"},  // the Trainer's is 0.999
       {run + "$MORE", R"("optimizer": {"type": "AdamW", "params": {"betas": [0.9, 0.95]}})", kNothing},
       {run, R"("optimizer": {"type": "AdamW", "params": {"betas": "auto"}})", kNothing},
       {run + "--gradient_accumulation_steps 4", both, "error"},
       {"GAS=${1:-4}\n" + run + "--gradient_accumulation_steps $GAS", both, "warning"},
       {run + "--gradient_accumulation_steps 1", both, kNothing},
       {run, both, kNothing},
       {run + "--gradient_accumulation_steps 4", R"("train_micro_batch_size_per_gpu": "auto")", kNothing},  // nothing is asserted
       {run + "--num_warmup_steps 9 --gradient_accumulation_steps 4", R"("gradient_accumulation_steps": 8)", "warning"},
       {"deepspeed run_no_trainer.py --deepspeed ds.json" + flags + "--gradient_accumulation_steps 4",
        R"("gradient_accumulation_steps": 8)", "warning"},
       {run + "--gradient_accumulation_steps 4", R"("train_batch_size": 100)", "error"},
       {run + "--gradient_accumulation_steps 4", R"("train_batch_size": 256)", kNothing},  // of how many machines, nobody says
       {"torchrun --standalone --nproc_per_node 8 t.py --deepspeed ds.json" + flags + "--gradient_accumulation_steps 4",
        R"("train_batch_size": 256)", "error"},
       {"deepspeed t.py --deepspeed other.json" + flags + "--gradient_accumulation_steps 4", R"("gradient_accumulation_steps": 8)",
        kNothing},
       {own + flags + "--gradient_accumulation_steps 4", R"("gradient_accumulation_steps": 8)", kNothing}});
  const std::string file = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config: {gradient_accumulation_steps: 8}\n",
                    launch = "accelerate launch --config_file conf/a.yaml ", four = "--gradient_accumulation_steps 4";
  check_all("a.yaml", {{launch + loop + saves + four, file, "error"},
                       {launch + loop + four, file, "warning"},  // a loop of one's own may have these three
                       {launch + loop + saves + "--gradient_accumulation_steps 8", file, kNothing},
                       {launch + loop + saves, file, "warning"},
                       {launch + "--gradient_accumulation_steps 4 " + loop + saves + four, file, kNothing},
                       {launch + loop + saves + four, "distributed_type: FSDP\ngradient_accumulation_steps: 8\n", kNothing},
                       {"accelerate launch --config_file b.yaml " + loop + saves + four, file, kNothing},
                       {launch + "t.py --deepspeed other.json " + four, file, kNothing}});
  const std::string arguments = "output_dir: o\npacking: true\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 4\n";
  CHECK(said({{"a.yaml", file}, {"sft.yaml", arguments}}, "HF003") == "warning");
  CHECK(said({{"a.yaml", file}, {"sft.yaml", arguments + "deepspeed: ds.json\n"}}, "HF003").empty());
  CHECK(said({{"a.yaml", file}, {"sft.yaml", arguments}, {"run.sh", launch + "t.py sft.yaml --gradient_accumulation_steps 8\n"}},
             "HF003")
            .empty());
}

TEST_CASE("lint starts: every key that nobody is known to read is named", "[lint]") {
  const auto message = [](const std::string& path, const std::string& text, const std::string& code) {
    std::vector<std::string> out;
    for (const LintFinding& one : lint_files({{path, text}}, {}).findings) {
      if (one.diagnostic.code == code) out.push_back(one.diagnostic.message + "; " + one.diagnostic.help.substr(0, 11));
    }
    return out;
  };
  const std::string head =
      R"({"train_batch_size": 8, "gradient_clipping": 1.0, "steps_per_print": 9, "zero_optimization": {"stage": 2}, )";
  CHECK(message("ds.json", head + R"("frob": 1, "baz_qux": 2, "monitor_config": {}})", "DSJ003") ==
        std::vector<std::string>{
            "'frob' is silently ignored: DeepSpeed does not know it, nor 'baz_qux' and 'monitor_config'; remove them"});
  CHECK(message("ds.json", head + R"("frob": 1})", "DSJ003") ==
        std::vector<std::string>{"'frob' is silently ignored: DeepSpeed does not know it; remove it; "});
  CHECK(message("ds.json", head + R"("trackio": {"enabled": true}})", "DSJ003").empty());
  CHECK(message("a.yaml", "distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {fsdp_version: 2, fsdp_foo: 1, fsdp_bar: 2}\n",
                "FSDP020") ==
        std::vector<std::string>{
            "'fsdp_config.fsdp_foo' is silently ignored: accelerate does not know it, nor 'fsdp_config.fsdp_bar'; remove them"});
}

TEST_CASE("lint starts: a name of an earlier release is said with its new one", "[lint]") {
  const std::string swift =
      "#!/bin/bash\nexport OMP_NUM_THREADS=8\nNPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B --dataset x.jsonl ";
  CHECK(help_of("run.sh", swift + "--train_type full\n", "SW001") ==
        "keep to the release that it was written for, or write tuner_type for train_type");
  CHECK(help_of("run.sh", swift + "--train_type full --mini_batch_size 2\n", "SW001") ==
        "keep to the release that it was written for, or write tuner_type for train_type, and remove 'mini_batch_size' until 3.4");
  CHECK(help_of("a.json", R"({"output_dir": "o", "per_device_train_batch_size": 1, "evaluation_strategy": "steps"})", "HF006") ==
        "keep to the release that it was written for, or write eval_strategy for evaluation_strategy");
}

TEST_CASE("lint starts: accelerate's file and its command line", "[lint]") {
  const std::string head = "compute_environment: LOCAL_MACHINE\nnum_processes: 16\n",
                    deepspeed = head + "distributed_type: DEEPSPEED\n";
  const std::string two = head + "num_machines: 2\nmain_process_ip: n0\n";
  CHECK(help_of("a.yaml", deepspeed + "deepspeed_config_file: ds.json\n", "ACC010") ==
        "'deepspeed_config_file' belongs in 'deepspeed_config'");
  CHECK(help_of("a.yaml", head + "distributed_type: FSDP\nfsdp_confg: {}\n", "ACC010") == "did you mean 'fsdp_config'");
  CHECK(help_of("a.yaml", deepspeed + "deepspeed_config: conf/ds.json\n", "ACC020") ==
        "write deepspeed_config: {deepspeed_config_file: conf/ds.json}");
  check_starts({{"ACC020", kNothing, "a.yaml", deepspeed + "deepspeed_config: {}\n"},
                {"ACC020", kNothing, "a.yaml", deepspeed + "deepspeed_config:\n"},
                {"ACC020", kNothing, "a.yaml", head + "distributed_type: MULTI_GPU\ndeepspeed_config: ds.json\n"},
                {"ACC021", "error", "a.yaml", two + "distributed_type: FSDP\nmachine_rank: 2\n"},
                {"ACC021", kNothing, "a.yaml", two + "distributed_type: FSDP\nmachine_rank: 1\n"},
                {"ACC021", kNothing, "a.yaml", two + "distributed_type: DEEPSPEED\nmachine_rank: 2\n"},
                {"ACC022", "error", "a.sh", "accelerate launch --multi_gpu --use_fsdp --num_processes 8 t.py\n"},
                {"ACC022", kNothing, "a.sh", "accelerate launch --use_fsdp --num_processes 8 t.py --use_deepspeed\n"}});
  const std::string start = "accelerate launch --config_file a.yaml --machine_rank $RANK t.py\n";
  const std::string more = "accelerate launch --config_file a.yaml --num_machines 4 t.py\n";
  for (const std::string& line : {start, more})
    CHECK(said({{"a.yaml", two + "distributed_type: FSDP\nmachine_rank: 2\n"}, {"run.sh", line}}, "ACC021") == "warning");
}

TEST_CASE("lint starts: launchers, jobs and pods", "[lint]") {
  const std::string job = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n#SBATCH --ntasks-per-node=1\n";
  const std::string megatron =
      "torchrun --standalone --nproc_per_node=8 pretrain_gpt.py --micro-batch-size 4 --num-attention-heads 8 ";
  const auto pod = [](const std::string& requests, const std::string& limits) {
    return "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: t}\nspec:\n  pytorchReplicaSpecs:\n    Master:\n"
           "      replicas: 1\n      template:\n        spec:\n          hostIPC: true\n          containers:\n            - name: "
           "pytorch\n"
           "              image: i\n              command: [torchrun, --nproc_per_node=8, t.py]\n              resources: {requests: "
           "{nvidia.com/gpu: " +
           requests + "}, limits: {nvidia.com/gpu: " + limits + "}}\n";
  };
  std::string two_masters = pod("8", "8");
  const std::string verl = "torchrun --standalone --nproc_per_node=", sft = " -m verl.trainer.fsdp_sft_trainer data.train_batch_size=";
  const std::string ppo = "python3 -m verl.trainer.main_ppo data.train_batch_size=128 actor_rollout_ref.actor.ppo_mini_batch_size=";
  const auto task = [](const std::string& gpus, const std::string& nodes, const std::string& run) {
    return "name: t\nresources: {accelerators: \"H100:" + gpus + "\"}\nnum_nodes: " + nodes + "\nrun: |\n  " + run + "\n";
  };
  std::string pod_of_four = pod("2", "2");
  pod_of_four.replace(pod_of_four.find("--nproc_per_node=8, "), 20, "");
  pod_of_four.replace(pod_of_four.find("  pytorchReplicaSpecs"), 0, "  nprocPerNode: \"4\"\n");
  two_masters.replace(two_masters.find("replicas: 1"), 11, "replicas: 2");
  check_starts({{"DL002", "warning", "a.sh", "export CUDA_VISIBLE_DEVICES=0,1\ndeepspeed --include localhost:0,1 t.py\n"},
                {"DL002", kNothing, "a.sh", "CUDA_VISIBLE_DEVICES=0,1\ndeepspeed --include localhost:$CUDA_VISIBLE_DEVICES t.py\n"},
                {"DL001", "error", "a.sh", "deepspeed --num_gpus 8 --include localhost:0,1 t.py\n"},
                {"DL001", "error", "a.sh", "deepspeed --num_nodes=1 --exclude localhost:0 t.py\n"},
                {"DL001", kNothing, "a.sh", "deepspeed --include localhost:0,1 t.py --num_gpus 2\n"},
                {"SL035", "error", "j.sbatch", job + "#SBATCH --gpus=12\nsrun python t.py\n"},
                {"SL035", "error", "j.sbatch", job + "#SBATCH --gpus=8\nsrun python t.py\n"},
                {"SL035", kNothing, "j.sbatch", job + "#SBATCH --gpus=16\nsrun python t.py\n"},
                {"MEG011", "error", "a.sh", megatron + "--seq-length 4096 --max-position-embeddings 2048\n"},
                {"MEG011", kNothing, "a.sh", megatron + "--seq-length 2048 --max-position-embeddings 4096\n"},
                {"MEG011", "warning", "a.sh", "LEN=${1:-4096}\n" + megatron + "--seq-length $LEN --max-position-embeddings 2048\n"},
                {"MEG012", "note", "a.sh", megatron + "--train-iters 5000 --lr-decay-iters 320000\n"},
                {"MEG012", kNothing, "a.sh", megatron + "--train-iters 500000 --lr-decay-iters 320000\n"},
                {"MEG012", kNothing, "a.sh", megatron + "--train-iters 20 --lr-decay-iters 320000\n"},
                {"MEG012", kNothing, "a.sh", megatron + "--train-iters 5000 --lr-decay-iters 320000 --lr-decay-style WSD\n"},
                {"MEG013", "error", "a.sh", megatron + "--hidden-size 1020\n"},
                {"MEG013", kNothing, "a.sh", megatron + "--hidden-size 1024\n"},
                {"MEG013", kNothing, "a.sh", megatron + "--hidden-size 1020 --kv-channels 128\n"},
                {"MEG013", "warning", "a.sh", "H=${1:-1020}\n" + megatron + "--hidden-size $H\n"},
                {"MEG014", "error", "a.sh", megatron + "--save my model --bf16\n"},
                {"MEG014", "error", "a.sh", megatron + "--bf16 true\n"},
                {"MEG014", "warning", "a.sh", megatron + "--save my model --paint red\n"},
                {"MEG014", kNothing, "a.sh", megatron + "--save 'my model' --bf16\n"},
                {"MEG014", kNothing, "a.sh", "megatron sft --model m --micro_batch_size 1 --sequence_parallel true\n"},
                {"MEG014", kNothing, "a.sh", megatron + "--data-path 0.3 a 0.7 b --bf16\n"},
                {"MEG014", kNothing, "a.sh", megatron + "--save $OUT $MORE --bf16\n"},
                {"MEG009", "warning", "a.sh", megatron + "--checkpoint-activations\n"},
                {"MEG009", "error", "a.sh", megatron + "--checkpoint-activations --use-distributed-optimizer\n"},
                {"MEG009", kNothing, "a.sh", megatron + "--checkpoint-activations --deepspeed --deepspeed_config ds.json\n"},
                {"MEG009", kNothing, "a.sh",
                 "python -m oneflow_gpt.training --micro-batch-size 4 --num-attention-heads 8 --checkpoint-activations\n"},
                {"MEG009", kNothing, "a.sh", megatron + "--recompute-activations\n"},
                {"VRL002", "warning", "a.sh", ppo + "256\n"},
                {"VRL002", kNothing, "a.sh", ppo + "128\n"},
                {"VRL002", kNothing, "a.sh", ppo + "256 actor_rollout_ref.actor.use_dynamic_bsz=True\n"},
                {"VRL002", kNothing, "a.sh", ppo + "$MINI\n"},
                {"TR008", "error", "s.yaml", task("8", "1", "torchrun --nproc_per_node 16 t.py")},
                {"TR008", "warning", "s.yaml", task("8", "1", "torchrun --nproc_per_node 4 t.py")},
                {"TR008", kNothing, "s.yaml", task("8", "1", "torchrun --nproc_per_node 8 t.py")},
                {"TR009", "warning", "s.yaml", task("8", "2", "torchrun --nproc_per_node 8 t.py")},
                {"TR009", kNothing, "s.yaml", task("8", "1", "torchrun --nproc_per_node 8 t.py")},
                {"TR009", kNothing, "s.yaml",
                 task("8", "2", "torchrun --nproc_per_node 8 --nnodes $SKYPILOT_NUM_NODES --node_rank $SKYPILOT_NODE_RANK t.py")},
                {"TR009", "error", "s.yaml", task("8", "2", "torchrun --nproc_per_node 8 --nnodes 4 --rdzv_endpoint h:1 t.py")},
                {"TR008", "error", "k.yaml", pod_of_four},
                {"VRL001", "error", "a.sh", verl + "7" + sft + "64\n"},
                {"VRL001", kNothing, "a.sh", verl + "8" + sft + "64\n"},
                {"VRL001", "error", "a.sh", verl + "8" + sft + "64 data.micro_batch_size_per_gpu=3\n"},
                {"VRL001", kNothing, "a.sh", verl + "8" + sft + "12 ulysses_sequence_parallel_size=2\n"},
                {"VRL001", "warning", "a.sh", "N=${N:-7}\n" + verl + "$N" + sft + "64\n"},
                {"VRL001", kNothing, "a.sh", verl + "$N" + sft + "64\n"},
                {"K8S013", "error", "k.yaml", pod("2", "4")},
                {"K8S013", kNothing, "k.yaml", pod("8", "8")},
                {"TR008", "error", "k.yaml", pod("4", "4")},
                {"K8S003", kNothing, "k.yaml", pod("8", "8")},
                {"K8S003", "error", "k.yaml", two_masters}});
}

TEST_CASE("lint starts: what LLaMA-Factory and torchtitan do with a file", "[lint]") {
  const std::string factory = "stage: sft\ndo_train: true\nfinetuning_type: lora\ntemplate: llama3\ndataset: mine\noutput_dir: out\n";
  const std::string early = "[optimizer]\nearly_step_in_backward = true\n[training]\nlocal_batch_size = 1\n";
  const std::string pairs = "stage: dpp\ndo_train: true\ntemplate: llama3\nfinetuning_type: lora\ndataset: mine\noutput_dir: out\n";
  const std::string full = "stage: sft\ndo_train: true\nfinetuning_type: full\ntemplate: llama3\ndataset: mine\noutput_dir: out\n";
  const std::string stage = "do_train: true\ntemplate: llama3\nfinetuning_type: lora\ndataset: mine\noutput_dir: out\nstage: ";
  CHECK(help_of("a.yaml", pairs, "LF008") == "did you mean 'dpo'");
  check_starts({{"LF006", "error", "a.yaml", full + "quantization_bit: 4\n"},
                {"LF006", kNothing, "a.yaml", factory + "quantization_bit: 4\n"},
                {"LF006", kNothing, "a.yaml", full + "quantization_bit: null\n"},
                {"LF007", "error", "a.yaml", factory + "eval_dataset: other\nval_size: 0.1\n"},
                {"LF007", kNothing, "a.yaml", factory + "eval_dataset: other\nval_size: 0\n"},
                {"LF007", kNothing, "a.yaml", factory + "val_size: 0.1\n"},
                {"LF008", "error", "a.yaml", stage + "dpp\n"},
                {"LF008", "warning", "a.yaml", stage + "orpo\n"},
                {"LF008", kNothing, "a.yaml", stage + "kto\n"},
                {"LF008", kNothing, "a.yaml", stage + "${STAGE}\n"},
                {"LF009", "error", "a.yaml", factory + "lora_target: q_proj v_proj\n"},
                {"LF009", kNothing, "a.yaml", factory + "lora_target: q_proj, v_proj\n"},
                {"LF009", kNothing, "a.yaml", factory + "lora_target: all\n"},
                {"LF009", kNothing, "a.yaml", full + "lora_target: q_proj v_proj\n"}});
  check_starts({{"LF005", "warning", "a.yaml", factory + "model_name_or_path: ${MODEL}\n"},
                {"LF005", kNothing, "a.yaml", factory + "model_name_or_path: models/m\n"},
                {"TT008", "warning", "a.toml", early + "max_norm = 1.0\n"},
                {"TT008", kNothing, "a.toml", early + "max_norm = 0\n"},
                {"TT008", kNothing, "a.toml", early}});
}

TEST_CASE("lint starts: line ends of Windows and a byte order mark", "[lint]") {
  const std::string run = "export OMP_NUM_THREADS=8\r\ntorchrun --standalone --nproc_per_node=8 t.py\r\n";
  const std::string mark = "\xef\xbb\xbf", json = R"({"output_dir": "o", "per_device_train_batch_size": 1, "max_steps": 10})";
  const std::string deepspeed = R"({"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.0})";
  check_starts({{"FIL005", "error", "a.sh", "#!/bin/bash\r\n" + run},
                {"FIL005", "error", "j.sbatch", "#!/bin/bash\r\n#SBATCH --nodes=1\r\n#SBATCH --gpus-per-node=8\r\n" + run},
                {"FIL005", kNothing, "a.sh", "#!/bin/bash\r\nexport A=1\ntorchrun --standalone --nproc_per_node=8 t.py\n"},
                {"FIL005", kNothing, "a.yaml", "distributed_type: MULTI_GPU\r\nnum_processes: 8\r\n"},
                {"FIL006", "error", "a.json", mark + json},
                {"FIL006", kNothing, "a.json", json},
                {"FIL006", "warning", "ds.json", mark + deepspeed},
                {"FIL006", kNothing, "a.yaml", mark + "distributed_type: MULTI_GPU\nnum_processes: 8\n"}});
}

TEST_CASE("lint starts: names that nothing has: of a pod, and of a variable", "[lint]") {
  const auto indexed = [](const std::string& of_job, const std::string& of_pod, const std::string& service) {
    return "apiVersion: v1\nkind: Service\nmetadata: {name: " + service + "}\nspec: {clusterIP: None}\n---\napiVersion: batch/v1\n" +
           "kind: Job\nmetadata: {name: train}\nspec:\n  completions: 2\n  parallelism: 2\n" + of_job + "  template:\n    spec:\n" +
           of_pod + "      containers:\n      - name: main\n        image: x\n        command: [python, train.py]\n" +
           "        env: [{name: MASTER_ADDR, value: train-0.pods}]\n";
  };
  const std::string is_indexed = "  completionMode: Indexed\n";
  check_starts({{"K8S014", "error", "k.yaml", indexed(is_indexed, "", "pods")},
                {"K8S014", "error", "k.yaml", indexed(is_indexed, "      subdomain: other\n", "pods")},
                {"K8S014", "warning", "k.yaml", indexed(is_indexed, "", "elsewhere")},
                {"K8S014", kNothing, "k.yaml", indexed(is_indexed, "", "train-0")},
                {"K8S014", kNothing, "k.yaml", indexed(is_indexed, "      subdomain: pods\n", "pods")},
                {"K8S014", kNothing, "k.yaml", indexed("", "", "pods")}});
  const std::string start = "\ndeepspeed --num_nodes ${NODES} --num_gpus 8 --hostfile hosts train.py\n";
  check_starts({{"TR017", "warning", "a.sh", "NNODES=2" + start},
                {"TR017", kNothing, "a.sh", "NNODES=2\nNODES=4" + start},
                {"TR017", kNothing, "a.sh", "NNODES=2\nread NODES" + start},
                {"TR017", kNothing, "a.sh", "NNODES=2\n: ${NODES:=4}" + start},
                {"TR017", kNothing, "a.sh", "NNODES=2\nsource env.sh" + start},
                {"TR017", kNothing, "a.sh", "MACHINES=2" + start}});
  // A launcher gives each process its own ranks.
  check_starts({{"ENV007", "warning", "a.sh", "export LOCAL_RANK=0\npython train.py\n"},
                {"ENV007", kNothing, "a.sh", "export LOCAL_RANK=0\ntorchrun --nproc_per_node=8 train.py\n"},
                {"ENV007", "warning", "a.sh", "export RANK=0\nsrun python train.py\n"}});
}

TEST_CASE("lint starts: GPUs of Ray and of an operator against those of a pod", "[lint]") {
  const auto ray = [](const std::string& told, const std::string& limits) {
    return "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: r}\nspec:\n  headGroupSpec:\n    rayStartParams: {" + told +
           "}\n    template: {spec: {containers: [{name: h, image: x, resources: {limits: {" + limits + "}}}]}}\n";
  };
  const auto job = [](const std::string& processes) {
    return "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: a}\nspec:\n"
           "  runtimeRef: {name: torch-distributed}\n  trainer:\n    numNodes: 2\n    numProcPerNode: " +
           processes + "\n    resourcesPerNode: {limits: {nvidia.com/gpu: 8}}\n    command: [torchrun, train.py]\n";
  };
  check_starts({{"K8S015", "warning", "r.yaml", ray("num-gpus: '8'", "cpu: 4")},
                {"K8S015", "warning", "r.yaml", ray("num-gpus: '8'", "nvidia.com/gpu: 4")},
                {"K8S015", kNothing, "r.yaml", ray("num-gpus: '8'", "nvidia.com/gpu: 8")},
                {"K8S015", kNothing, "r.yaml", ray("num-gpus: '0'", "cpu: 4")},
                {"K8S015", kNothing, "r.yaml", ray("num-gpus: '1'", "vendor.com/vgpu: 1")},
                {"K8S015", kNothing, "r.yaml", ray("", "nvidia.com/gpu: 8")},
                {"TR008", "warning", "t.yaml", job("4")},
                {"TR008", "error", "t.yaml", job("16")},
                {"TR008", kNothing, "t.yaml", job("8")},
                {"TR008", kNothing, "t.yaml", job("auto")}});
}

TEST_CASE("lint starts: SLURM's variables are offered where SLURM is", "[lint]") {
  const std::string start = "torchrun --nnodes 2 --nproc_per_node 4 train.py\n";
  const auto pods = [](const std::string& nodes) {
    return "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec:\n  pytorchReplicaSpecs:\n    Worker:\n"
           "      replicas: 3\n      template: {spec: {containers: [{name: pytorch, image: x, command: [torchrun, --nnodes=" +
           nodes + ", --nproc_per_node=8, train.py], resources: {limits: {nvidia.com/gpu: 8}}}]}}\n";
  };
  CHECK(help_of("k.yaml", pods("2"), "TR009") == "make --nnodes 3");
  CHECK(help_of("t.yaml", "resources: {accelerators: \"H100:4\"}\nnum_nodes: 4\nrun: |\n  " + start, "TR009")
            .find("SKYPILOT_NUM_NODES") != std::string::npos);
  for (const std::string lines :
       {"#!/bin/bash\n#OAR -l host=2/gpu=4\n", "#!/bin/bash\n#flux: -N 2\n", "#!/bin/bash\n#PBS -l select=2\n"}) {
    INFO(lines);
    const std::string help = help_of("a.sh", lines + start, "TR010");
    CHECK_FALSE(help.empty());
    CHECK(help.find("SLURM") == std::string::npos);
  }
  CHECK(help_of("j.sbatch", "#!/bin/bash\n#SBATCH --nodes=2\nsrun " + start, "TR010").find("$SLURM_NODEID") != std::string::npos);
}
