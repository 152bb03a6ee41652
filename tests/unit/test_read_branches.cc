// A launch line in a variable that branches set: what both say is read, and what only one of them says is told. And what a tool is
// where its file names no other: each beside a near miss.
#include <algorithm>
#include <catch2/catch.hpp>

#include "codegen/read/read.h"
#include "codegen/read/settings.h"
#include "support/file_says.h"

using namespace distsetup;

namespace {

struct BranchesSay {
  FileSays file;
  size_t num_warnings = 0;
};

BranchesSay said(const std::string& name, const std::string& text) {
  INFO(text);
  Result<std::vector<Reading>> read = read_config(embedded_templates(), text, name);
  REQUIRE(read.ok());
  const size_t num_warnings = read.diagnostics.size();
  return {merged(std::move(*read)), num_warnings};
}

std::string branches(const std::string& first, const std::string& second, const std::string& rest) {
  return "if [ $nodes -gt 1 ]; then\n  run=\"" + first + "\"\nelse\n  run=\"" + second + "\"\nfi\n" + rest;
}

const std::string kArguments = "--per_device_train_batch_size 2 --max_steps 5 --do_train\n";

}  // namespace

TEST_CASE("branches: a launch line that they set is read as far as they agree", "[read]") {
  const BranchesSay both =
      said("a.sh", branches("srun torchrun --nnodes=$nodes --nproc-per-node=8 --rdzv-endpoint=$h:1 -m t.train",
                            "torchrun --nnodes=1 --nproc-per-node=8 --rdzv-endpoint=localhost:1 -m t.train", "${run} " + kArguments));
  CHECK(both.num_warnings == 1);
  CHECK(both.file.text("hardware.gpus_per_node") == "8");
  CHECK(both.file.text("hardware.nodes").empty());  // 1, or as many as there are
  CHECK(both.file.text("micro_batch") == "2");
  CHECK(both.file.text("train.steps") == "5");
  // Options stay with the program that they are of.
  const BranchesSay script =
      said("b.sh", branches("torchrun --nproc_per_node=8 train.py --learning_rate 1e-5",
                            "torchrun --nproc_per_node=4 train.py --learning_rate 1e-5", "echo $run\n$run " + kArguments));
  CHECK(script.num_warnings == 1);
  CHECK(script.file.text("hardware.gpus_per_node").empty());
  CHECK(script.file.text("train.learning_rate") == "1e-05");
  CHECK(script.file.text("micro_batch") == "2");
}

TEST_CASE("branches: of launchers that differ the program is read, of programs that differ nothing", "[read]") {
  const BranchesSay launchers =
      said("a.sh", branches("torchrun --nnodes 2 --nproc_per_node 8 train.py", "deepspeed --num_gpus 4 train.py",
                            "eval \"$run " + kArguments.substr(0, kArguments.size() - 1) + "\"\n$run " + kArguments));
  CHECK(launchers.num_warnings == 1);  // once for a variable
  CHECK(launchers.file.text("hardware.gpus_per_node").empty());
  CHECK(launchers.file.text("micro_batch") == "2");
  const Result<std::vector<Reading>> programs =
      read_config(embedded_templates(), branches("torchrun train.py", "python eval.py", "$run " + kArguments), "b.sh");
  CHECK(!programs.ok());
  CHECK(programs.diagnostics.size() == 2);  // why nothing is read, too
  // What stands in front of the launcher in one branch alone.
  const BranchesSay front =
      said("c.sh", "front=\"\"\nif $many; then front=\"srun -K\"; fi\n$front torchrun --nproc_per_node=8 train.py " + kArguments);
  CHECK(front.num_warnings == 1);
  CHECK(front.file.text("hardware.gpus_per_node") == "8");
}

TEST_CASE("branches: that say the same, and a variable that says no command, are no mistake", "[read]") {
  const std::string line = "torchrun --nproc_per_node=8 train.py";
  const BranchesSay same = said("a.sh", branches(line, line, "$run " + kArguments));
  CHECK(same.num_warnings == 0);
  CHECK(same.file.text("hardware.gpus_per_node") == "8");
  // An argument that branches set, and a branch that the script's own settings take.
  CHECK(said("b.sh", branches("--bf16", "--fp16", line + " $run " + kArguments)).num_warnings == 0);
  const BranchesSay taken =
      said("c.sh", "nodes=1\n" + branches("srun " + line, "torchrun --nproc_per_node=4 train.py", "$run " + kArguments));
  CHECK(taken.num_warnings == 0);
  CHECK(taken.file.text("hardware.gpus_per_node") == "4");
}

TEST_CASE("plain trainers: data parallelism where the file names no other, and what is named elsewhere", "[read]") {
  const std::string factory = "stage: sft\nfinetuning_type: full\ntemplate: llama3\nper_device_train_batch_size: 1\n";
  const auto trainer = [](const std::string& name, const std::string& text) { return said(name, text).file.text("strategy.trainer"); };
  CHECK(trainer("a.yaml", factory) == "ddp");
  CHECK(trainer("a.yaml", factory + "deepspeed: ds_z2_config.json\n") == "deepspeed");
  CHECK(trainer("b.yaml", "distributed_type: MULTI_GPU\nnum_processes: 8\nmixed_precision: bf16\n") == "ddp");
  CHECK(trainer("b.yaml", "distributed_type: MULTI_GPU\nnum_processes: 8\nparallelism_config:\n  parallelism_config_tp_size: 2\n")
            .empty());
  CHECK(trainer("c.yaml", "base_model: a/b\nmicro_batch_size: 2\nsequence_len: 2048\nadapter: lora\n") == "ddp");
  CHECK(trainer("c.yaml",
                "base_model: a/b\nmicro_batch_size: 2\nsequence_len: 2048\nfsdp_version: 2\nfsdp_config:\n  offload_params: "
                "false\n") == "fsdp2");
  // Of two files the one that asks for something is right, in either order.
  Result<std::vector<Reading>> first = read_config(embedded_templates(), factory, "a.yaml");
  const Result<std::vector<Reading>> second =
      read_config(embedded_templates(), "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n", "fsdp.yaml");
  REQUIRE((first.ok() && second.ok()));
  for (const bool is_swapped : {false, true}) {
    std::vector<Reading> all = is_swapped ? *second : *first;
    const std::vector<Reading>& rest = is_swapped ? *first : *second;
    all.insert(all.end(), rest.begin(), rest.end());
    const Result<ReadFields> merged_fields = merge_readings(all);
    REQUIRE(merged_fields.ok());
    CHECK(text_of(*merged_fields, "strategy.trainer") == "fsdp2");
  }
}

TEST_CASE("plain trainers: weights in bf16 alone, and 8-bit moments, are what LLaMA-Factory's file says", "[read]") {
  const std::string factory = "stage: sft\nfinetuning_type: full\ntemplate: llama3\nper_device_train_batch_size: 1\n";
  const FileSays pure = said("a.yaml", factory + "pure_bf16: true\noptim: paged_adamw_8bit\n").file;
  CHECK(pure.text("precision.master") == "bf16");
  CHECK(pure.text("precision.compute") == "bf16");
  CHECK(pure.text("train.optimizer") == "paged_adamw_8bit");
  CHECK(said("a.yaml", factory + "bf16: true\noptim: adamw_bnb_8bit\n").file.text("train.optimizer") == "adamw_8bit");
  CHECK(said("a.yaml", factory + "bf16: true\npure_bf16: false\n").file.text("precision.master").empty());
}

TEST_CASE("plain trainers: axes that a file says nothing of are not there", "[read]") {
  const auto axis = [](const std::string& name, const std::string& text, const char* field) {
    return said(name, text).file.text(field);
  };
  const std::string shards = "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n";
  CHECK(axis("a.yaml", shards, "mesh.cp") == "1");
  CHECK(axis("a.yaml", shards, "mesh.pp") == "1");
  CHECK(axis("a.yaml", shards + "parallelism_config:\n  parallelism_config_cp_size: 2\n", "mesh.cp") == "2");
  CHECK(axis("b.json", R"({"zero_optimization": {"stage": 2}, "train_batch_size": 8})", "mesh.cp") == "1");
  CHECK(axis("b.json", R"({"zero_optimization": {"stage": 2}, "train_batch_size": 8, "sequence_parallel_size": 2})", "mesh.cp") ==
        "2");
}

TEST_CASE("branches: a switch that only a branch sets may not be there", "[read]") {
  const std::string run =
      "torchrun --nproc_per_node 4 train.py --output_dir o --per_device_train_batch_size 2 --num_train_epochs 3 $EXTRA\n";
  const auto compute = [&run](const std::string& before) { return said("a.sh", before + run).file.text("precision.compute"); };
  CHECK(compute("[[ -n $X ]] && EXTRA=\"--fp16\"\n").empty());
  CHECK(compute("if [ -n \"$X\" ]; then EXTRA=--bf16; fi\n").empty());
  CHECK(compute("EXTRA=--bf16\n") == "bf16");
  CHECK(compute("if [ -n \"$X\" ]; then EXTRA=--bf16; else EXTRA=--bf16; fi\n") == "bf16");
}
