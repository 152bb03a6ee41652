// What a tool assumes where its file says nothing, switches as people write them, and files of other tools by their names.
#include <catch2/catch.hpp>
#include <ctime>
#include <map>

#include "codegen/lint/lint.h"
#include "codegen/read/document.h"
#include "codegen/read/read.h"

using namespace distsetup;

namespace {

using Expected = std::map<std::string, std::string>;  // "": no such field

std::vector<Reading> readings(const std::string& name, const std::string& text) {
  const Result<std::vector<Reading>> read = read_config(embedded_templates(), text, name);
  INFO(text);
  REQUIRE(read.ok());
  return *read;
}

std::string refusal(const std::string& name, const std::string& text) {
  const Result<std::vector<Reading>> read = read_config(embedded_templates(), text, name);
  if (!read.ok()) return read.diagnostics[0].message;
  for (const Reading& one : *read) {
    if (!one.complaints.empty()) return one.complaints[0].diagnostic.message;
  }
  return "";
}

void check(const std::string& name, const std::string& text, const Expected& expected) {
  CHECK(refusal(name, text).empty());
  const Result<ReadFields> got = merge_readings(readings(name, text));
  REQUIRE(got.ok());
  for (const auto& [field, value] : expected) {
    INFO(text << field);
    const auto it = got->find(field);
    CHECK((it == got->end() ? "" : field_text(it->second.value)) == value);
  }
}

size_t num_found(const std::string& name, const std::string& text, std::string_view code) {
  size_t count = 0;
  for (const LintFinding& one : lint_files({{name, text}}, {}).findings) count += one.diagnostic.code == code ? 1 : 0;
  return count;
}

const std::string kMegatron =
    "torchrun --nproc_per_node=8 pretrain_gpt.py --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 "
    "--max-position-embeddings 2048 --micro-batch-size 4 --global-batch-size 64 --train-iters 100 --lr 1e-4 ";

}  // namespace

TEST_CASE("assumed: a model of Megatron-LM has biases, layer norms, learned positions and an MLP of four widths", "[read]") {
  check("gpt.sh", kMegatron + "--vocab-file gpt2-vocab.json --merge-file m.txt\n",
        {{"model.feed_forward", "3072"},
         {"model.qkv_bias", "true"},
         {"model.mlp_bias", "true"},
         {"model.output_bias", "true"},
         {"model.norm", "layer"},
         {"model.activation", "gelu"},
         {"model.learned_positions", "2048"},
         {"model.vocabulary", "50257"}});
  // A gated MLP has two thirds of that, in multiples of 64: 4 · 768 · 2/3 = 2048.
  check("llama.sh",
        kMegatron + "--swiglu --disable-bias-linear --normalization RMSNorm --position-embedding-type rope --vocab-size 32000\n",
        {{"model.feed_forward", "2048"},
         {"model.qkv_bias", "false"},
         {"model.mlp_bias", "false"},
         {"model.norm", "rms"},
         {"model.activation", ""},
         {"model.learned_positions", ""},
         {"model.vocabulary", "32000"}});
  check("qwen.sh", kMegatron + "--swiglu --disable-bias-linear --add-qkv-bias --ffn-hidden-size 4864 --tokenizer-model t\n",
        {{"model.feed_forward", "4864"}, {"model.qkv_bias", "true"}, {"model.output_bias", "false"}, {"model.vocabulary", ""}});
}

TEST_CASE("assumed: what Megatron-LM switches off by itself, and layers that no plan has", "[read]") {
  const std::string one = kMegatron + "--tensor-model-parallel-size 1 --sequence-parallel\n";
  check("one.sh", one, {{"mesh.tp", "1"}, {"strategy.sequence_parallel", ""}});
  check("two.sh", kMegatron + "--tensor-model-parallel-size 2 --sequence-parallel\n",
        {{"mesh.tp", "2"}, {"strategy.sequence_parallel", "true"}});
  CHECK(num_found("one.sh", one, "MEG005") == 1);
  CHECK(num_found("some.sh", kMegatron + "--tensor-model-parallel-size $TP --sequence-parallel\n", "MEG005") == 0);
  CHECK(refusal("mamba.sh", kMegatron + "--hybrid-layer-pattern M-M*\n").find("layers differ") != std::string::npos);
  check("wsd.sh", kMegatron + "--lr-decay-style WSD --lr-wsd-decay-iters 0\n",
        {{"train.lr_schedule", "constant"}, {"train.lr_decay_steps", ""}});
  check("wsd20.sh", kMegatron + "--lr-decay-style WSD --lr-wsd-decay-iters 20\n",
        {{"train.lr_schedule", "wsd"}, {"train.lr_decay_steps", "20"}});
}

TEST_CASE("assumed: 1 and 0 are switches on a command line", "[read]") {
  const std::string run =
      "deepspeed train.py --per_device_train_batch_size 1 --num_train_epochs 1 --do_train --output_dir o --gradient_checkpointing ";
  for (const char* on : {"1", "True", "yes"}) check("r.sh", run + on + "\n", {{"recompute.policy", "full"}});
  for (const char* off : {"0", "False", "no"}) check("r.sh", run + off + "\n", {{"recompute.policy", "none"}});
}

TEST_CASE("assumed: 'auto' is called auto, and parts of DeepSpeed by what they do", "[read]") {
  const std::string text =
      R"({"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}, "bf16": {"enabled": "auto"}, "train_batch_size": "auto",
 "autotuning": {"enabled": true}, "compression_training": {"weight_quantization": {"shared_parameters": {"enabled": true}}}})";
  const std::vector<Reading> read = readings("ds.json", text);
  const ReadSettings settings = settings_of(*merge_readings(read));
  std::map<std::string, std::string> lost;
  for (const Reading& one : read) {
    for (const LostKey& key : one.lost) lost[key.key] = key.text + ": " + key.reason;
  }
  for (const LostKey& key : settings.lost) lost[key.key] = key.text + ": " + key.reason;
  size_t num_auto = 0;
  for (const auto& [key, said] : lost) {
    INFO(key << ": " << said);
    CHECK(said.find("file's own form") == std::string::npos);
    CHECK(said.find("not a key that") == std::string::npos);
    num_auto += said.compare(0, 5, "auto:") == 0 ? 1 : 0;
  }
  CHECK(num_auto >= 1);
}

TEST_CASE("assumed: steps of srun and of MPICH's mpiexec", "[read]") {
  const std::string batch = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n";
  check("j.sbatch", batch + "srun -lu torchrun --nnodes=2 --nproc_per_node=$SLURM_GPUS_PER_NODE t.py --learning_rate 1e-4\n",
        {{"hardware.nodes", "2"}, {"hardware.gpus_per_node", "4"}, {"train.learning_rate", "0.0001"}});
  // -K is one of them: a task that fails ends the step.
  CHECK(num_found("j.sbatch", batch + "srun -lK python t.py\n", "SL009") == 0);
  CHECK(num_found("j.sbatch", batch + "srun -lu python t.py\n", "SL009") == 1);
  check("m.sh", "mpiexec -n 8 --ppn 4 -l --line-buffer --cpu-bind depth python t.py --learning_rate 1e-4\n",
        {{"hardware.gpus_per_node", "4"}, {"derived.world", "8"}, {"train.learning_rate", "0.0001"}});
}

TEST_CASE("assumed: what trains nothing that a plan has is refused by name", "[read]") {
  const std::string file = "model_name_or_path: Qwen/Qwen3-4B\nfinetuning_type: lora\ntemplate: qwen\ncutoff_len: 1024\nstage: ";
  for (const char* stage : {"kto", "rm", "ppo"}) CHECK(refusal("f.yaml", file + stage + "\n").find(stage) != std::string::npos);
  check("f.yaml", file + "dpo\n", {{"train.method", "dpo"}});
}

TEST_CASE("assumed: files of other tools are told by name, with the tags of their loaders", "[read]") {
  const std::map<std::string, std::string> files = {
      {"data: !include data/pile.yaml\nmodel: {type: gpt2}\ntrainer: {tracker: {project: p}, num_train_steps: 100}\n", "Levanter"},
      {"project_name: p\nmodel: m\nteacher: {kind: dataset}\nloss_functions: [{function: kl}]\ntraining_args: {bf16: true}\n",
       "DistillKit"},
      {"model: m\nmodel_class: llm\npeft_config: {name: lora}\ndist_config: {name: fsdp2}\nlearning_rate: 1.0e-4\n",
       "LLaMA-Factory's version 1"},
      {"version: v2\ndescription: d\nbudget: b\ntasks: [{name: t, image: {beaker: i}}]\n", "Beaker"},
      {"task: llm-sft\nbase_model: m\nproject_name: p\nbackend: local\nparams: {epochs: 1}\n", "AutoTrain"},
      {"datasets: [{class_name: MegatronDataset}]\nmodel_args: {model_class: m}\ntuning_args: {tuning_method: pretraining}\n",
       "dolomite-engine"},
      {"mode: both\nalgorithm: {algorithm_type: grpo}\nmodel: {model_path: m}\nbuffer: {batch_size: 8}\nexplorer: {}\n",
       "Trinity-RFT"},
      {"dump_dir: d\nname: n\nsteps: 10\noptim: {lr: 1e-3}\ndistributed: {fsdp_type: full_shard}\nmodel: {dim: 64}\n", "Lingua"},
      {"model: {name: m}\ndataset: {path: d}\ntrainer: {dtype: bfloat16}\noptimizer: {name: adamw}\nregime: {num_steps: 5}\n",
       "fairseq2"},
      {"job: extension\nconfig: {name: n, process: [{type: sd_trainer, train: {lr: 1e-4}}]}\n", "AI Toolkit"},
      {"model: m\ntrain: true\nfine_tune_type: lora\niters: 100\nlora_parameters: {rank: 8}\n", "MLX-LM"},
  };
  for (const auto& [text, tool] : files) {
    INFO(text);
    CHECK(refusal("c.yaml", text).find(tool) != std::string::npos);
    const LintReport report = lint_files({{"c.yaml", text}}, {});
    REQUIRE_FALSE(report.unreadable.empty());
    CHECK(report.unreadable[0].message.find(tool) != std::string::npos);
  }
  CHECK(refusal("rl.toml", "[slurm]\njob_name = \"check\"\n").find("prime-rl") != std::string::npos);
  CHECK(refusal("rl.toml", "[train]\nepoch = 1\n[policy]\nmodel_name_or_path = \"m\"\n[policy.parallelism]\ntp_size = 2\n")
            .find("Cosmos-RL") != std::string::npos);
  CHECK(refusal("lora.toml", "network_module = \"networks.lora\"\ntrain_batch_size = 4\nmax_train_steps = 10\n").find("kohya") !=
        std::string::npos);
  // accelerate's loader knows no tags: there it is a mistake.
  const std::string tagged =
      "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 8\nnum_machines: !env NODES\n";
  CHECK(num_found("a.yaml", tagged, "FIL001") == 1);
  CHECK(refusal("a.yaml", tagged).find("tag") != std::string::npos);
}

TEST_CASE("assumed: lines of a job script are looked at once each", "[read]") {
  std::string text = "#!/bin/bash\n";
  for (int i = 0; i < 60000; ++i) text += "#SBATCH -D .\n";
  const std::clock_t begin = std::clock();
  readings("j.sbatch", text + "srun python t.py --learning_rate 1e-4\n");
  CHECK(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 2);
}

TEST_CASE("assumed: what looks like a secret is not printed, tokens of a vocabulary are", "[read]") {
  const auto shown = [](const std::string& key, const std::string& text) { return shown_text({key, text, "", {}}); };
  for (const char* key : {"env.HF_TOKEN", "hub-token", "env.AWS_SECRET_ACCESS_KEY", "swanlab_api_key"})
    CHECK(shown(key, "abcdef") == "(not shown)");
  CHECK(shown("env.WANDB_API_KEY", "$WANDB_API_KEY") == "$WANDB_API_KEY");
  CHECK(shown("special_tokens.pad_token", "<|end_of_text|>") == "<|end_of_text|>");
  CHECK(shown("env.TOKENIZERS_PARALLELISM", "false") == "false");
}

TEST_CASE("assumed: a stream is whole when each of its documents is", "[read]") {
  const std::string whole = "a: 1\n---\nb: 2\n", first = "a: [1\n---\nb: 2\n", second = "a: 1\n---\nb: [2\n";
  const auto is_whole = [](const std::string& text) {
    const Result<foreign::DocumentPointer> document = foreign::parse_document(embedded_templates(), "c.yaml", text);
    REQUIRE(document.value.has_value());
    return (*document)->is_whole;
  };
  CHECK(is_whole(whole));
  CHECK_FALSE(is_whole(first));
  CHECK_FALSE(is_whole(second));
}

TEST_CASE("read: the kernel of attention that a training configuration asks for is the plan's", "[read]") {
  const std::string trl =
      "model_name_or_path: a/b\noutput_dir: o\nper_device_train_batch_size: 2\nmax_length: 512\nattn_implementation: ";
  check("sft.yaml", trl + "flash_attention_2\n", {{"derived.attention", "flash2"}});
  check("sft.yaml", trl + "kernels-community/vllm-flash-attn3\n", {{"derived.attention", "flash3"}});
  check("sft.yaml", trl + "eager\n", {{"derived.attention", "eager"}});
  check("sft.yaml", trl + "flex_attention\n", {{"derived.attention", ""}});
  const std::string axolotl = "base_model: a/b\nmicro_batch_size: 2\nsequence_len: 512\ndatasets: [{path: d, type: alpaca}]\n";
  check("run.yaml", axolotl + "flash_attention: true\n", {{"derived.attention", "flash2"}});
  check("run.yaml", axolotl + "flash_attention: false\n", {{"derived.attention", ""}});
  check("run.yaml", axolotl + "attn_implementation: sdpa\n", {{"derived.attention", "sdpa"}});
  const std::string factory =
      "model_name_or_path: a/b\nstage: sft\ndo_train: true\nfinetuning_type: full\ncutoff_len: 512\nflash_attn: ";
  check("lf.yaml", factory + "fa2\n", {{"derived.attention", "flash2"}});
  check("lf.yaml", factory + "disabled\n", {{"derived.attention", "eager"}});
  check("lf.yaml", factory + "auto\n", {{"derived.attention", ""}});
}
