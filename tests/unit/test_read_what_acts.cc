// What is written in a file and acts, against what is written and does not: a switch beside it is off, another key counts, or a module
// of one's own reads the file.
#include <algorithm>
#include <catch2/catch.hpp>

#include "codegen/read/read.h"
#include "codegen/read/settings.h"
#include "support/file_says.h"

using namespace distsetup;

namespace {

ReadFields fields_of(const std::string& name, const std::string& text) {
  const Result<std::vector<Reading>> read = read_config(embedded_templates(), text, name);
  INFO(text);
  REQUIRE(read.ok());
  const Result<ReadFields> fields = merge_readings(*read);
  REQUIRE(fields.ok());
  return *fields;
}

std::string text_in(const ReadFields& fields, const std::string& field) {
  const auto it = fields.find(field);
  return it == fields.end() ? "" : field_text(it->second.value);
}

}  // namespace

TEST_CASE("what acts: an interval of checkpoints, only where checkpoints are on and counted in steps") {
  struct Case {
    std::string name, text, every_steps;
  };
  const std::string trainer = "output_dir: o\nper_device_train_batch_size: 1\nmax_length: 512\nsave_steps: 100\n";
  const std::string axolotl =
      "base_model: a/b\nsequence_len: 512\nmicro_batch_size: 1\ndatasets: [{path: d, type: alpaca}]\nsave_steps: 100\n";
  const std::string titan = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nsteps = 10\n[checkpoint]\ninterval = 100\n";
  const std::string megatron =
      "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
      "--micro-batch-size 1 --save-interval 100";
  const Case cases[] = {{"t.yaml", trainer, "100"},
                        {"t.yaml", trainer + "save_strategy: steps\n", "100"},
                        {"t.yaml", trainer + "save_strategy: 'no'\n", ""},
                        {"t.yaml", trainer + "save_strategy: no\n", ""},
                        {"t.yaml", trainer + "save_strategy: epoch\n", ""},
                        {"a.yaml", axolotl, "100"},
                        {"a.yaml", axolotl + "save_strategy: epoch\n", ""},
                        {"t.toml", titan, ""},
                        {"t.toml", titan + "enable = false\n", ""},
                        {"t.toml", titan + "enable = true\n", "100"},
                        {"t.toml", titan + "enable_checkpoint = true\n", "100"},
                        {"m.sh", megatron + "\n", ""},
                        {"m.sh", megatron + " --save out\n", "100"}};
  for (const Case& one : cases) {
    INFO(one.text);
    CHECK(text_in(fields_of(one.name, one.text), "checkpoint.every_steps") == one.every_steps);
  }
}

TEST_CASE("what acts: rows that are packed are packed in the run, where samples of a row do not see each other") {
  const std::string trl = "output_dir: o\nper_device_train_batch_size: 1\nmax_length: 512\npacking: true\n";
  const std::string factory =
      "model_name_or_path: a/b\nstage: sft\nfinetuning_type: full\ntemplate: qwen\ndataset: d\ncutoff_len: 512\n";
  const std::string axolotl = "base_model: a/b\nsequence_len: 512\nmicro_batch_size: 1\ndatasets: [{path: d, type: alpaca}]\n";
  const std::string openrlhf = "deepspeed --module openrlhf.cli.train_sft --train.batch_size 8 --data.max_len 512 --ds.zero_stage 2";
  const auto packing = [](const std::string& name, const std::string& text) {
    return text_in(fields_of(name, text), "derived.packing");
  };
  CHECK(packing("t.yaml", trl) == "true");
  CHECK(text_in(fields_of("t.yaml", trl), "train.method") == "sft");
  CHECK(packing("t.yaml", trl + "packing_strategy: bfd\n") == "true");
  CHECK(packing("t.yaml", trl + "packing_strategy: wrapped\n").empty());
  CHECK(packing("f.yaml", factory + "packing: true\nneat_packing: true\n") == "true");
  CHECK(packing("f.yaml", factory + "packing: true\n").empty());  // its samples see each other
  CHECK(packing("a.yaml", axolotl + "sample_packing: true\n") == "true");
  CHECK(packing("a.yaml", axolotl + "sample_packing: false\n").empty());
  CHECK(packing("o.sh", openrlhf + " --ds.packing_samples\n") == "true");
  CHECK(packing("o.sh", openrlhf + "\n").empty());
}

TEST_CASE("what acts: a tool's default is none of a file that a module of one's own reads, nor of another tool with its names") {
  const std::string titan = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nsteps = 10\n";
  const std::string job = "[job]\ncustom_config_module = \"own.job_config\"\n";
  CHECK(text_in(fields_of("t.toml", titan), "train.sequence_length") == "2048");
  CHECK(text_in(fields_of("t.toml", job + titan), "train.sequence_length").empty());
  CHECK(text_in(fields_of("t.toml", job + titan + "seq_len = 512\n"), "train.sequence_length") == "512");
  CHECK(
      text_in(fields_of("t.toml", titan + "[experimental]\ncustom_args_module = \"own.config\"\n"), "train.sequence_length").empty());

  // ms-swift's command has Megatron's names: a model by its name and bf16, which nobody writes.
  const ReadFields swift =
      fields_of("s.sh", "megatron sft --model a/b --dataset d --tensor_model_parallel_size 2 --micro_batch_size 1\n");
  CHECK(text_in(swift, "mesh.tp") == "2");
  for (const char* field : {"precision.compute", "model.gated_mlp"}) CHECK(text_in(swift, field).empty());
  CHECK(text_in(swift, "strategy.sharding") == "zero1");  // its own default
  const ReadFields own =
      fields_of("m.sh", "torchrun pretrain_gpt.py --num-layers 2 --tensor-model-parallel-size 2 --micro-batch-size 1\n");
  CHECK(text_in(own, "precision.compute") == "fp32");

  const std::string dpo =
      "deepspeed --module openrlhf.cli.train_dpo --train_batch_size 8 --micro_train_batch_size 1 --pretrain a/b --max_len 512";
  CHECK(text_in(fields_of("o.sh", dpo + " --beta 0.1 --chosen_key c\n"), "train.method") == "dpo");
  CHECK(text_in(fields_of("o.sh", dpo + "\n"), "train.method") == "dpo");  // whatever its flags are
  const std::string unnamed = "torchrun mine.py --train_batch_size 8 --micro_train_batch_size 1 --pretrain a/b --max_len 512";
  CHECK(text_in(fields_of("o.sh", unnamed + " --chosen_key c\n"), "train.method").empty());  // of DPO, or of a reward model
  CHECK(text_in(fields_of("o.sh", unnamed + "\n"), "train.method") == "sft");
  const std::string dotted = " --train.batch_size 8 --train.micro_batch_size 1 --model.model_name_or_path a/b --data.max_len 512\n";
  CHECK(text_in(fields_of("o.sh", "torchrun -m openrlhf.cli.train_dpo" + dotted), "train.method") == "dpo");
  CHECK(text_in(fields_of("o.sh", "torchrun -m openrlhf.cli.train_sft" + dotted), "train.method") == "sft");
}

TEST_CASE("what acts: numbers in the forms that YAML, TOML and Python take") {
  const std::string axolotl = "base_model: a/b\nmicro_batch_size: 1\ndatasets: [{path: d, type: alpaca}]\n";
  CHECK(text_in(fields_of("a.yaml", axolotl + "sequence_len: 500_000\n"), "train.sequence_length") == "500000");
  CHECK(text_in(fields_of("a.yaml", axolotl + "sequence_len: 500_\n"), "train.sequence_length").empty());
  const std::string titan = "[model]\nname = \"llama3\"\n[training]\nsteps = 10\n[lr_scheduler]\nwarmup_steps = 2\n";
  CHECK(text_in(fields_of("t.toml", titan + "decay_ratio = 0.0\n"), "train.lr_schedule") == "constant");
  CHECK(text_in(fields_of("t.toml", titan + "decay_ratio = 0.5\n"), "train.lr_schedule") == "wsd");
  const ReadFields every = fields_of("t.toml", titan + "[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = \"2\"\n");
  const ReadSettings settings = settings_of(every);
  const auto policy = std::find_if(settings.settings.begin(), settings.settings.end(),
                                   [](const ReadSetting& one) { return one.path == "parallel.recompute"; });
  REQUIRE(policy != settings.settings.end());
  CHECK(policy->text == "every_k:2");
}

TEST_CASE("what acts: what trains nothing, or trains what no plan has, is refused by name") {
  const auto refusal = [](const std::string& name, const std::string& text) -> std::string {
    const Result<std::vector<Reading>> read = read_config(embedded_templates(), text, name);
    INFO(text);
    REQUIRE(read.ok());
    for (const Reading& one : *read) {
      for (const Complaint& complaint : one.complaints) {
        if (complaint.diagnostic.severity == Severity::kError) return complaint.diagnostic.message;
      }
    }
    return "";
  };
  const std::string factory = "model_name_or_path: a/b\ntemplate: qwen\n", lora = factory + "stage: sft\ndo_train: true\n";
  CHECK(refusal("f.yaml", factory + "infer_backend: vllm\n").find("the file trains nothing: 'infer_backend'") == 0);
  CHECK(refusal("f.yaml", factory + "export_dir: o\nexport_size: 5\n").find("the file trains nothing: 'export_dir'") == 0);
  CHECK(refusal("f.yaml", "model_name_or_path: m/a\nadapter_name_or_path: s\ntemplate: qwen\nfinetuning_type: lora\n")
            .find("the file trains nothing: it has an adapter") == 0);
  CHECK(refusal("f.yaml", factory + "finetuning_type: lora\ntask: mmlu_test\n").find("the file trains nothing: 'task'") == 0);
  CHECK(refusal("f.yaml", lora + "finetuning_type: lora\nexport_dir: o\n").empty());
  CHECK(refusal("f.yaml", lora + "finetuning_type: oft\n").find("'finetuning_type' is 'oft'") == 0);
  CHECK(refusal("f.yaml", lora + "finetuning_type: freeze\n").find("'finetuning_type' is 'freeze'") == 0);
  CHECK(refusal("f.yaml", lora + "finetuning_type: lora\n").empty());
  CHECK(text_in(fields_of("f.yaml", lora + "finetuning_type: lora\n"), "train.lora_rank") == "8");
  CHECK(text_in(fields_of("f.yaml", lora + "finetuning_type: full\n"), "train.lora_rank").empty());

  const std::string sizes = " --num-layers 2 --hidden-size 64 --num-attention-heads 4 --tensor-model-parallel-size 2 --load c";
  CHECK(refusal("m.sh", "torchrun tools/checkpoint/convert.py" + sizes + "\n").find("the arguments train nothing") == 0);
  CHECK(refusal("m.sh", "torchrun evaluate.py --num-layers 2 --tensor-model-parallel-size 2 --no-load-optim\n")
            .find("the arguments train nothing: '--no-load-optim'") == 0);
  CHECK(refusal("m.sh", "torchrun server.py --num-layers 2 --tensor-model-parallel-size 2 --load ${1}\n")
            .find("the arguments train nothing") == 0);
  CHECK(refusal("m.sh", "torchrun pretrain_gpt.py" + sizes + " --train-iters 10\n").empty());
  CHECK(refusal("m.sh", "torchrun pretrain_gpt.py" + sizes + " --lr 1e-4\n").empty());
  CHECK(refusal("m.sh", "torchrun tasks/main.py" + sizes + " --lr 1e-4 --task MNLI\n").find("'--task MNLI'") == 0);
  CHECK(refusal("m.sh", "torchrun pretrain_t5.py" + sizes + " --lr 1e-4 --decoder-seq-length 128\n").find("'--decoder-seq-length'") ==
        0);
  CHECK(text_in(fields_of("m.sh", "torchrun pretrain_gpt.py" + sizes + " --lr 1e-4 --checkpoint-activations\n"), "recompute.policy") ==
        "full");
  CHECK(text_in(fields_of("m.sh", "torchrun pretrain_gpt.py" + sizes + " --lr 1e-4\n"), "recompute.policy") == "none");
}

TEST_CASE("what acts: words of a script of one's own are none of a run, unless they look like it") {
  const auto own = [](const std::string& words, const std::string& field) {
    return text_in(fields_of("s.sh", "torchrun --nproc_per_node 2 own.py " + words + "\n"), field);
  };
  CHECK(own("--model a/b-7B --seq_len 512", "model.name") == "a/b-7B");
  CHECK(own("--model /data/models/7 --seq_len 512", "model.name") == "/data/models/7");
  CHECK(own("--model SiT-XL/2 --seq_len 512", "model.name").empty());
  CHECK(own("--model hf-hub:a/b --seq_len 512", "model.name").empty());
  CHECK(own("--micro-batch-size 2 --global-batch-size 8 --train-iters 5 --seed 42", "train.seed") == "42");
  CHECK(own("--method dpo --seq_len 512", "train.method") == "dpo");
  CHECK(own("--method cross_seq --seq_len 512", "train.method").empty());

  // A batch size of its own is not the Trainer's, and the Trainer's is then not assumed.
  const std::string trainer =
      "torchrun own.py --num_train_epochs 3 --output_dir o --save_steps 5 --bf16 --gradient_accumulation_steps 2";
  CHECK(text_in(fields_of("s.sh", trainer + "\n"), "micro_batch") == "8");
  CHECK(text_in(fields_of("s.sh", trainer + " --train_batch_size 2\n"), "micro_batch").empty());

  // A file of settings beside the flags may say what is not on the line.
  const std::string flags = " --per_device_train_batch_size 2 --num_train_epochs 3 --output_dir o --bf16 true\n";
  CHECK(text_in(fields_of("s.sh", "accelerate launch train.py" + flags), "recompute.policy") == "none");
  CHECK(text_in(fields_of("s.sh", "accelerate launch train.py none.yaml" + flags), "recompute.policy").empty());
  CHECK(text_in(fields_of("s.sh", "accelerate launch train.py none.yaml" + flags), "micro_batch") == "2");
}

TEST_CASE("what acts: DPO is where a reference model is, and the optimizer is where the file says") {
  const std::string trl = "output_dir: o\nmodel_name_or_path: a/b\nper_device_train_batch_size: 1\nmax_length: 512\nbeta: 2.0\n";
  CHECK(text_in(fields_of("t.yaml", trl), "train.method") == "dpo");
  for (const char* other : {"gamma_beta_ratio: 0.5\n", "simpo_gamma: 0.5\n", "cpo_alpha: 1.0\n"})
    CHECK(text_in(fields_of("t.yaml", trl + other), "train.method").empty());

  const auto zero = [](const std::string& more) {
    return "{\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\"" + more +
           "}, \"offload_param\": {\"device\": \"none\"" + more + "}}}";
  };
  for (const char* more : {"", ", \"pin_memory\": true", ", \"pin_memory\": false"}) {
    const ReadFields fields = fields_of("z.json", zero(more));
    CHECK(text_in(fields, "offload.optimizer") == "host");
    CHECK(text_in(fields, "offload.parameters") == "none");
  }
}

TEST_CASE("what acts: a text that is to be replaced hides nothing of what stands behind it", "[read]") {
  const auto fields = [](const std::string& text) { return fields_of("s.sh", text); };
  const std::string flags = " --per_device_train_batch_size 2 --num_train_epochs 1 --bf16 True\n";
  const ReadFields beside = fields("OUT=\"<your folder>/run\"\ntorchrun --nproc_per_node 2 t.py --output_dir $OUT" + flags);
  CHECK(text_in(beside, "micro_batch") == "2");
  CHECK(text_in(beside, "checkpoint.directory").empty());
  const ReadFields inside = fields(
      "O=\"--num-layers 2 --tensor-model-parallel-size 2 --load <PATH TO CHECKPOINTS> --lr 1e-4 --fp16 \"\n"
      "sh -c \"torchrun pretrain_gpt.py $O\"\n");
  CHECK(text_in(inside, "precision.compute") == "fp16");
  // What goes to a file and comes from one is none of the words.
  const ReadFields redirected = fields("O=\"--output_dir o" + flags.substr(0, flags.size() - 1) + " <in >out\"\ntorchrun t.py $O\n");
  CHECK(text_in(redirected, "checkpoint.directory") == "o");
}

TEST_CASE("what acts: buffers are no disk, and the schedule of a pipeline that is not there none", "[read]") {
  const auto offload = [](const std::string& device) {
    return "{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"" + device +
           "\", \"buffer_count\": 4}, \"offload_param\": {\"device\": \"" + device +
           "\", \"nvme_path\": \"/d\", \"buffer_count\": 5, \"buffer_size\": 1e8}}, \"aio\": {\"block_size\": 1048576, "
           "\"queue_depth\": 8, \"single_submit\": false, \"overlap_events\": true}}";
  };
  for (const char* where : {"offload.optimizer", "offload.parameters"}) {
    CHECK(text_in(fields_of("z.json", offload("cpu")), where) == "host");
    CHECK(text_in(fields_of("z.json", offload("nvme")), where) == "nvme");
  }
  const std::string titan =
      "[model]\nname = \"llama3\"\n[training]\nsteps = 10\n[parallelism]\npipeline_parallel_schedule = \"Interleaved1F1B\"\n";
  CHECK(text_in(fields_of("t.toml", titan), "mesh.pp") == "1");
  CHECK(text_in(fields_of("t.toml", titan + "pipeline_parallel_degree = 1\n"), "mesh.pp") == "1");
  CHECK(text_in(fields_of("t.toml", titan + "pipeline_parallel_degree = 4\n"), "mesh.pp") == "4");
}

TEST_CASE("what acts: of several containers the one with GPUs, of several steps those that take the whole job") {
  const auto pod = [](const std::string& containers) {
    return "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  template:\n    spec:\n      restartPolicy: Never\n"
           "      containers:\n" +
           containers;
  };
  const std::string side = "      - {name: daemon, image: side:1}\n";
  const std::string main = "      - {name: train, image: main:1, resources: {limits: {nvidia.com/gpu: 8}}}\n";
  for (const std::string& containers : {side + main, main + side, main}) {
    const ReadFields fields = fields_of("j.yaml", pod(containers));
    CHECK(text_in(fields, "job.image") == "main:1");
    CHECK(text_in(fields, "hardware.gpus_per_node") == "8");
  }
  CHECK(text_in(fields_of("j.yaml", pod(side)), "job.image") == "side:1");

  const std::string job = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\n";
  const std::string whole = "srun torchrun --nproc_per_node 8 train.py\n", part = "srun --nodes=1 --ntasks=1 python report.py\n";
  CHECK(text_in(fields_of("j.sbatch", job + whole + part), "hardware.nodes") == "4");
  CHECK(text_in(fields_of("j.sbatch", job + whole), "hardware.nodes") == "4");
  CHECK(text_in(fields_of("j.sbatch", job + part), "hardware.nodes") == "1");
  const std::string head = "srun --nodes=1 -w $H ./head.sh python a.py &\n", rest = "srun --nodes=3 ./worker.sh python b.py\n";
  CHECK(text_in(fields_of("j.sbatch", job + head + rest), "hardware.nodes") == "4");
}

TEST_CASE("what acts: DeepSpeed's own scheduler is over the Trainer's word, and two of one tool still contradict") {
  const std::string schedule =
      R"("scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": "auto", "total_num_steps": "auto"}})";
  const std::string zero = R"({"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3})";
  const auto both = [](const std::string& json) {
    std::vector<Reading> readings;
    for (const auto& [name, text] :
         {std::pair<std::string, std::string>("a.sh",
                                              "torchrun --nproc_per_node=8 finetune.py --deepspeed z.json --num_train_epochs 1 "
                                              "--per_device_train_batch_size 1 --lr_scheduler_type cosine\n"),
          std::pair<std::string, std::string>("z.json", json)}) {
      Result<std::vector<Reading>> read = read_config(embedded_templates(), text, name);
      REQUIRE(read.ok());
      for (Reading& one : *read) readings.push_back(std::move(one));
    }
    return merged(std::move(readings));
  };
  CHECK(both(zero + ", " + schedule + "}").text("train.lr_schedule") == "linear");
  CHECK(both(zero + "}").text("train.lr_schedule") == "cosine");
}

TEST_CASE("what acts: layers are recomputed where one of two switches is on") {
  const std::string launch =
      "accelerate launch --config_file f.yaml finetune.py --num_train_epochs 1 --per_device_train_batch_size 1 ";
  const auto policy = [&launch](const std::string& ours, const std::string& fsdps) {
    std::vector<Reading> readings;
    const std::string file =
        "distributed_type: FSDP\nnum_machines: 1\nnum_processes: 8\nmixed_precision: bf16\nfsdp_config:\n  fsdp_version: 2\n"
        "  fsdp_reshard_after_forward: true\n  fsdp_activation_checkpointing: " +
        fsdps + "\n";
    for (const auto& [name, text] : {std::pair<std::string, std::string>("a.sh", launch + "--gradient_checkpointing " + ours + "\n"),
                                     std::pair<std::string, std::string>("f.yaml", file)}) {
      Result<std::vector<Reading>> read = read_config(embedded_templates(), text, name);
      REQUIRE(read.ok());
      for (Reading& one : *read) readings.push_back(std::move(one));
    }
    return merged(std::move(readings)).text("recompute.policy");
  };
  CHECK(policy("False", "true") == "full");
  CHECK(policy("True", "false") == "full");
  CHECK(policy("False", "false") == "none");
}

TEST_CASE("what acts: torchtitan shortens a warm-up to the steps there are") {
  const auto warmup = [](const std::string& steps) {
    const std::string file = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = 8192\nsteps = " + steps +
                             "\n[lr_scheduler]\nwarmup_steps = 200\n[parallelism]\ndata_parallel_shard_degree = -1\n";
    Result<std::vector<Reading>> read = read_config(embedded_templates(), file, "a.toml");
    REQUIRE(read.ok());
    return merged(std::move(*read)).text("train.warmup_steps");
  };
  CHECK(warmup("10") == "10");
  CHECK(warmup("1000") == "200");
  const auto decay = [](const std::string& ratio) {
    const std::string file =
        "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = 8192\nsteps = 20\n[lr_scheduler]\nwarmup_steps = "
        "10\ndecay_ratio = " +
        ratio + "\n";
    return text_in(fields_of("b.toml", file), "train.lr_decay_steps");
  };
  CHECK(decay("0.8") == "10");
  CHECK(decay("0.25") == "5");
}

TEST_CASE("what acts: the Trainer's own precision, whatever accelerate launch hands on") {
  const auto merge = [](const std::string& launch, const std::string& script) {
    const std::string line = "accelerate launch --num_processes 8 " + launch + " train.py --model_name_or_path a/b --output_dir o " +
                             "--num_train_epochs 1 --per_device_train_batch_size 1 " + script + "\n";
    const Result<std::vector<Reading>> read = read_config(embedded_templates(), line, "a.sh");
    INFO(line);
    REQUIRE(read.ok());
    const Result<ReadFields> fields = merge_readings(*read);
    return fields.ok() ? text_in(*fields, "precision.compute") : "refused";
  };
  CHECK(merge("--mixed_precision fp8", "--bf16 True") == "bf16");
  CHECK(merge("--mixed_precision fp8", "--fp16 True") == "fp16");
  CHECK(merge("--mixed_precision fp8", "") == "fp8");
  CHECK(merge("--mixed_precision fp8", "--bf16 False") == "fp8");
  CHECK(merge("--mixed_precision bf16", "--bf16 False") == "bf16");
  CHECK(merge("--mixed_precision bf16", "--fp16 True") == "fp16");
}

TEST_CASE("what acts: a key that is filled in before the file is used may be empty, and says nothing of what follows from it") {
  const std::string file =
      "base_model: a/b\nsequence_len: 512\nmicro_batch_size: 1\ndatasets: [{path: d, type: alpaca}]\nfsdp_config: ";
  CHECK(text_in(fields_of("a.yaml", file + "${FSDP_CONFIG}\nfsdp: ${FSDP}\n"), "strategy.trainer").empty());
  CHECK(text_in(fields_of("a.yaml", file + "null\ngradient_checkpointing: ${RECOMPUTE}\n"), "recompute.policy").empty());
  CHECK(text_in(fields_of("a.yaml", file + "null\ngradient_checkpointing: true\n"), "recompute.policy") == "full");
  CHECK(text_in(fields_of("a.yaml", file + "{fsdp_version: 2, fsdp_reshard_after_forward: true}\n"), "strategy.trainer") == "fsdp1");
}

TEST_CASE("what acts: the Trainer's own switch recomputes under FSDP, too") {
  const std::string file =
      "output_dir: o\nper_device_train_batch_size: 1\nnum_train_epochs: 1\nfsdp: full_shard auto_wrap\nfsdp_config: {version: 2, "
      "reshard_after_forward: true}\ngradient_checkpointing: ";
  CHECK(text_in(fields_of("a.yaml", file + "true\n"), "recompute.policy") == "full");
  CHECK(text_in(fields_of("a.yaml", file + "false\n"), "recompute.policy") == "none");
}

TEST_CASE("what acts: a model and an optimizer in TOML are anybody's, and a pipeline of diffusion models has its own name") {
  CHECK_FALSE(
      read_config(embedded_templates(), "[model]\nname = \"x\"\n[optimizer]\nlr = 0.1\n[data]\npath = \"d\"\n", "a.toml").ok());
  CHECK_FALSE(
      read_config(embedded_templates(), "pipeline_stages = 1\n[model]\ntype = \"wan\"\ndtype = \"bfloat16\"\n", "b.toml").ok());
  CHECK(
      read_config(embedded_templates(), "[model]\nname = \"llama3\"\n[optimizer]\nlr = 0.1\n[training]\nsteps = 10\n", "c.toml").ok());
}
