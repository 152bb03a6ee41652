// What stands around a run's own settings: arguments that a script hands on, a file in front of flags, commands that hand over what
// they print, words that mean "no limit". Each beside a near miss.
#include <catch2/catch.hpp>

#include "codegen/read/read.h"
#include "codegen/read/started_scripts.h"
#include "support/file_says.h"

using namespace distsetup;

namespace {

const std::string kMegatron =
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
    "--max-position-embeddings 128 --micro-batch-size 1 --global-batch-size 1024 ";

std::string many_words(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += " w" + std::to_string(i);
  return out;
}

const foreign::OuterVariable* argument(const std::vector<foreign::StartedScript>& started, const std::string& name) {
  REQUIRE(started.size() == 1);
  for (const foreign::OuterVariable& one : started[0].given) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("around a run: a script hands on all of its arguments, or is said not to", "[read]") {
  for (const int count : {3, 200, 3000}) {
    const auto document = foreign::parse_document(embedded_templates(), "a.sh", "bash run.sh" + many_words(count) + "\n");
    REQUIRE(document.ok());
    const auto started = foreign::started_scripts(**document);
    const foreign::OuterVariable* all = argument(started, "@");
    REQUIRE(all != nullptr);
    INFO(count);
    CHECK(all->is_known == (count < 2000));
    if (all->is_known) CHECK(static_cast<int>(all->words.size()) == count);
    CHECK(argument(started, "#")->is_known == (count < 2000));
  }
}

TEST_CASE("around a run: Megatron-LM's samples over the batch are steps, however many", "[read]") {
  const FileTold told = told_of("a.sh", kMegatron + "--train-samples 488281250 --lr-warmup-samples 2048000\n");
  CHECK(told.text("train.steps") == "476837");
  CHECK(told.text("train.warmup_steps") == "2000");
  const FileTold growing =
      told_of("a.sh", kMegatron + "--rampup-batch-size 16 16 100 --train-samples 488281250 --lr-warmup-samples 2048\n");
  CHECK(growing.text("train.steps").empty());
  CHECK(growing.has_lost("lr_warmup_samples=2048: it counts samples of batches that grow"));
}

TEST_CASE("around a run: a vocabulary of a file of one's own is not GPT-2's", "[read]") {
  const auto vocabulary = [](const std::string& flags) {
    return told_of("a.sh", kMegatron + "--tokenizer-type GPT2BPETokenizer " + flags + "\n").text("model.vocabulary");
  };
  CHECK(vocabulary("") == "50257");
  CHECK(vocabulary("--vocab-file /data/gpt2-vocab.json") == "50257");
  CHECK(vocabulary("--vocab-file /data/nordic_131072/vocab.json").empty());
}

TEST_CASE("around a run: what a command hands over trains nothing, where something else does", "[read]") {
  const std::string run = "python3 -m verl.trainer.main_ppo trainer.nnodes=2 trainer.n_gpus_per_node=8\n";
  CHECK(told_of("a.sh", "IP=$(python get_host_ip.py)\n" + run).text("hardware.nodes") == "2");
  const std::string alone = "OUT=$(torchrun --nproc_per_node 4 t.py --per_device_train_batch_size 2 --output_dir x)\n";
  CHECK(told_of("a.sh", alone).text("micro_batch") == "2");
}

TEST_CASE("around a run: a YAML file in front of flags is named as theirs", "[read]") {
  const std::string line = "accelerate launch --num_processes 8 run.py recipes/sft.yaml --learning_rate 1e-5 --bf16 true ";
  CHECK(told_of("a.sh", line + "\n").has_lost("config=recipes/sft.yaml"));
  CHECK_FALSE(told_of("a.sh", "accelerate launch --num_processes 8 run.py --data_files recipes/sft.yaml --learning_rate 1e-5\n")
                  .has_lost("config=recipes/sft.yaml"));
}

TEST_CASE("around a run: a script named after a method, its arguments in a file", "[read]") {
  const auto method = [](const std::string& script) {
    return told_of("a.sh", "accelerate launch --num_processes 8 " + script + "\n").text("train.method");
  };
  CHECK(method("run_dpo.py dpo.yaml") == "dpo");
  CHECK(method("sft_train.py --config sft.yaml") == "sft");
  CHECK(method("build_dpo_pairs.py dpo.yaml").empty());
}

TEST_CASE("around a run: SLURM's words for no limit of time", "[read]") {
  const std::string job = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n#SBATCH --time=";
  for (const char* word : {"infinite", "UNLIMITED", "-1", "0"}) {
    const FileTold told = told_of("a.sh", job + word + "\nsrun torchrun t.py\n");
    INFO(word);
    CHECK(
        settings_of(told.says.fields).settings.size() ==
        settings_of(told_of("a.sh", job.substr(0, job.find("#SBATCH --time")) + "srun torchrun t.py\n").says.fields).settings.size());
  }
}

TEST_CASE("around a run: the Trainer's own precision goes over accelerate's", "[read]") {
  const std::string line =
      "accelerate launch --num_processes 8 --mixed_precision fp16 t.py --model_name_or_path a/b "
      "--per_device_train_batch_size 2 --output_dir x ";
  CHECK(told_of("a.sh", line + "--bf16 True\n").text("precision.compute") == "bf16");
  CHECK(told_of("a.sh", line + "\n").text("precision.compute") == "fp16");
}

TEST_CASE("around a run: one host of deepspeed's --include is one node", "[read]") {
  const std::string rest = " t.py --deepspeed --zero_stage 2\n";
  CHECK(told_of("a.sh", "deepspeed --include localhost:0,1" + rest).text("hardware.nodes") == "1");
  CHECK(told_of("a.sh", "deepspeed --include worker-0:0,1@worker-1:0,1" + rest).text("hardware.nodes").empty());
}

TEST_CASE("around a run: pairs without a reference model are no DPO", "[read]") {
  const std::string file =
      "model_name_or_path: a/b\nstage: dpo\ndo_train: true\nfinetuning_type: lora\ndataset: d\ntemplate: t\noutput_dir: o\n"
      "per_device_train_batch_size: 1\n";
  CHECK(told_of("a.yaml", file).text("train.method") == "dpo");
  const FileTold told = told_of("a.yaml", file + "pref_loss: orpo\n");
  REQUIRE(told.says.readings.size() == 1);
  REQUIRE(told.says.readings[0].complaints.size() == 1);
  CHECK(told.says.readings[0].complaints[0].diagnostic.message.find("without a reference model") != std::string::npos);
}

TEST_CASE("around a run: sbatch's own options go over the job's lines", "[read]") {
  const std::string job =
      "#!/bin/bash\n#SBATCH --nodes=1\nsrun torchrun --nproc_per_node 8 t.py --per_device_train_batch_size 2 --output_dir x\nEOF\n";
  CHECK(told_of("a.sh", "sbatch <<EOF\n" + job).text("hardware.nodes") == "1");
  CHECK(told_of("a.sh", "sbatch -N 4 --gres=gpu:8 <<EOF\n" + job).text("hardware.nodes") == "4");
}

TEST_CASE("around a run: a variable in a file that the script writes, which nothing sets", "[read]") {
  const auto file = [](const std::string& directory) {
    return "cat <<EOT > c.yaml\nmodel_name_or_path: a/b\noutput_dir: " + directory +
           "\nlearning_rate: 5.0e-7\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 4\nEOT\n"
           "accelerate launch --num_processes 8 run_dpo.py c.yaml\n";
  };
  CHECK(told_of("a.sh", file("out")).text("checkpoint.directory") == "out");
  const FileTold told = told_of("a.sh", file("$iteration"));
  CHECK(told.text("checkpoint.directory").empty());
  CHECK(told.has_lost("only the running script knows $iteration"));
}

TEST_CASE("around a run: Lightning's DeepSpeed file by its variable, over the script's own arguments", "[read]") {
  const std::string script =
      "export PL_DEEPSPEED_CONFIG_PATH=ds.json\ncat <<EOT > ds.json\n{\"zero_optimization\": {\"stage\": 1}, \"optimizer\": "
      "{\"type\": "
      "\"AdamW\", \"params\": {\"lr\": 1e-4}}, \"fp16\": {\"enabled\": true}}\nEOT\nsrun python t.py --trainer.devices 8 "
      "--learning_rate 1e-6\n";
  const FileTold told = told_of("a.sh", script);
  CHECK(told.text("strategy.sharding") == "zero1");
  CHECK(told.text("train.learning_rate") == "0.0001");
}

TEST_CASE("around a run: a DeepSpeed file is named, though the line says nothing else", "[read]") {
  const auto names_file = [](const std::string& flags) {
    const FileTold told = told_of("a.sh", "deepspeed --num_gpus 2 train.py " + flags + "\n");
    return std::any_of(told.says.readings.begin(), told.says.readings.end(), [](const Reading& one) {
      return std::any_of(one.lost.begin(), one.lost.end(), [](const LostKey& lost) { return lost.is_file; });
    });
  };
  CHECK(names_file("--deepspeed ds.json"));
  CHECK(names_file("--deepspeed --deepspeed_config ds.json"));
  CHECK_FALSE(names_file("--deepspeed"));
}
