// Files as people have them: what their tools make of them is read, what is left to somebody else is left open, and a strategy that is
// not understood is refused.
#include <catch2/catch.hpp>
#include <map>

#include "codegen/read/read.h"

using namespace distsetup;

namespace {

struct PublicFile {
  std::string name, text;
  std::map<std::string, std::string> fields;  // expected; "": none
};

std::vector<Reading> read_public(const PublicFile& file) {
  const Result<std::vector<Reading>> read = read_config(embedded_templates(), file.text, file.name);
  INFO(file.text);
  REQUIRE(read.ok());
  return *read;
}

std::string refusal(const PublicFile& file) {
  for (const Reading& one : read_public(file)) {
    for (const Complaint& complaint : one.complaints) {
      if (complaint.diagnostic.severity == Severity::kError) return complaint.diagnostic.message;
    }
  }
  return "";
}

void check_fields(const std::vector<PublicFile>& files) {
  for (const PublicFile& file : files) {
    const Result<ReadFields> got = merge_readings(read_public(file));
    REQUIRE(got.ok());
    CHECK(refusal(file).empty());
    for (const auto& [field, expected] : file.fields) {
      INFO(file.text << field);
      const auto it = got->find(field);
      CHECK((it == got->end() ? "" : field_text(it->second.value)) == expected);
    }
  }
}

const std::string kAccelerate = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 8\n";

}  // namespace

TEST_CASE("public files: accelerate's file says ZeRO by itself, or names a JSON") {
  check_fields({
      {"a.yaml",
       kAccelerate +
           "mixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 3\n  zero3_init_flag: true\n  offload_optimizer_device: cpu\n"
           "  offload_param_device: none\n  gradient_accumulation_steps: 4\n  gradient_clipping: 0.5\n",
       {{"strategy.trainer", "deepspeed"},
        {"strategy.sharding", "zero3"},
        {"precision.compute", "bf16"},
        {"offload.optimizer", "host"},
        {"offload.parameters", "none"},
        {"gradient_accumulation", "4"},
        {"train.grad_clip", "0.5"}}},
      {"a.yaml",
       kAccelerate + "deepspeed_config:\n  zero_stage: 2\n  zero3_init_flag: true\n",
       {{"strategy.sharding", "zero2"}, {"precision.compute", "fp32"}}},
      {"a.yaml", kAccelerate + "deepspeed_config:\n  zero3_init_flag: false\n", {{"strategy.sharding", "zero2"}}},  // its default
      {"a.yaml",
       kAccelerate + "deepspeed_config:\n  deepspeed_config_file: not_here.json\n  zero3_init_flag: true\n",
       {{"strategy.trainer", "deepspeed"}, {"strategy.sharding", ""}, {"precision.compute", ""}}},
      {"a.yaml",
       kAccelerate + "deepspeed_config: {zero_stage: 3}\nparallelism_config:\n  parallelism_config_dp_shard_size: 4\n"
                     "  parallelism_config_sp_size: 2\n  parallelism_config_sp_backend: deepspeed\n",
       {{"mesh.cp", "2"}, {"strategy.cp_method", "ulysses"}, {"mesh.dp_shard", "4"}}},
      {"a.yaml", "distributed_type: MULTI_NPU\nnum_processes: 8\n", {{"strategy.sharding", "ddp"}}},
  });
}

TEST_CASE("public files: a strategy that is not understood is refused") {
  CHECK(refusal({"a.yaml", "distributed_type: MEGATRON_LM\nnum_processes: 8\nmixed_precision: bf16\n", {}})
            .find("'distributed_type' is 'MEGATRON_LM', which chooses how the model is sharded") == 0);
  CHECK_FALSE(refusal({"a.yaml", "distributed_type: SOMETHING\nnum_processes: 8\n", {}}).empty());
  CHECK_FALSE(refusal({"a.yaml", kAccelerate + "deepspeed_config:\n  zero_stage: 4\n", {}}).empty());
  CHECK_FALSE(refusal({"d.json", "{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 4}}", {}}).empty());
  CHECK_FALSE(refusal({"a.yaml", "base_model: m\nsequence_len: 512\nfsdp: [half_shard]\n", {}}).empty());
}

TEST_CASE("public files: -1, auto and nothing are not given") {
  const std::string fp16 = "\"fp16\": {\"enabled\": \"auto\", \"loss_scale\": 0, \"initial_scale_power\": 16}";
  check_fields({
      {"d.json",
       "{" + fp16 + ", \"bf16\": {\"enabled\": \"auto\"}, \"zero_optimization\": {\"stage\": 2}}",
       {{"precision.compute", ""}, {"strategy.sharding", "zero2"}}},
      {"d.json", "{" + fp16 + ", \"zero_optimization\": {\"stage\": 2}}", {{"precision.compute", ""}}},
      {"d.json",
       "{" + fp16 + ", \"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 2}}",
       {{"precision.compute", "bf16"}}},
      {"d.json",
       "{\"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": \"auto\"}, \"zero_optimization\": {\"stage\": 2}}",
       {{"precision.compute", "fp16"}}},
      {"t.toml",
       "[parallelism]\ndata_parallel_shard_degree = -1\ntensor_parallel_degree = 2\n[training]\nsteps = 10\n",
       {{"mesh.dp_shard", ""}, {"mesh.tp", "2"}, {"strategy.sharding", "zero3"}, {"train.steps", "10"}}},
      {"t.yaml", "output_dir: o\nmodel_name_or_path: m\nmax_steps: -1\nlearning_rate: 1e-5\n", {{"train.steps", ""}}},
      {"t.yaml",
       "output_dir: ''\nfsdp: ''\nmax_steps: 5\nlearning_rate: 1e-5\n",
       {{"checkpoint.directory", ""}, {"train.steps", "5"}}},
  });
}

TEST_CASE("public files: Axolotl's FSDP of both versions, and recomputation that tools turn on") {
  const std::string axolotl = "base_model: m\nsequence_len: 512\nmicro_batch_size: 1\ndatasets: [{path: d, type: alpaca}]\n";
  check_fields({
      {"x.yaml",
       axolotl + "sample_packing: true\ngradient_checkpointing: true\nfsdp: [full_shard, auto_wrap]\nfsdp_config:\n"
                 "  fsdp_offload_params: true\n  fsdp_sharding_strategy: FULL_SHARD\n",
       {{"strategy.trainer", "fsdp1"},
        {"strategy.sharding", "zero3"},
        {"recompute.policy", "full"},
        {"offload.parameters", "host"},
        {"train.method", "sft"}}},
      {"x.yaml",
       axolotl + "fsdp_config:\n  sharding_strategy: SHARD_GRAD_OP\n",
       {{"strategy.trainer", "fsdp1"}, {"strategy.sharding", "zero2"}, {"recompute.policy", "none"}}},
      {"x.yaml",
       axolotl + "fsdp_version: 2\ngradient_checkpointing: true\nfsdp_config:\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n",
       {{"strategy.trainer", "fsdp2"}, {"strategy.sharding", "zero3"}, {"recompute.policy", "full"}}},
      {"x.yaml",
       axolotl + "deepspeed: deepspeed_configs/zero3_bf16.json\n",
       {{"strategy.trainer", "deepspeed"}, {"strategy.sharding", "zero3"}}},
      {"x.yaml",
       "stage: sft\nfinetuning_type: full\ndeepspeed: examples/deepspeed/ds_z3_offload_config.json\nbf16: true\n",
       {{"strategy.sharding", "zero3"}, {"offload.optimizer", "host"}, {"recompute.policy", "full"}, {"precision.compute", "bf16"}}},
      {"x.yaml",
       "stage: sft\nfinetuning_type: full\ndisable_gradient_checkpointing: true\npure_bf16: true\n",
       {{"recompute.policy", "none"}, {"precision.master", "bf16"}, {"precision.compute", "bf16"}}},
  });
}

TEST_CASE("public files: a script of somebody's own gets no tool's defaults") {
  const std::string job = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n";
  check_fields({
      {"a.sbatch",
       job + "srun python train_net.py --data-path /d --num-workers 7 --epochs 90 --arch resnet50\n",
       {{"hardware.nodes", "2"}, {"strategy.trainer", ""}, {"strategy.sharding", ""}, {"precision.compute", ""}, {"micro_batch", ""}}},
      {"b.sbatch",
       job + "srun torchrun --nnodes 2 train_llm.py --experiment-name e --dataset-name d --model-name m\n",
       {{"micro_batch", ""}, {"precision.compute", ""}, {"recompute.policy", ""}}},
      {"c.sbatch",
       job + "srun python own.py --max_steps 50 --heads 4 --width 64 --blocks 2\n",
       {{"train.steps", "50"}, {"strategy.trainer", ""}, {"micro_batch", ""}}},
      {"d.sh",
       "python run_clm.py --model_name_or_path m --output_dir o --do_train --max_steps 5\n",
       {{"micro_batch", "8"}, {"precision.compute", "fp32"}, {"train.steps", "5"}}},
      {"e.sh",
       "torchrun pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --tensor-model-parallel-size 2 --my-own 3\n",
       {{"strategy.trainer", "megatron"}, {"mesh.tp", "2"}}},
      // Flags that a parser shares with Megatron, the Trainer or Llama Stack, and none of their defaults.
      {"f.sh",
       "mpirun -np 8 python own.py --micro-batch-size 2 --seq-length 512 --lr 1e-4 --train-iters 9 --bf16 --base-model /m\n",
       {{"strategy.trainer", ""}, {"model.gated_mlp", ""}, {"micro_batch", "2"}}},
      {"h.sh",
       "accelerate launch own.py --per_device_train_batch_size 4 --learning_rate 1e-4 --with_tracking --num_warmup_steps 5\n",
       {{"micro_batch", "4"}, {"train.grad_clip", ""}, {"recompute.policy", ""}}},
      {"i.sh", "accelerate launch rate.py --dataset_name_or_path d --output_dir o\n", {{"micro_batch", ""}, {"train.grad_clip", ""}}},
      {"j.sh", "python -m own.eval --model precomputed_hf --tasks a\n", {{"model.name", ""}}},
      {"m.sh", "deepspeed --num_nodes=4 --num_gpus=8 own.py --deepspeed ds.json\n", {{"micro_batch", ""}, {"train.grad_clip", ""}}},
      {"n.sh",
       "accelerate launch finetune.py --data_path d --base_model m/b --output_dir o --micro_batch_size 4 --num_epochs 3 --cutoff_len "
       "512\n",
       {{"recompute.policy", ""}, {"gradient_accumulation", ""}, {"micro_batch", "4"}}},
      {"o.sh",
       "torchrun grpo.py --output_dir o --model_name_or_path m --per_device_train_batch_size 1 --beta 0.04 --num_generations 8\n",
       {{"train.method", ""}, {"micro_batch", "1"}}},
      {"p.sh",
       "torchrun dpo.py --output_dir o --model_name_or_path m --per_device_train_batch_size 1 --beta 0.04 --max_length 8\n",
       {{"train.method", "dpo"}}},
      // accelerate's file may say the precision, and was not given.
      {"k.sh",
       "accelerate launch --config_file none.yaml sft.py --per_device_train_batch_size 2 --num_train_epochs 1 --output_dir o\n",
       {{"micro_batch", "2"}, {"train.grad_clip", "1"}, {"precision.compute", ""}}},
      // A launcher may take less than the hosts have.
      {"l.sh",
       "cat <<EOT > hostfile\nn1 slots=2\nn2 slots=2\nEOT\ndeepspeed --num_gpus 1 --num_nodes 2 --hostfile hostfile own.py\n",
       {{"hardware.nodes", "2"}, {"hardware.gpus_per_node", "1"}}},
  });
}

TEST_CASE("public files: what a launcher's switches and a tool's defaults say of the strategy and the precision") {
  const std::string own = " own.py --x 1\n";
  const std::string sft = "output_dir: o\nper_device_train_batch_size: 1\nmax_length: 512\npacking: true\n";
  check_fields({
      {"a.sh", "accelerate launch --use_deepspeed --deepspeed_config_file none.conf" + own, {{"strategy.trainer", "deepspeed"}}},
      {"a.sh", "accelerate launch --use_fsdp --config_file none.yaml" + own, {{"strategy.trainer", "fsdp1"}}},
      {"a.sh", "accelerate launch --use_fsdp --fsdp_version 2" + own, {{"strategy.trainer", "fsdp2"}}},
      {"a.sh", "accelerate launch --multi_gpu --num_processes 4" + own, {{"strategy.sharding", "ddp"}}},
      {"a.sh", "accelerate launch --num_processes 4" + own, {{"strategy.sharding", ""}, {"strategy.trainer", ""}}},
      {"a.sh",
       "deepspeed train.py --deepspeed none.json --per_device_train_batch_size 4 --num_train_epochs 3 --output_dir o\n",
       {{"strategy.trainer", "deepspeed"}, {"micro_batch", "4"}}},
      {"a.yaml",
       kAccelerate + "deepspeed_config: {zero_stage: 2, offload_optimizer_device: cpu, offload_param_device: cpu}\n",
       {{"offload.optimizer", "host"}, {"offload.parameters", "none"}}},
      {"a.yaml", kAccelerate + "deepspeed_config: {zero_stage: 3, offload_param_device: cpu}\n", {{"offload.parameters", "host"}}},
      {"t.yaml", sft + "torch_dtype: bfloat16\n", {{"precision.compute", "bf16"}, {"train.method", "sft"}}},
      {"t.yaml", sft, {{"precision.compute", "bf16"}}},
      {"t.yaml", sft + "dtype: bfloat16\nfp16: true\n", {{"precision.compute", "fp16"}}},
      {"t.yaml", sft + "bf16: true\nfsdp: full_shard auto_wrap\n", {{"strategy.sharding", "zero3"}}},
      {"t.yaml", sft + "max_steps: 0\n", {{"train.steps", ""}}},
      {"l.yaml",
       "seed_everything: 1\ntrainer: {strategy: deepspeed_stage_2_offload, precision: bf16, my_batch: 256}\n",
       {{"strategy.sharding", "zero2"}, {"precision.compute", "bf16"}, {"gradient_accumulation", ""}}},
      {"l.yaml",
       "seed_everything: 1\ntrainer: {strategy: ddp, precision: '16'}\n",
       {{"precision.compute", "fp16"}, {"gradient_accumulation", "1"}}},
      // Flags that TRL has too, of parsers that are not the Trainer's.
      {"w.sh",
       "accelerate launch own.py --model_name_or_path a/b --per_device_train_batch_size 8 --num_train_epochs 3 --output_dir o "
       "--num_warmup_steps 5 --with_tracking --use_peft --lora_alpha 32\n",
       {{"recompute.policy", ""}, {"train.grad_clip", ""}, {"micro_batch", "8"}}},
      {"v.sh",
       "trl vllm-serve --model a/b --tensor-parallel-size 2 &\naccelerate launch --num_processes 6 own.py --lr 1\n",
       {{"mesh.tp", ""}, {"model.name", ""}, {"derived.world", "6"}}},
      {"b.sh", "accelerate launch -m own --model m --tasks t --batch_size 1 --output_path o\n", {{"micro_batch", ""}}},
      {"s.sh",
       "swift pt --model a/b --tuner_type full --deepspeed zero3 --per_device_train_batch_size 1 --output_dir o\n",
       {{"strategy.trainer", "deepspeed"}, {"strategy.sharding", "zero3"}}},
      {"j.sbatch",
       "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:0\nsrun python own.py --x 1\n",
       {{"hardware.gpus_per_node", ""}, {"hardware.nodes", "2"}}},
      {"t.toml",
       "[model]\nname = \"llama2\"\nflavor = \"70B\"\n[training]\nbatch_size = 1\nseq_len = 64\n",
       {{"model.name", "llama2_70b"}}},
      {"g.sh",
       "torchrun own.py --dtype=bf16 --learning_rate=1e-5 --seed=1 --output_dir=o\n",
       {{"micro_batch", ""}, {"train.grad_clip", ""}}},
  });
  CHECK(refusal({"a.sh", "accelerate launch --use_megatron_lm" + own, {}}).find("'use_megatron_lm' is 'true', which chooses how") ==
        0);
  const std::string predict = "stage: sft\nfinetuning_type: lora\ntemplate: x\ndo_predict: true\n";
  CHECK(refusal({"p.yaml", predict, {}}).find("the file trains nothing: 'do_predict' without 'do_train'") == 0);
  CHECK(refusal({"p.yaml", predict + "do_train: true\n", {}}).empty());
}

TEST_CASE("public files: jobs that a plan has no form for are refused by name") {
  const std::string het =
      "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\n#SBATCH hetjob\n#SBATCH --nodes=1\nsrun python own.py --x 1\n";
  const Result<std::vector<Reading>> job = read_config(embedded_templates(), het, "a.sbatch");
  REQUIRE_FALSE(job.ok());
  CHECK(job.diagnostics[0].message.find("'#SBATCH hetjob': the parts of the job have nodes of their own") == 0);
  CHECK(job.diagnostics[0].location.line == 3);
  check_fields({{"t.sbatch",
                 "#!/bin/bash\n#SBATCH --time={LIMIT_TIME}\n#SBATCH --nodes=2\nsrun torchrun --nproc_per_node <gpus> own.py\n",
                 {{"hardware.nodes", "2"}, {"launch.time_limit_s", ""}, {"hardware.gpus_per_node", ""}}}});
  bool says_elastic = false;
  for (const Reading& one : read_public({"e.sh", "torchrun --nnodes 2:4 --nproc_per_node 8 own.py --x 1\n", {}})) {
    for (const LostKey& lost : one.lost) says_elastic = says_elastic || lost.reason.find("an elastic range ") == 0;
  }
  CHECK(says_elastic);
}

TEST_CASE("public files: remarks before a file's first line, one process, and names of older releases") {
  check_fields({
      {"x.yaml", "# a run\n# of ours\n---\noutput_dir: o\nmax_steps: 5\nper_device_train_batch_size: 2\n", {{"train.steps", "5"}}},
      {"x.yaml", "%YAML 1.2\n---\noutput_dir: o\nmax_steps: 5\nper_device_train_batch_size: 2\n", {{"train.steps", "5"}}},
      {"s.yaml",
       "num_nodes: 2\nresources:\n  accelerators: {L40S:4}\nrun: |\n  own\n",
       {{"hardware.nodes", "2"}, {"hardware.gpus_per_node", "4"}}},
      {"z.yaml",
       "{\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": 1, \"sub_group_size\": 2}, \"gradient_clipping\": 1.0}\n",
       {{"strategy.sharding", "zero3"}}},
      {"a.yaml",
       "compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nnum_machines: 1\nnum_processes: 8\nmixed_precision: bf16\n",
       {{"hardware.nodes", "1"}, {"hardware.gpus_per_node", "1"}, {"strategy.sharding", "ddp"}}},
      {"a.yaml",
       "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 8\nmixed_precision: bf16\n",
       {{"hardware.gpus_per_node", "8"}}},
      {"t.toml",
       "[training]\nbatch_size = 4\nseq_len = 64\ntensor_parallel_degree = 2\nwarmup_steps = 3\n[experimental]\n"
       "pipeline_parallel_degree = 1\ncontext_parallel_degree = 2\n",
       {{"micro_batch", "4"}, {"mesh.tp", "2"}, {"mesh.cp", "2"}, {"mesh.pp", "1"}, {"train.warmup_steps", "3"}}},
      {"t.toml", "[training]\nseq_len = 64\nsteps = 3\n", {{"micro_batch", "8"}, {"mesh.tp", "1"}}},
  });
}

TEST_CASE("public files: SkyPilot tasks, keys given twice, and values that somebody else fills in") {
  check_fields({
      {"s.yaml",
       "name: t\nnum_nodes: 2\nresources:\n  accelerators: H100:8\nsetup: pip list\nrun: |\n  torchrun --nproc_per_node 8 own.py --x "
       "1\n",
       {{"hardware.nodes", "2"}, {"hardware.gpus_per_node", "8"}, {"strategy.trainer", ""}}},
      {"s.yaml", "resources:\n  accelerators: {A100: 4}\nrun: python own.py --x 1\n", {{"hardware.gpus_per_node", "4"}}},
      {"s.yaml", "resources:\n  accelerators: [A100:4, H100:8]\nrun: python own.py --x 1\n", {{"hardware.gpus_per_node", ""}}},
      {"s.yaml", "resources:\n  accelerators: [A100:8, H100:8]\nrun: python own.py --x 1\n", {{"hardware.gpus_per_node", "8"}}},
      {"s.yaml", "resources:\n  accelerators: {H100: 2, H200:2}\nrun: python own.py --x 1\n", {{"hardware.gpus_per_node", "2"}}},
      {"s.yaml", "resources:\n  accelerators: {H100: 2, L4:4}\nrun: python own.py --x 1\n", {{"hardware.gpus_per_node", ""}}},
      {"k.yaml",
       "apiVersion: batch/v1\nkind: Job\nspec: {template: {spec: {initContainers: [{name: p, image: q}], containers: [{name: c, "
       "image: i, resources: {limits: {nvidia.com/gpu: 4}}}]}}}\n",
       {{"job.image", "i"}, {"hardware.gpus_per_node", "4"}}},
      {"k.yaml",
       "apiVersion: batch/v1\nkind: Job\nspec: {parallelism: 2, template: {spec: {containers: [{name: c, image: i, resources: "
       "{limits: {nvidia.com/a100: 4, nvidia.com/mig-1g.5gb: 7}}}]}}}\n",
       {{"hardware.gpus_per_node", "4"}, {"hardware.nodes", "2"}}},
      {"x.yaml", "output_dir: o\nlearning_rate: 1e-5\nmax_steps: 5\nmax_steps: 7\n", {{"train.steps", "7"}}},
      {"x.yaml",
       "base_model: m\nsequence_len: 512\nmicro_batch_size: ${SIZE}\nfsdp: ${FSDP}\nbf16: '{{ bf16 }}'\n",
       {{"micro_batch", ""}, {"strategy.sharding", ""}, {"precision.compute", ""}}},
      {"d.json",
       "{\"zero_optimization\": {\"stage\": 2}, \"optimizer\": {\"params\": {\"lr\": 5e-5}}, \"scheduler\": {\"params\": "
       "{\"warmup_max_lr\": 1e-4}}}",
       {{"train.learning_rate", "0.0001"}}},
      {"t.yaml", "output_dir: o\noptim: paged_adamw_32bit\nmax_steps: 5\n", {{"train.optimizer", "paged_adamw_32bit"}, {"train.steps", "5"}}},
  });
  const Result<std::vector<Reading>> job =
      read_config(embedded_templates(), "apiVersion: kubeflow.org/v1\nkind: TFJob\nspec: {}\n", "k.yaml");
  REQUIRE_FALSE(job.ok());
  CHECK(job.diagnostics[0].message == "the manifest holds TFJob, of which no nodes, GPUs or commands were read");
  const Result<std::vector<Reading>> none = read_config(embedded_templates(), "strategy: ddp\naccelerator: gpu\nwidth: 4\n", "h.yaml");
  CHECK_FALSE(none.ok());  // a table of sections knows two of its keys; it is a file of no kind
  // Sections that everybody has, with keys that nobody here knows.
  const Result<std::vector<Reading>> own =
      read_config(embedded_templates(),
                  "model: {width: 4, embed: 8}\ntraining: {batch_size: 32, checks: 10}\noptimizer: {kind: a, own: b}\n"
                  "scheduler: {warmup_steps: 5, of: a}\ndata: {folder: x}\nwandb: {name: b}\n",
                  "own.yaml");
  CHECK_FALSE(own.ok());
  const Result<std::vector<Reading>> half = read_config(
      embedded_templates(),
      "base_model: a/b\nnum_epochs: 3\nbatch_size: 4\nlearning_rate: 2e-5\nmodel_max_length: 9\nuse_lora: true\n", "h.yaml");
  CHECK((!half.ok() || half->empty() || (*half)[0].tool.find("Axolotl") == std::string::npos));
}

TEST_CASE("public files: job managers other than SLURM, hostfiles, and manifests of more kinds") {
  const std::string pod = "template: {spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 4}}}]}}";
  check_fields({
      {"a.pbs",
       "#!/bin/bash\n#PBS -l select=4:ncpus=64:ngpus=8:system=x,walltime=06:00:00\n#PBS -N run\n#PBS -j oe\nmpiexec -n 32 python "
       "own.py "
       "--x 1\n",
       {{"hardware.nodes", "4"}, {"hardware.gpus_per_node", "8"}, {"job.time_limit", "06:00:00"}, {"job.name", "run"}}},
      {"b.pbs",
       "#PBS -l nodes=2:ppn=8:gpus=4\n#PBS -l walltime=3600\npython own.py\n",
       {{"hardware.nodes", "2"}, {"hardware.gpus_per_node", "4"}, {"launch.time_limit_s", "3600"}}},
      {"c.pbs", "#PBS -l select=1:ngpus=4+2:ngpus=8\npython own.py\n", {{"hardware.nodes", "3"}, {"hardware.gpus_per_node", ""}}},
      {"a.lsf",
       "#BSUB -nnodes 2\n#BSUB -W 0:30\n#BSUB -gpu \"num=6:mode=shared\"\n#BSUB -J j\njsrun -n 2 python own.py\n",
       {{"hardware.nodes", "2"}, {"hardware.gpus_per_node", "6"}, {"job.time_limit", "0:30:00"}}},
      {"hostfile", "n1 slots=8\n# n3 slots=8\nn2 slots=8\n", {{"hardware.nodes", "2"}, {"hardware.gpus_per_node", "8"}}},
      {"hostfile", "n1 slots=8\nn2 slots=4\n", {{"hardware.nodes", "2"}, {"hardware.gpus_per_node", ""}}},
      {"k.yaml",
       "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nspec:\n  mpiReplicaSpecs:\n    Launcher: {replicas: 1}\n    Worker:\n"
       "      replicas: 3\n      " +
           pod + "\n",
       {{"hardware.nodes", "3"}, {"hardware.gpus_per_node", "4"}}},
      {"k.yaml",
       "apiVersion: ray.io/v1\nkind: RayJob\nspec:\n  entrypoint: python own.py --max_steps 7\n  rayClusterSpec:\n"
       "    workerGroupSpecs:\n    - replicas: 2\n      " +
           pod + "\n",
       {{"hardware.nodes", "2"}, {"hardware.gpus_per_node", "4"}, {"train.steps", "7"}}},
      {"k.yaml",
       "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nspec:\n  mlPolicy: {numNodes: 4}\n",
       {{"hardware.nodes", "4"}}},
      {"k.yaml",
       "apiVersion: sagemaker.amazonaws.com/v1\nkind: HyperPodPyTorchJob\nspec:\n  replicaSpecs:\n  - name: pods\n    replicas: 2\n   "
       " " +
           pod + "\n  - name: more\n    replicas: $MORE\n",
       {{"hardware.nodes", "2"}, {"hardware.gpus_per_node", "4"}}},
      {"a.sh",
       "bcprun -p 8 -c 'torchrun pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 \\\n "
       "--tensor-model-parallel-size 2'\n",
       {{"strategy.trainer", "megatron"}, {"mesh.tp", "2"}}},
      {"a.sh", "sbatch --wrap=\"srun python own.py --max_steps 3\"\n", {{"train.steps", "3"}}},
      {"a.sh",
       "megatron sft --model m --tensor_model_parallel_size 4 --micro_batch_size 2 --lr 1e-5\n",
       {{"mesh.tp", "4"}, {"micro_batch", "2"}}},
  });
}

TEST_CASE("public files: files that a script writes and names are read with it") {
  check_fields({
      {"a.sh",
       "ZERO=3\ncat <<EOF > ./ds.json\n{\"zero_optimization\": {\"stage\": $ZERO}, \"bf16\": {\"enabled\": true}}\nEOF\n"
       "deepspeed run_clm.py --model_name_or_path m --output_dir o --max_steps 5 --bf16 --deepspeed ds.json\n",
       {{"strategy.trainer", "deepspeed"}, {"strategy.sharding", "zero3"}, {"train.steps", "5"}}},
      {"a.sh",
       "cat > acc.yaml <<'EOF'\ncompute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2}\n"
       "num_machines: 2\nnum_processes: 16\nEOF\naccelerate launch --config_file acc.yaml own.py --x 1\n",
       {{"strategy.sharding", "zero2"}, {"hardware.nodes", "2"}}},
      {"a.sh",  // written, and named by nobody
       "echo '{\"zero_optimization\": {\"stage\": 3}}' > other.json\npython run_clm.py --model_name_or_path m --output_dir o "
       "--max_steps 5\n",
       {{"strategy.sharding", ""}, {"train.steps", "5"}}},
  });
}

TEST_CASE("public files: merge keys of YAML, loose JSON, and templates") {
  check_fields({
      {"x.yaml",
       "defaults: &d\n  per_device_train_batch_size: 4\n  max_steps: 9\nmore: &m {seed: 3}\n<<: [*d, *m]\noutput_dir: o\nmax_steps: "
       "5\n"
       "learning_rate: 1e-5\n",
       {{"train.steps", "5"}, {"micro_batch", "4"}, {"train.seed", "3"}}},
      {"d.json", "{\"zero_optimization\": {\"stage\": 2,}, // two\n \"bf16\": {\"enabled\": true}}", {{"strategy.sharding", "zero2"}}},
  });
  const Result<std::vector<Reading>> loose = read_config(embedded_templates(), "{\"zero_optimization\": {\"stage\": 2},}", "d.json");
  REQUIRE(loose.ok());
  REQUIRE(loose.diagnostics.size() == 1);
  CHECK(loose.diagnostics[0].severity == Severity::kWarning);
  const Result<std::vector<Reading>> filled_in_later =
      read_config(embedded_templates(), "{\"zero_optimization\": {\"stage\": CONFIG_STAGE}}", "d.json");
  REQUIRE_FALSE(filled_in_later.ok());
  CHECK(filled_in_later.diagnostics[0].message ==
        "'CONFIG_STAGE': the file is a template, which does not parse before it is filled in");
}

TEST_CASE("public files: LLaVA's adapters, sizes of an srun line, and Hydra's overrides") {
  const std::string llava =
      "#!/bin/bash\ndeepspeed llava/train/train_mem.py --deepspeed z.json --model_name_or_path a/b --bf16 True --output_dir o "
      "--num_train_epochs 1 --per_device_train_batch_size 16 --gradient_checkpointing True ";
  const std::string srun = "#!/bin/bash\nsrun -p gpu ";
  const std::string program =
      " --kill-on-bad-exit=1 python train.py --per_device_train_batch_size 2 --num_train_epochs 1 --output_dir o\n";
  check_fields(
      {{"llava.sh", llava + "--lora_enable True\n", {{"train.finetune", "lora"}, {"train.lora_rank", "64"}}},
       {"llava.sh", llava + "--lora_enable True --lora_r 128\n", {{"train.finetune", "lora"}, {"train.lora_rank", "128"}}},
       {"llava.sh", llava + "--lora_enable True --bits 4\n", {{"train.finetune", "qlora"}}},
       {"llava.sh", llava + "--lora_enable False\n", {{"train.finetune", "full"}, {"train.lora_rank", ""}}},
       {"llava.sh", llava + "\n", {{"train.finetune", ""}, {"train.lora_rank", ""}}},
       {"s.sh", srun + "-N 4 --gres=gpu:8" + program, {{"hardware.nodes", "4"}, {"hardware.gpus_per_node", "8"}}},
       {"s.sh", srun + "--gres=gpu:a100:4" + program, {{"hardware.nodes", ""}, {"hardware.gpus_per_node", "4"}}},
       {"s.sh",
        "GPUS=${GPUS:-16}\n" + srun.substr(12) + "--gres=gpu:8 --ntasks=$GPUS --ntasks-per-node=8" + program,
        {{"hardware.nodes", "2"}, {"hardware.gpus_per_node", "8"}}},
       {"s.sbatch",
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\nsrun --gres=gpu:4" + program,
        {{"hardware.nodes", "2"}, {"hardware.gpus_per_node", "4"}}},
       {"s.sbatch",
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --partition=a\n#SBATCH --nodes=4\n#SBATCH --partition=b\nsrun" + program,
        {{"hardware.nodes", "4"}, {"job.partition", "b"}}},
       {"h.sh",
        "#!/bin/bash\npython train.py model=llama trainer.devices=8 +trainer.num_nodes=2 trainer.precision=bf16-mixed "
        "optimizer.lr=1e-4\n",
        {{"hardware.gpus_per_node", "8"}, {"hardware.nodes", "2"}, {"precision.compute", "bf16"}, {"train.learning_rate", ""}}}});
  const std::vector<Reading> read =
      read_public({"h.sh", "#!/bin/bash\npython train.py model=llama trainer.devices=8 optimizer.lr=1e-4\n", {}});
  REQUIRE(read.size() == 1);
  CHECK(read[0].tool == "overrides of train.py");
  REQUIRE(read[0].lost.size() == 2);
  CHECK(read[0].lost[1].key == "optimizer.lr");
}

TEST_CASE("public files: adapters under the names of people's own scripts") {
  const std::string script =
      "#!/bin/bash\npython tune.py --model_name_or_path a/b --output_dir o --num_train_epochs 1 --per_device_train_batch_size 2 ";
  const std::string arguments = "model_name_or_path: a/b\noutput_dir: o\nnum_train_epochs: 1\nper_device_train_batch_size: 2\n";
  const std::string axolotl =
      "base_model: a/b\nsequence_len: 512\nmicro_batch_size: 1\ndatasets: [{path: d, type: alpaca}]\nadapter: lora\nlora_r: 8\n";
  check_fields({{"t.sh", script + "--use_qlora True --lora_r 16\n", {{"train.finetune", "qlora"}, {"train.lora_rank", "16"}}},
                {"t.sh", script + "--use_lora --lora_rank 8\n", {{"train.finetune", "lora"}, {"train.lora_rank", "8"}}},
                {"t.sh", script + "--use_lora True --q_lora True\n", {{"train.finetune", "qlora"}}},
                {"t.sh", script + "--use_lora False --lora_r 16\n", {{"train.finetune", "full"}, {"train.lora_rank", ""}}},
                {"t.sh", script + "--weight_decay 0.1\n", {{"train.finetune", ""}, {"train.lora_rank", ""}}},
                {"t.yaml", arguments + "lora_r: 32\nquantization: 4bit\n", {{"train.finetune", "qlora"}, {"train.lora_rank", "32"}}},
                {"t.yaml", arguments + "lora_r: 32\n", {{"train.finetune", "lora"}, {"train.lora_rank", "32"}}},
                // Of a script that nobody knows, a switch counts and a rank alone does not.
                {"o.sh", "torchrun --nproc_per_node=2 t.py --use_lora --lora_rank 8 --own 1\n", {{"train.finetune", "lora"}}},
                {"o.sh",
                 "torchrun --nproc_per_node=2 t.py --lens lora --lora_rank 8 --own 1\n",
                 {{"train.finetune", ""}, {"train.lora_rank", ""}}},
                // Axolotl adds every matrix to what is listed.
                {"a.yaml", axolotl + "lora_target_modules: [q_proj, v_proj]\n", {{"train.lora_targets", "query,value"}}},
                {"a.yaml",
                 axolotl + "lora_target_modules: [q_proj, v_proj]\nlora_target_linear: true\n",
                 {{"train.lora_targets", "all-linear"}}}});
}

TEST_CASE("public files: bsub takes directives from every line, qsub and sbatch up to the first command") {
  const auto job = [](const std::string& line) { return "#!/bin/bash\nset -e\n" + line + "\npython t.py\n"; };
  check_fields(
      {{"j.lsf", job("#BSUB -n 4\n#BSUB -gpu \"num=2\""), {{"hardware.gpus_per_node", "2"}}},
       {"j.sbatch", "#!/bin/bash\n#SBATCH --nodes=2\nset -e\n#SBATCH --gpus-per-node=2\n", {{"hardware.gpus_per_node", ""}}}});
}

TEST_CASE("public files: rollouts are told, and ms-swift by its name") {
  const std::string trl = "model_name_or_path: a/b\noutput_dir: o\nper_device_train_batch_size: 2\nmax_completion_length: 512\n";
  const auto num_told = [](const std::string& text) {
    size_t num = 0;
    for (const Reading& one : read_public({"t.yaml", text, {}})) num += one.complaints.size();
    return num;
  };
  CHECK(num_told(trl + "num_generations: 8\n") == 1);
  CHECK(num_told("model_name_or_path: a/b\noutput_dir: o\nper_device_train_batch_size: 2\nmax_length: 512\npacking: true\n") == 0);
  const auto kind = [](const std::string& text) {
    const auto read = read_config(embedded_templates(), text, "s.yaml");
    return read.ok() ? std::string("read") : read.diagnostics[0].message;
  };
  const std::string swift =
      "dataset: [d.jsonl]\nper_device_train_batch_size: 2\nlearning_rate: 1e-4\noutput_dir: o\nnum_train_epochs: 1\n";
  CHECK(kind("model: a/b\ntrain_type: lora\nlora_rank: 8\n" + swift) == "read");
  CHECK(kind("model_name_or_path: a/b\n" + swift) == "read");
}

TEST_CASE("public files: the Trainer's fsdp_config in a file of its own says what it says and nothing more") {
  check_fields(
      {{"fsdp.json",
        R"({"version": 2, "reshard_after_forward": false, "activation_checkpointing": true, "cpu_ram_efficient_loading": true})",
        {{"recompute.policy", "full"}, {"strategy.sharding", "zero2"}, {"micro_batch", ""}, {"precision.compute", ""}}},
       {"fsdp.json",  // as distsetup fsdp writes it whole: another table reads it
        R"({"fsdp_sharding_strategy": "FULL_SHARD", "fsdp_state_dict_type": "FULL_STATE_DICT", "fsdp_cpu_ram_efficient_loading": true, "fsdp_sync_module_states": true, "fsdp_use_orig_params": true})",
        {{"strategy.sharding", "zero3"}}},
       {"fsdp.json",
        R"({"transformer_layer_cls_to_wrap": ["A"], "backward_prefetch": "backward_pre", "use_orig_params": true})",
        {{"strategy.sharding", ""}, {"micro_batch", ""}, {"train.grad_clip", ""}}}});
}

TEST_CASE("public files: a list that a loop fills has no length, and options that stand in it are read") {
  const std::string loop = "nodes=()\nfor one in $(sort -u \"$PBS_NODEFILE\"); do\n  nodes+=(\"$one\")\n  ((WORLD += 4))\ndone\n";
  check_fields({{"r.sh",
                 "WORLD=0\n" + loop + "torchrun --nproc_per_node=4 --nnodes=${#nodes[@]} t.py\n",
                 {{"hardware.nodes", ""}, {"hardware.gpus_per_node", "4"}}},
                {"r.sh", "WORLD=0\n" + loop + "C=\"mpirun -np $WORLD \"\n$C python t.py --lr 1\n", {{"hardware.total_gpus", ""}}},
                {"r.sh", "nodes=(a b)\ntorchrun --nproc_per_node=4 --nnodes=${#nodes[@]} t.py\n", {{"hardware.nodes", "2"}}},
                {"r.sh",
                 "ARGS=(--nproc_per_node=4 --nnodes=2)\nfor a in \"$@\"; do ARGS+=(\"$a\"); done\ntorchrun \"${ARGS[@]}\" t.py\n",
                 {{"hardware.nodes", "2"}, {"hardware.gpus_per_node", "4"}}}});
}

TEST_CASE("public files: launchers that say what the names behind them leave open") {
  const std::string module =
      "--module openrlhf.cli.train_sft --model_name_or_path a/b --max_len 1024 --train_batch_size 8 "
      "--micro_train_batch_size 1 --zero_stage 3\n";
  check_fields({{"r.sh", "deepspeed " + module, {{"strategy.trainer", "deepspeed"}, {"strategy.sharding", "zero3"}}},
                {"r.sh",
                 "deepspeed main.py --model_name_or_path a/b-c --zero_stage 2 --deepspeed --seed 1\n",
                 {{"strategy.trainer", "deepspeed"}, {"strategy.sharding", "zero2"}}},
                {"r.sh", "python main.py --model_name_or_path a/b-c --zero_stage 2 --seed 1\n", {{"strategy.trainer", ""}}},
                {"r.sh", "python main.py --optimizer adamw --seed 42 --task x\n", {{"train.optimizer", "adamw"}}},
                {"r.sh",
                 "tune run --nnodes 2 --nproc_per_node 8 full_finetune_distributed --config c.yaml batch_size=2\n",
                 {{"hardware.nodes", "2"}, {"hardware.gpus_per_node", "8"}, {"micro_batch", ""}}}});
}

TEST_CASE("public files: what a job and a task say of their machines") {
  const std::string job = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n";
  check_fields({{"j.sbatch",
                 job + "srun python pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
                       "--max-position-embeddings 128 --micro-batch-size 1 --tensor-model-parallel-size $SLURM_GPUS_PER_NODE\n",
                 {{"mesh.tp", "4"}}},
                {"j.sbatch",
                 job + "/opt/bin/ray start --head &\nsrun --nodes=1 --ntasks=1 /opt/bin/ray job submit -- python t.py --lr 1\n",
                 {{"hardware.nodes", "2"}}},
                {"s.yaml", "resources: {accelerators: \"A100:8\"}\nrun: python t.py\n", {{"hardware.gpu", "A100-40GB"}}},
                {"s.yaml",
                 "resources: {accelerators: {A100-80GB: 8}}\nrun: python t.py\n",
                 {{"hardware.gpu", "A100-80GB"}, {"hardware.gpus_per_node", "8"}}},
                {"s.yaml",
                 "resources: {accelerators: [\"H100:8\", \"A100:8\"]}\nrun: python t.py\n",
                 {{"hardware.gpu", ""}, {"hardware.gpus_per_node", "8"}}}});
}

TEST_CASE("public files: one reason for what is not carried over, and the right one") {
  const PublicFile file{"d.json",
                        R"({"fp16": {"enabled": true}, "train_batch_size": "auto", "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "eps": "auto"}}})",
                        {}};
  for (const Reading& one : read_public(file)) {
    for (const LostKey& lost : one.lost) {
      INFO(lost.key << lost.reason);
      CHECK(lost.key != "fp16.enabled");
      CHECK((lost.key.find("params") == std::string::npos || lost.reason.find("filled in") != std::string::npos));
    }
  }
  for (const Reading& one :
       read_public({"j.sbatch", "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --exclusive=user\nsrun python t.py\n", {}}))
    CHECK(one.complaints.empty());
}

TEST_CASE("public files: what TRL does where its file says nothing") {
  const std::string trl = "model_name_or_path: a/b\noutput_dir: o\nper_device_train_batch_size: 1\npacking: true\ndataset_name: d\n";
  check_fields(
      {{"t.yaml", trl, {{"precision.compute", "bf16"}, {"recompute.policy", "full"}}},
       {"t.yaml", trl + "fp16: true\n", {{"precision.compute", "fp16"}}},
       {"t.yaml", trl + "bf16: false\ngradient_checkpointing: false\n", {{"precision.compute", "fp32"}, {"recompute.policy", "none"}}},
       {"t.yaml", trl + "max_seq_length: 512\n", {{"precision.compute", "fp32"}, {"recompute.policy", "none"}}},
       {"t.yaml", "output_dir: o\nper_device_train_batch_size: 1\nnum_train_epochs: 1\n", {{"precision.compute", "fp32"}}}});
}

TEST_CASE("public files: a job has what its scheduler sets, and a launcher is found by name") {
  const std::string pbs = "#!/bin/bash\n#PBS -l select=2:ngpus=4\n", slurm = "#!/bin/bash\n#SBATCH --nodes=4\n";
  const std::string count = "if [[ -z \"${PBS_NODEFILE}\" ]]; then\n  n=1\nelse\n  n=$(wc -l < $PBS_NODEFILE)\nfi\n";
  check_fields(
      {{"j.pbs", pbs + count + "mpiexec -n $((n * 4)) python t.py --lr 1\n", {{"hardware.nodes", "2"}, {"hardware.total_gpus", ""}}},
       {"j.pbs",
        pbs + "mpiexec -n 2 --ppn 1 torchrun --nnodes=2 --nproc-per-node=4 t.py\n",
        {{"hardware.nodes", "2"}, {"hardware.gpus_per_node", "4"}}},
       {"j.pbs", "#!/bin/bash\n#PBS -l select=2\nmpiexec -n 8 --ppn 4 python t.py --lr 1\n", {{"hardware.gpus_per_node", "4"}}},
       {"r.sh", count + "torchrun --nnodes=$n --nproc_per_node=4 t.py\n", {{"hardware.nodes", "1"}}},
       {"j.sbatch", slurm + "N=${SLURM_NNODES:-1}\nsrun torchrun --nnodes=$N --nproc_per_node=8 t.py\n", {{"hardware.nodes", "4"}}},
       {"r.sh", "python $(which torchrun) --nproc_per_node=4 --nnodes=1 t.py\n", {{"hardware.gpus_per_node", "4"}}},
       {"r.sh", "$(command -v torchrun) --nproc_per_node=4 --nnodes=1 t.py\n", {{"hardware.gpus_per_node", "4"}}}});
}

TEST_CASE("public files: a checkpoint that training starts from is not where it goes") {
  const std::string run =
      "torchrun --nproc_per_node=8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 "
      "--max-position-embeddings 2048 --micro-batch-size 4 --lr 1e-4 --train-iters 10 --bf16 ";
  check_fields({{"r.sh", run + "--load /base --save /out\n", {{"checkpoint.directory", "/out"}}},
                {"r.sh", run + "--save /out --load /base\n", {{"checkpoint.directory", "/out"}}},
                {"r.sh", run + "--save /out --load /out\n", {{"checkpoint.directory", "/out"}}},
                {"r.sh", run + "--load /base\n", {{"checkpoint.directory", "/base"}}}});
  const std::string bridge = "train:\n  train_iters: 10\n  micro_batch_size: 1\ncheckpoint:\n  save: /out\n  load: ";
  check_fields({{"b.yaml", bridge + "/base\n", {{"checkpoint.directory", "/out"}}},
                {"b.yaml", bridge + "/out\n", {{"checkpoint.directory", "/out"}}}});
}
