// Scripts of one's own: the file that --config or the only argument names, and what bash makes of maps, lists and loops. Each beside a
// near miss.
#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "cli/settings/read_files.h"
#include "codegen/lint/lint.h"
#include "codegen/read/read_file.h"
#include "support/file_says.h"
#include "support/temporary_directory.h"

using namespace distsetup;
namespace fs = std::filesystem;

namespace {

Result<std::vector<Reading>> read_beside(const std::string& script, const std::vector<std::pair<std::string, std::string>>& files) {
  const TemporaryDirectory folder;
  for (const auto& [name, text] : files) std::ofstream(fs::path(folder.path()) / name) << text;
  const fs::path job = fs::path(folder.path()) / "run.sh";
  std::ofstream(job) << "#!/bin/bash\n" << script;
  return read_foreign_files(embedded_templates(), {job.string()}, "", {});
}

FileSays said(const std::string& script, const std::vector<std::pair<std::string, std::string>>& files = {}) {
  INFO(script);
  Result<std::vector<Reading>> readings = read_beside(script, files);
  REQUIRE(readings.ok());
  return merged(std::move(*readings));
}

std::string reason(const std::string& script, std::string_view key) {
  for (const Reading& one : said(script).readings) {
    for (const LostKey& lost : one.lost) {
      if (lost.key == key) return lost.reason;
    }
  }
  return "";
}

size_t num_found(const std::vector<LintFile>& files, std::string_view code) {
  const LintReport report = lint_files(files, {});
  return static_cast<size_t>(std::count_if(report.findings.begin(), report.findings.end(),
                                           [&](const LintFinding& one) { return one.diagnostic.code == code; }));
}

const std::string kTrl =
    "max_length: 2048\npacking: true\nlearning_rate: 1.0e-05\nper_device_train_batch_size: 2\nmodel_name_or_path: o/m\n"
    "output_dir: out\nbf16: true\ngradient_checkpointing: true\nuse_peft: true\nlora_r: 16\n";
const std::string kTrain = "torchrun --nproc_per_node 8 sft.py --packing True --max_length 1024 --num_train_epochs 1 ";

}  // namespace

TEST_CASE("own scripts: the file that --config names is read, and the line is over it", "[read]") {
  const FileSays both = said(kTrain + "--config sft.yaml --per_device_train_batch_size 4\n", {{"sft.yaml", kTrl}});
  CHECK(both.text("micro_batch") == "4");
  CHECK(both.text("train.sequence_length") == "1024");
  CHECK(both.text("train.learning_rate") == "1e-05");
  CHECK(both.text("train.lora_rank") == "16");
  // What the line sets to something that nobody knows yet is not the file's.
  const FileSays open =
      said(kTrain + "--config sft.yaml --learning_rate \"$LR\" --per_device_train_batch_size 4\n", {{"sft.yaml", kTrl}});
  CHECK(open.text("train.learning_rate").empty());
  CHECK(open.text("train.lora_rank") == "16");
  // Of a form that nobody else has: told, and no reason to refuse the line.
  const Result<std::vector<Reading>> own = read_beside(kTrain + "--config own.yaml\n", {{"own.yaml", "paint: red\nsize: {w: 1}\n"}});
  REQUIRE(own.ok());
  CHECK(std::any_of(own.diagnostics.begin(), own.diagnostics.end(),
                    [](const Diagnostic& one) { return one.message.starts_with("the file that --config names is not read"); }));
  CHECK(merged(*own).text("hardware.gpus_per_node") == "8");
}

TEST_CASE("own scripts: a file as the only argument is one of settings, beside others it is the script's matter", "[read]") {
  const std::string arguments =
      R"({"model_name_or_path": "o/m", "output_dir": "out", "per_device_train_batch_size": 8, "num_train_epochs": 1, "fp16": true})";
  CHECK(said("deepspeed --num_gpus=8 run.py args.json\n", {{"args.json", arguments}}).text("micro_batch") == "8");
  CHECK(said("accelerate launch --num_processes 8 -m pkg.train args.json\n", {{"args.json", arguments}}).text("micro_batch") == "8");
  CHECK(said("deepspeed --num_gpus=8 run.py args.json --seed 3\n", {{"args.json", arguments}}).text("micro_batch").empty());
  CHECK(said("python prepare.py args.json; torchrun --nproc_per_node 8 train.py\n", {{"args.json", arguments}})
            .text("micro_batch")
            .empty());
  CHECK(said("deepspeed --num_gpus=8 run.py data.json args.json\n", {{"args.json", arguments}}).text("micro_batch").empty());
}

TEST_CASE("own scripts: arguments that a tool does not have are the script's, and -- ends the launcher's", "[read]") {
  CHECK(reason(kTrain + "--paint red\n", "paint").find("the script declares it") != std::string::npos);
  CHECK(reason("torchrun --nproc_per_node 8 own.py --config c.yaml --paint red\n", "paint") ==
        "no table knows the arguments of own.py");
  CHECK(reason("accelerate launch --num_processes 8 -m pkg.train\n", "m").empty());
  CHECK(reason("megatron sft --model m --tuner_type lora --expert_tensor_parallel_size 1\n", "expert_tensor_parallel_size") ==
        "ms-swift with Megatron takes it, and no plan holds it");
  const std::vector<Reading> all = said("torchrun --standalone --nproc_per_node=8 -m pkg.train -- --depth=32\n").readings;
  for (const Reading& one : all) {
    CHECK(std::none_of(one.lost.begin(), one.lost.end(), [](const LostKey& lost) { return lost.key.empty(); }));
  }
}

TEST_CASE("own scripts: entries of a map, and lists that are counted", "[read]") {
  const std::string line = "torchrun --nproc_per_node $N sft.py --packing True --num_train_epochs 1 --model_name_or_path ";
  const auto model = [&line](const std::string& lines, const std::string& value) {
    return said(lines + line + value + "\n").text("model.hub_id");
  };
  const std::string map = "N=2\ndeclare -A models\nmodels[\"small\"]=o/small\nmodels[big]=\"o/big\"\nsize=big\n";
  CHECK(model(map, "${models[$size]}") == "o/big");
  CHECK(model(map + "size=small\n", "\"${models[\"$size\"]}\"") == "o/small");
  CHECK(model("N=2\ndeclare -A models=([a]=o/a [b]=o/b)\n", "${models[b]}") == "o/b");
  CHECK(model(map, "${models[$other]}").empty());
  CHECK(model(map + "size=none\n", "${models[$size]}").empty());
  CHECK(model("N=2\nmodels[0]=o/a\n", "${models[0]}").empty());  // no map, and what else is in the list is not known

  const auto gpus = [](const std::string& lines, const std::string& value) {
    return said(lines + "torchrun --nproc_per_node " + value + " train.py\n").text("hardware.gpus_per_node");
  };
  const std::string list = "export CUDA_VISIBLE_DEVICES=2,3,4\n";
  CHECK(gpus(list + "N=$(echo \"$CUDA_VISIBLE_DEVICES\" | tr ',' '\\n' | wc -l)\n", "$N") == "3");
  CHECK(gpus(list, "$(echo $CUDA_VISIBLE_DEVICES | awk -F',' '{print NF}')") == "3");
  CHECK(gpus(list, "$(awk -F, '{ print NF }' <<< $CUDA_VISIBLE_DEVICES)") == "3");
  CHECK(gpus(list, "$(echo $CUDA_VISIBLE_DEVICES | sed 's/,/\\n/g' | wc -l)") == "3");
  // Other counts, a list of somebody else, and lines that nobody makes.
  CHECK(gpus(list, "$(echo $CUDA_VISIBLE_DEVICES | awk -F',' '{print NF-1}')").empty());
  CHECK(gpus("", "$(echo $CUDA_VISIBLE_DEVICES | tr ',' '\\n' | wc -l)").empty());
  CHECK(gpus(list, "$(echo $CUDA_VISIBLE_DEVICES | tr ',' ' ' | wc -l)").empty());
  CHECK(gpus(list, "$(echo -n $CUDA_VISIBLE_DEVICES | tr ',' '\\n' | wc -l)").empty());
}

TEST_CASE("own scripts: a number that the running script finds out is not the one for machines without it", "[read]") {
  const auto gpus = [](const std::string& lines) {
    return said(lines + "torchrun --standalone --nproc_per_node=$N train.py\n").text("hardware.gpus_per_node");
  };
  CHECK(gpus("N=$(nvidia-smi -L | wc -l)\n[ \"${N:-0}\" -lt 1 ] && N=1\n").empty());
  CHECK(gpus("N=$(nvidia-smi -L | wc -l)\nif [ $N -eq 0 ]; then N=1; fi\n").empty());
  CHECK(gpus("if command -v nvidia-smi; then N=`nvidia-smi -L | wc -l`; else N=1; fi\n").empty());
  // The other branch is the one that is taken outside a job.
  CHECK(gpus("if [ -n \"$PBS_NODEFILE\" ]; then N=$(wc -l < $PBS_NODEFILE); else N=1; fi\n") == "1");
  // Of arguments, and of the environment, the script's own number is what it runs with by itself.
  CHECK(gpus("N=$1\nif [ -z \"$N\" ]; then N=4; fi\n") == "4");
  CHECK(gpus("if [ -z \"$N\" ]; then N=4; fi\n") == "4");
  CHECK(gpus("N=$(nvidia-smi -L | wc -l)\nN=4\n") == "4");
}

TEST_CASE("own scripts: what a loop over the script's own list may set is not empty", "[read]") {
  const auto rate = [](const std::string& header) {
    return said("LR=\"\"\n" + header + " case $pair in lr) LR=\"$value\";; esac; done\n" + kTrain + "--output_dir out_$LR\n")
        .text("checkpoint.directory");
  };
  CHECK(rate("PAIRS=(a b)\nfor pair in \"${PAIRS[@]}\"; do").empty());
  CHECK(rate("for pair in \"$@\"; do") == "out_");  // read as it is started without arguments
  CHECK(rate("while [[ $# -gt 0 ]]; do pair=$1; shift;") == "out_");
}

TEST_CASE("own scripts: hosts of an LSF job by its span, and accelerate's FSDP keys without their prefix", "[read]") {
  const auto nodes = [](const std::string& lines) {
    const Result<std::vector<Reading>> readings =
        read_config(embedded_templates(), "#!/bin/bash\n#BSUB -gpu \"num=4\"\n" + lines + "python t.py\n", "j.lsf");
    REQUIRE(readings.ok());
    return merged(*readings).text("hardware.nodes");
  };
  CHECK(nodes("#BSUB -n 16\n#BSUB -R \"span[hosts=1]\"\n") == "1");
  CHECK(nodes("#BSUB -n 16\n#BSUB -R \"rusage[mem=4GB] span[ptile=8]\"\n") == "2");
  CHECK(nodes("#BSUB -n 16\n#BSUB -R \"rusage[mem=4GB]\"\n").empty());
  CHECK(nodes("#BSUB -n 15\n#BSUB -R \"span[ptile=8]\"\n").empty());
  CHECK(nodes("#BSUB -nnodes 4\n#BSUB -R \"span[ptile=8]\"\n#BSUB -n 16\n") == "4");

  const auto sharding = [](const std::string& key) {
    const Result<std::vector<Reading>> readings = read_config(
        embedded_templates(), "distributed_type: FSDP\nnum_processes: 4\nfsdp_config: {" + key + ": SHARD_GRAD_OP}\n", "a.yaml");
    REQUIRE(readings.ok());
    return merged(*readings).text("strategy.sharding");
  };
  CHECK(sharding("sharding_strategy") == "zero2");
  CHECK(sharding("fsdp_sharding_strategy") == "zero2");
}

TEST_CASE("own scripts: a batch that no number of nodes makes, with the GPUs that deepspeed is given", "[lint]") {
  const std::string file =
      "{\"train_batch_size\": 1024, \"train_micro_batch_size_per_gpu\": 128, \"gradient_accumulation_steps\": 8, "
      "\"gradient_clipping\": 1.0}";
  const auto found = [&file](const std::string& line) { return num_found({{"run.sh", line + "\n"}, {"ds.json", file}}, "PLAN002"); };
  CHECK(found("deepspeed --num_gpus=2 train.py --deepspeed_config ds.json") == 1);
  CHECK(found("deepspeed --num_gpus=1 train.py --deepspeed_config ds.json") == 0);
  CHECK(found("deepspeed --num_gpus=2 train.py --deepspeed_config other.json") == 0);
  CHECK(found("deepspeed train.py --deepspeed_config ds.json") == 0);
  CHECK(found("deepspeed --num_gpus=$N train.py --deepspeed_config ds.json") == 0);
}

TEST_CASE("own scripts: a file of comments says that it is one", "[lint]") {
  const auto message = [](const std::string& text) {
    const LintReport report = lint_files({{"job.yaml", text}}, {});
    return report.unreadable.empty() ? "" : report.unreadable[0].message;
  };
  CHECK(message("# apiVersion: v1\n\n  # kind: Pod\n") == "the file is empty, or has nothing but comments");
  CHECK(message("# apiVersion: v1\npaint: red\n") != "the file is empty, or has nothing but comments");
}

TEST_CASE("own scripts: arguments of ms-swift that are misspelt are errors, a fork's and an earlier release's are none", "[lint]") {
  const auto severity = [](const std::string& path, const std::string& text) {
    const LintReport report = lint_files({{path, text}}, {});
    REQUIRE(report.unreadable.empty());
    for (const LintFinding& one : report.findings) {
      if (one.diagnostic.code == "SW001") return std::optional<Severity>(one.diagnostic.severity);
    }
    return std::optional<Severity>();
  };
  const std::string file = "model: m\ntuner_type: lora\n", line = "swift sft --model m --tuner_type lora ";
  CHECK(severity("a.yaml", file + "lora_rnak: 8\n") == Severity::kError);
  CHECK(severity("a.sh", line + "--lora_rnak 8\n") == Severity::kError);
  CHECK(severity("a.yaml", file + "offline_paint: 8\n") == Severity::kWarning);
  CHECK(severity("a.yaml", file + "train_type: lora\n") == Severity::kNote);
  CHECK(severity("a.sh", "swift sft --model m --train_type lora --lora_rank 8\n") == Severity::kNote);
  CHECK(severity("a.sh", line + "--lora_rnak 8 --ignore_args_error true\n") != Severity::kError);
  CHECK_FALSE(severity("a.yaml", file + "lora_rank: 8\nENV: {NNODES: 2}\ndeepspeed: zero3\nvllm_mode: colocate\n"));
}

TEST_CASE("own scripts: a script behind the options of a site's command is started", "[read]") {
  const std::string train = "torchrun --nproc_per_node $1 train.py --bf16 True --num_train_epochs 1 --per_device_train_batch_size 2\n";
  const std::vector<std::pair<std::string, std::string>> inner = {{"inner.sh", train}};
  CHECK(said("rjob submit --name=a --gpu=8 -- bash inner.sh 8\n", inner).text("hardware.gpus_per_node") == "8");
  CHECK(said("rjob submit --gpu=8 -- bash -c \"torchrun --nproc_per_node 4 train.py\"\n").text("hardware.gpus_per_node") == "4");
  CHECK_FALSE(read_beside("git add -- inner.sh\n", inner).ok());
}

TEST_CASE("own scripts: a model by its id or by a name that presets know", "[read]") {
  const std::string line = "torchrun --nproc_per_node 8 own.py --lr 1e-5 ";
  CHECK(said(line + "--model_name meta-llama/Llama-3.1-8B\n").text("model.hub_id") == "meta-llama/Llama-3.1-8B");
  CHECK(said(line + "--model_name gpt2\n").text("model.hub_id") == "gpt2");
  CHECK(said(line + "--model-id Llama-3-8B\n").text("model.hub_id") == "Llama-3-8B");
  // A word of the script's own, a size of it, and a variable.
  CHECK(said(line + "--model_name mine\n").text("model.hub_id").empty());
  CHECK(said(line + "--model_name SiT-XL/2\n").text("model.hub_id").empty());
  CHECK(said(line + "--model_name $MODEL/7b\n").text("model.hub_id").empty());
}

TEST_CASE("own scripts: a parser that scripts extend is not said to stop", "[read]") {
  const std::string file = kTrl + "of_my_own: 3\n";
  const auto reason_of = [](const std::string& text) {
    Result<std::vector<Reading>> readings = read_config(embedded_templates(), text, "f.yaml", "", {});
    REQUIRE(readings.ok());
    for (const LostKey& lost : (*readings)[0].lost) {
      if (lost.key == "of_my_own") return lost.reason;
    }
    return std::string();
  };
  CHECK(reason_of(file).find("the script that reads it declares it, or stops at it") != std::string::npos);
  // LLaMA-Factory's parser is its own.
  CHECK(reason_of("stage: sft\nfinetuning_type: lora\nmodel_name_or_path: o/m\nof_my_own: 3\ntemplate: t\n")
            .find("stops at unknown keys") != std::string::npos);
  CHECK(reason("accelerate launch -m own.train --config d.yaml --my_flag 3\n", "my_flag") ==
        "no table knows the arguments of own.train");
}

TEST_CASE("own scripts: arguments that mean one thing in every script", "[read]") {
  const FileSays own = said(
      "torchrun --nproc_per_node 8 -m own.sft --hf-repo a --lr 1e-5 --per-device-batch-size 2 --sequence-length 4096 "
      "--model o/m --weight-decay 0.1 --max-grad-norm 1.0 --seed 3\n");
  CHECK(own.text("train.learning_rate") == "1e-05");
  CHECK(own.text("micro_batch") == "2");
  CHECK(own.text("train.sequence_length") == "4096");
  CHECK(own.text("model.hub_id") == "o/m");
  // Of a Trainer's script that has an lr of its own, over what the Trainer would assume.
  const std::string trainer =
      "accelerate launch own.py --per_device_train_batch_size 1 --gradient_accumulation_steps 4 --max_steps 9 ";
  CHECK(said(trainer + "--lr 2e-4 --peft_method lora\n").text("train.learning_rate") == "0.0002");
  CHECK(said(trainer + "--lr 2e-4 --peft_method lora\n").text("train.finetune") == "lora");
  CHECK(said(trainer + "--learning_rate 1e-3 --lr 2e-4\n").text("train.learning_rate") == "0.001");
  CHECK(said(trainer + "--lr $LR --peft_method ia3\n").text("train.finetune").empty());
  // A batch may be of all processes; of two micro-batches by different names neither is.
  CHECK(said("torchrun own.py --lr 1e-4 --batch-size 16\n").text("micro_batch").empty());
  CHECK(said("torchrun own.py --lr 1e-4 --per_device_train_batch_size 8 --micro_train_batch_size 2\n").text("micro_batch") != "8");
}

TEST_CASE("own scripts: GPUs that are seen, where nothing counts processes", "[read]") {
  const std::string job = "#SBATCH --nodes=1\n#SBATCH --gpus=4\n";
  const auto gpus = [](const std::string& script) { return said(script).text("derived.world"); };
  CHECK(gpus("CUDA_VISIBLE_DEVICES=0,1 llamafactory-cli train --stage sft --finetuning_type lora\n") == "2");
  CHECK(gpus("export CUDA_VISIBLE_DEVICES=0,1,2\naccelerate launch own.py --lr 1e-4\n") == "3");
  CHECK(gpus("CUDA_VISIBLE_DEVICES=3 swift sft --model o/m --lora_rank 8\n") == "1");
  CHECK(gpus("CUDA_VISIBLE_DEVICES=0,1 deepspeed own.py --lr 1e-4\n") == "2");
  CHECK(said(job + "CUDA_VISIBLE_DEVICES=2,3 accelerate launch own.py --lr 1e-4\n").text("hardware.gpus_per_node") == "2");
  // What the line counts itself, what is not exported, a program that takes one of several, two lists, none that can be counted.
  CHECK(gpus("CUDA_VISIBLE_DEVICES=0,1,2,3 accelerate launch --num_processes 2 own.py --lr 1e-4\n") == "2");
  CHECK(gpus("CUDA_VISIBLE_DEVICES=0,1\naccelerate launch own.py --lr 1e-4\n").empty());
  CHECK(gpus("CUDA_VISIBLE_DEVICES=0,1 python own.py --lr 1e-4 --bf16\n").empty());
  CHECK(gpus("export CUDA_VISIBLE_DEVICES=0\nexport CUDA_VISIBLE_DEVICES=1,2\naccelerate launch own.py --lr 1e-4\n").empty());
  CHECK(
      gpus(
          "CUDA_VISIBLE_DEVICES=0,1 accelerate launch own.py --lr 1e-4\nCUDA_VISIBLE_DEVICES=2 accelerate launch other.py --lr 1e-4\n")
          .empty());
  CHECK(gpus("CUDA_VISIBLE_DEVICES=$GPUS accelerate launch own.py --lr 1e-4\n").empty());
}

TEST_CASE("own scripts: a file of TRL's with keys of rollouts is told, and nothing assumed of it", "[read]") {
  const auto num_told = [](const std::string& text) {
    const Result<std::vector<Reading>> readings = read_config(embedded_templates(), text, "f.yaml", "", {});
    REQUIRE(readings.ok());
    return std::count_if(readings.diagnostics.begin(), readings.diagnostics.end(),
                         [](const Diagnostic& one) { return one.message.find("trains by rollouts") != std::string::npos; });
  };
  CHECK(num_told(kTrl + "num_generations: 8\n") == 1);
  CHECK(num_told(kTrl + "beta: 0.1\n") == 0);
}

TEST_CASE("own scripts: a file of keys of several tools is said to be of none", "[read]") {
  const auto message = [](const std::string& text) {
    const Result<std::vector<Reading>> readings = read_config(embedded_templates(), text, "f.yaml", "", {});
    REQUIRE_FALSE(readings.ok());
    return readings.diagnostics[0].message;
  };
  const std::string own = "aa: 1\nbb: 2\ncc: 3\ndd: 4\nee: 5\n";
  CHECK(message(own + "gradient_accumulation_steps: 1\n").find("tools have 1 of its 6 keys") != std::string::npos);
  CHECK(message(own).find("no table knows a key") != std::string::npos);
}

TEST_CASE("own scripts: few arguments beside a tool's file are that tool's", "[read]") {
  const std::string line = "torchrun --nproc_per_node 8 sft.py --config sft.yaml ";
  const auto with = [&line](const std::string& flags) { return said(line + flags + "\n", {{"sft.yaml", kTrl}}); };
  CHECK(with("--max_length 16384").text("train.sequence_length") == "16384");
  CHECK(with("--max_length 16384").text("train.learning_rate") == "1e-05");
  CHECK(with("--learning_rate 1e-4").text("train.learning_rate") == "0.0001");
  CHECK(with("--max_length 16384 --report_to wandb").text("train.sequence_length") == "16384");
  const FileSays two = with("--max_length 16384 --learning_rate 1e-4");
  CHECK(two.text("train.learning_rate") == "0.0001");
  CHECK(two.text("micro_batch") == "2");
  // Of a file of no known form they are the script's own.
  CHECK(said(line + "--max_length 16384\n", {{"sft.yaml", "paint: red\nsize: {w: 1}\n"}}).text("train.sequence_length").empty());
  const std::string own = "torchrun --nproc_per_node 4 train.py --config_file own.toml\n";
  const FileSays toml = said(own, {{"own.toml", "[training]\nnum_epochs = 4\nbatch_size = 8\n[optimizer]\npeak_lr = 3e-4\n"}});
  CHECK(toml.text("strategy.trainer").empty());
  CHECK(toml.text("hardware.gpus_per_node") == "4");
}

TEST_CASE("own scripts: usual names go over what a tool assumes", "[read]") {
  const FileSays own = said(
      "torchrun --nproc_per_node 8 train.py --learning_rate 1e-5 --mixed_precision bf16 --min_lr_ratio 0.05 --lr_scheduler_type "
      "cosine "
      "--weight_decay 0.1 --save_steps 10\n");
  CHECK(own.text("precision.compute") == "bf16");
  CHECK(own.text("train.min_learning_rate") == "5e-07");
  const std::string loop = "accelerate launch --num_processes 8 train.py --resolution 512 --learning_rate 3e-6 --train_batch_size 2 ";
  const FileSays pictures =
      said(loop + "--max_train_steps 8000 --checkpointing_steps 250 --lr_warmup_steps 20 --mixed_precision bf16\n");
  CHECK(pictures.text("train.steps") == "8000");
  CHECK(pictures.text("micro_batch") == "2");
  CHECK(pictures.text("checkpoint.every_steps") == "250");
  CHECK(said(loop + "--max_train_steps 8000\n").text("micro_batch").empty());  // of all ranks or of one: who knows
}

TEST_CASE("own scripts: files of DeepSpeed under the names that people give them", "[read]") {
  const std::string zero = R"({"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 4})";
  for (const char* flag : {"--ds_config", "--deepspeed_config", "--deepspeed-config", "--ds_config_path"}) {
    INFO(flag);
    CHECK(said("torchrun --nproc_per_node 8 train.py --seed 3 " + std::string(flag) + " z.json\n", {{"z.json", zero}})
              .text("micro_batch") == "4");
  }
  CHECK(said("deepspeed --num_gpus 8 t.py --config own.yaml --deepspeed z.json\n", {{"z.json", zero}, {"own.yaml", "paint: red\n"}})
            .text("strategy.sharding") == "zero3");
  // Written by the script itself, under a name of which a part is known when it runs.
  const std::string body = "cat <<EOF > $DS\n" + zero + "\nEOF\n";
  for (const char* name : {"$DS", "\"$DS\""})
    CHECK(said("DS=ds_$SLURM_JOB_ID.json\n" + body + "deepspeed --num_gpus 8 t.py --lr 1e-4 --deepspeed_config " + name + "\n")
              .text("strategy.sharding") == "zero3");
}

TEST_CASE("own scripts: whatever starts them", "[read]") {
  const std::string flags = " --learning_rate 1e-5 --per_device_train_batch_size 2 --num_train_epochs 1 --output_dir o\n";
  CHECK(said("${launcher} train.py" + flags).text("micro_batch") == "2");
  CHECK(said("\"$PYTHON_BIN\" train.py" + flags).text("micro_batch") == "2");
  CHECK(said("my-cli sft" + flags).text("micro_batch") == "2");
  CHECK_FALSE(read_beside("my-cli show" + flags, {}).ok());
  // One that names a model and one that does not train two models.
  const std::string one = "python train.py --model_name_or_path a/b" + flags, other = "python train.py" + flags;
  CHECK_FALSE(read_beside(one + other, {}).ok());
  CHECK(said(one + one).text("micro_batch") == "2");
}
