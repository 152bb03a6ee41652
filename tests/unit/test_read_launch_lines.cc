// Launch lines against the files that they name, sums in other words, and what flags say by their names: each beside a near miss.
#include <catch2/catch.hpp>

#include <ctime>

#include "codegen/lint/lint.h"
#include "codegen/read/read.h"
#include "support/file_says.h"

using namespace distsetup;

namespace {

size_t num_found(const std::vector<LintFile>& files, std::string_view code, Severity severity) {
  const LintReport report = lint_files(files, {});
  return static_cast<size_t>(std::count_if(report.findings.begin(), report.findings.end(), [&](const LintFinding& one) {
    return one.diagnostic.code == code && one.diagnostic.severity == severity;
  }));
}

const std::string kFile =
    "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n"
    "deepspeed_config: {zero_stage: 3}\n";
const std::string kTrain = "train.py --bf16 True --num_train_epochs 1 --per_device_train_batch_size 2";

}  // namespace

TEST_CASE("launch lines: accelerate takes its file for what the command does not say", "[read]") {
  const std::string start = "accelerate launch --config_file a.yaml ";
  const FileSays both =
      read_together({{"run.sh", start + "--num_machines 2 --num_processes 16 --zero_stage 2 " + kTrain}, {"a.yaml", kFile}});
  CHECK(both.text("hardware.nodes") == "2");
  CHECK(both.text("hardware.gpus_per_node") == "8");
  CHECK(both.text("strategy.sharding") == "zero2");
  CHECK(both.text("precision.compute") == "bf16");
  const FileSays one = read_together({{"a.yaml", kFile}, {"run.sh", start + "--num_processes 4 " + kTrain}});
  CHECK(one.text("hardware.nodes") == "1");
  CHECK(one.text("hardware.gpus_per_node") == "4");
  CHECK(one.text("strategy.sharding") == "zero3");
  // Two configurations are over nobody.
  std::vector<Reading> files = *read_config(embedded_templates(), kFile, "a.yaml");
  const auto other = read_config(embedded_templates(), "distributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 8\n", "b.yaml");
  REQUIRE(other.ok());
  files.insert(files.end(), other->begin(), other->end());
  CHECK_FALSE(merge_readings(files).ok());
}

TEST_CASE("launch lines: several machines of accelerate have an address, in the command or in its file", "[lint]") {
  const std::string start = "accelerate launch --config_file a.yaml --num_machines 2 --num_processes 16 --machine_rank $R ";
  CHECK(num_found({{"run.sh", start + kTrain}, {"a.yaml", kFile}}, "ACC002", Severity::kError) == 1);
  CHECK(num_found({{"run.sh", start + kTrain}}, "ACC002", Severity::kWarning) == 1);  // the file may have it
  CHECK(num_found({{"run.sh", start + "--main_process_ip $H " + kTrain}, {"a.yaml", kFile}}, "ACC002", Severity::kError) == 0);
  CHECK(num_found({{"run.sh", start + kTrain}, {"a.yaml", kFile + "main_process_ip: n0\n"}}, "ACC002", Severity::kError) == 0);
  const std::string one = "accelerate launch --config_file a.yaml --num_machines 1 --num_processes 8 ";
  CHECK(num_found({{"run.sh", one + kTrain}}, "ACC002", Severity::kWarning) == 0);
  CHECK(num_found({{"run.sh", "accelerate launch --num_machines $N --num_processes 8 " + kTrain}}, "ACC002", Severity::kWarning) == 0);
}

TEST_CASE("launch lines: sums of expr, in either kind of substitution, and texts that it compares", "[read]") {
  const auto accumulation = [](const std::string& words) {
    return read_together(
               {{"a.sh", "N=2\nG=8\ntorchrun --nproc_per_node $G " + kTrain + " --gradient_accumulation_steps " + words + "\n"}})
        .text("gradient_accumulation");
  };
  CHECK(accumulation("$(expr 64 / $G / $N)") == "4");
  CHECK(accumulation("`expr 64 / $G`") == "8");
  CHECK(accumulation("$(expr $N \\* 3)") == "6");
  CHECK(accumulation("$(expr $N \\* $UNKNOWN)").empty());
  CHECK(accumulation("$(expr length abc)").empty());
  CHECK(accumulation("$(expr $G : '8')").empty());
  CHECK(accumulation("$(expr 8 / 0)").empty());
}

TEST_CASE("launch lines: weights of four bits under adapters by the names that scripts have for them", "[read]") {
  const auto finetune = [](const std::string& words) {
    return read_together({{"a.sh", "python " + kTrain + " " + words}}).text("train.finetune");
  };
  CHECK(finetune("--lora_r 64 --bits 4") == "qlora");
  CHECK(finetune("--lora_r 16 --quantization_bit 4") == "qlora");
  CHECK(finetune("--lora_rank 16 --quantization_bit 4") == "qlora");
  CHECK(finetune("--lora_r 64") == "lora");
  CHECK(finetune("--lora_r 64 --bits 8") != "qlora");
  CHECK(finetune("--bits 4") != "qlora");
}

TEST_CASE("launch lines: TrainingArguments without DeepSpeed and FSDP train by DistributedDataParallel", "[read]") {
  const auto trainer = [](const std::string& line) { return read_together({{"a.sh", line}}).text("strategy.trainer"); };
  CHECK(trainer("torchrun --nproc_per_node 8 " + kTrain) == "ddp");
  CHECK(trainer("python " + kTrain) == "ddp");
  CHECK(trainer("torchrun --nproc_per_node 8 " + kTrain + " --deepspeed ds.json") == "deepspeed");
  CHECK(trainer("torchrun --nproc_per_node 8 " + kTrain + " --fsdp_config f.json") != "ddp");
  CHECK(trainer("accelerate launch " + kTrain) != "ddp");  // its own configuration says how
  CHECK(trainer("accelerate launch --multi_gpu --num_processes 8 mine.py") == "ddp");
  CHECK(trainer("accelerate launch --multi_gpu --use_deepspeed --num_processes 8 mine.py") == "deepspeed");
  CHECK(trainer("torchrun --nproc_per_node 8 train.py --batch 2").empty());
}

TEST_CASE("launch lines: a stage of DeepSpeed's by its name in a script of one's own", "[read]") {
  const auto sharding = [](const std::string& words) {
    return read_together({{"a.sh", "torchrun --nproc_per_node 8 mine.py --seq_length 4096 --learning_rate 1e-5 " + words}})
        .text("strategy.sharding");
  };
  CHECK(sharding("--ds_stage 3") == "zero3");
  CHECK(sharding("--ds_stage 7").empty());
  CHECK(sharding("--stage 3").empty());
  CHECK(sharding("--enable_fsdp") == "zero3");
  CHECK(sharding("--enable_fsdp False").empty());
  CHECK(sharding("--enable_fsdp --ds_stage 2") == "zero2");
}

TEST_CASE("launch lines: FSDP 2 of the Trainer, of Axolotl and of ms-swift has no axis that its file has not", "[read]") {
  const std::string trainer =
      "output_dir: o\nper_device_train_batch_size: 1\nmax_steps: 9\nlearning_rate: 1e-5\nbf16: true\nfsdp: full_shard\n";
  const std::string axolotl =
      "base_model: o/m\ndatasets: [{path: a, type: alpaca}]\nsequence_len: 4096\nmicro_batch_size: 1\n"
      "fsdp_config: {reshard_after_forward: true}\nfsdp_version: 2\n";
  const std::string swift = "swift sft --model o/m --train_type full --max_length 2048 --fsdp fsdp2";
  const auto axes = [](const std::string& name, const std::string& text) {
    const FileSays file = read_together({{name, text}});
    return file.text("strategy.trainer") + " " + file.text("mesh.pp") + " " + file.text("mesh.tp") + " " + file.text("mesh.cp");
  };
  CHECK(axes("a.yaml", trainer + "fsdp_config: {version: 2}\n") == "fsdp2 1 1 1");
  CHECK(axes("a.yaml", trainer + "fsdp_config: {version: 2}\nparallelism_config: {cp_size: 2}\n") == "fsdp2   ");
  CHECK(axes("b.yaml", axolotl) == "fsdp2 1 1 1");
  CHECK(axes("b.yaml", axolotl + "context_parallel_size: 4\ntensor_parallel_size: 2\n") == "fsdp2 1 2 4");
  CHECK(axes("c.sh", swift) == "fsdp2 1 1 1");
  CHECK(axes("c.sh", swift + " --sequence_parallel_size 2") == "fsdp2 1 1 2");
}

TEST_CASE("launch lines: mpiexec counts launchers where a script of the user's stands behind it", "[read]") {
  const auto gpus = [](const std::string& line) {
    return read_together({{"a.sh", "#!/bin/bash\n#PBS -l select=2\n" + line}}).text("hardware.gpus_per_node");
  };
  CHECK(gpus("mpiexec -n 2 --ppn 1 ./node.sh\n").empty());
  CHECK(gpus("mpiexec -n 8 --ppn 4 python train.py\n") == "4");
  CHECK(gpus("mpiexec -n 8 --ppn 4 ./numa.sh python train.py\n") == "4");
}

TEST_CASE("launch lines: roles of a manifest that train, and those that only start them", "[read]") {
  const auto nodes = [](const std::string& gpus, const std::string& command) {
    const auto role = [](const std::string& name, int n, const std::string& words, const std::string& limits) {
      return "    - name: " + name + "\n      replicas: " + std::to_string(n) +
             "\n      template: {spec: {containers: [{name: c, image: i, command: [" + words + "]" + limits + "}]}}\n";
    };
    const std::string limits = gpus.empty() ? "" : ", resources: {limits: {nvidia.com/gpu: " + gpus + "}}";
    return read_together({{"j.yaml", "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: j}\nspec:\n  tasks:\n" +
                                         role("master", 1, command, "") + role("worker", 3, "sleep, inf", limits)}})
        .text("hardware.nodes");
  };
  CHECK(nodes("8", "mpirun, -np, '24', python, train.py") == "3");
  CHECK(nodes("", "mpiexec, -np, '3', ./hello") == "3");
  CHECK(nodes("", "python, head.py") == "4");  // both run something of their own
  const std::string old =
      "apiVersion: kubeflow.org/v1alpha1\nkind: MPIJob\nmetadata: {name: j}\nspec:\n  replicas: 2\n  template: {spec: "
      "{containers: [{name: c, image: i, command: [mpirun, python, train.py], resources: {limits: {nvidia.com/gpu: 4}}}]}}\n";
  CHECK(read_together({{"old.yaml", old}}).text("hardware.nodes") == "2");
}

TEST_CASE("launch lines: a job script that is filled in first is a template, and braces of a shell are none", "[lint]") {
  const auto is_template = [](const std::string& text) {
    const LintReport report = lint_files({{"job.sbatch", text}}, {});
    return std::any_of(report.unreadable.begin(), report.unreadable.end(),
                       [](const Diagnostic& one) { return one.message.find("a template that is filled in") != std::string::npos; });
  };
  const std::string head = "#!/bin/bash\n#SBATCH --nodes=2\n";
  CHECK(is_template(head + "{% if account %}\n#SBATCH --account={{ account }}\n{% endif %}\nsrun python train.py\n"));
  CHECK(is_template("#!/bin/bash\n#SBATCH --nodes={{ nodes }}\nsrun python train.py\n"));
  CHECK_FALSE(is_template(head + "X='{{ a }}'\necho \"${N%{*}\" '{%'\nsrun python train.py\n"));
  CHECK_FALSE(read_config(embedded_templates(), "#!/bin/bash\n#SBATCH --nodes={{ n }}\nsrun torchrun train.py\n", "a.sbatch").ok());
}

TEST_CASE("launch lines: lists that grow from branch to branch are read in time that grows with them", "[read]") {
  // With every program of one list held against every one of the other: 21 s and more for the first, 14 for the second (release
  // build).
  std::string grown = "#!/bin/bash\nL=()\n", long_one = "#!/bin/bash\nL=(";
  for (int i = 0; i < 100; ++i) long_one += "python p" + std::to_string(i) + ".py ";
  long_one += ")\n";
  for (int i = 0; i < 800; ++i) {
    const std::string n = std::to_string(i), condition = "if [ -n \"$A" + n + "\" ]; then L+=(";
    grown += condition + "torchrun t.py --x " + n + "); else L+=(torchrun t.py --y " + n + "); fi\n";
    long_one += condition + "--x " + n + "); fi\n";
  }
  for (const std::string& text : {grown, long_one}) {
    const std::clock_t begin = std::clock();
    const Result<std::vector<Reading>> read = read_config(embedded_templates(), text + "\"${L[@]}\"\n", "a.sh");
    CHECK(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 8);
  }
}
