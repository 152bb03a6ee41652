// What a file starts besides the line that is read: a second training, a script of its own, a file of DeepSpeed's. Each beside a near
// miss.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "cli/settings/named_file.h"
#include "cli/settings/read_files.h"
#include "codegen/lint/lint.h"
#include "codegen/read/read.h"
#include "support/file_says.h"
#include "support/temporary_directory.h"

using namespace distsetup;
namespace fs = std::filesystem;

namespace {

const std::string kLaunched = "accelerate launch --num_processes 4 train.py --learning_rate 2e-5 --per_device_train_batch_size 4\n";

bool is_refused(const std::string& text) {
  INFO(text);
  const Result<std::vector<Reading>> read = read_config(embedded_templates(), text, "a.sh");
  const bool is_two = std::any_of(read.diagnostics.begin(), read.diagnostics.end(), [](const Diagnostic& one) {
    return one.severity == Severity::kError && one.message.find("two runs") != std::string::npos;
  });
  CHECK(read.ok() != is_two);
  return is_two;
}

std::string put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
  return path.string();
}

Result<std::vector<Reading>> read(const std::string& path) { return read_foreign_files(embedded_templates(), {path}, "", {}); }

std::string batch_of(const std::string& path) {
  Result<std::vector<Reading>> readings = read(path);
  REQUIRE(readings.ok());
  return merged(std::move(*readings)).text("micro_batch");
}

size_t num_found(const std::string& path, const std::string& text, std::string_view code, std::string_view words = "") {
  const LintReport report = lint_files({{path, text}}, {});
  return static_cast<size_t>(std::count_if(report.findings.begin(), report.findings.end(), [&](const LintFinding& one) {
    return one.diagnostic.code == code && (one.diagnostic.message + one.diagnostic.help).find(words) != std::string::npos;
  }));
}

std::string train_job(const std::string& ranks, const std::string& command) {
  return "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: a}\nspec:\n  runtimeRef: {name: torch}\n  "
         "trainer:\n"
         "    numNodes: 2\n    numProcPerNode: " +
         ranks + "\n    resourcesPerNode: {limits: {nvidia.com/gpu: 8}}\n    command: " + command + "\n";
}

}  // namespace

TEST_CASE("two runs: the same script by a launcher and by hand, with other settings", "[read]") {
  CHECK(is_refused(kLaunched + "python train.py --learning_rate 1e-3 --per_device_train_batch_size 4\n"));
  CHECK(is_refused("python3 ./train.py --lr 1\n" + kLaunched + "wait\npython train.py --per_device_train_batch_size 2\n"));
  // The same settings, another task, another script, a number that is not known, and one of two ways.
  CHECK_FALSE(is_refused(kLaunched + "python train.py --learning_rate 0.00002 --per_device_train_batch_size 4\n"));
  CHECK_FALSE(is_refused(kLaunched + "python train.py --learning_rate 1e-3 --do_eval\n"));
  CHECK_FALSE(is_refused(kLaunched + "python merge.py --learning_rate 1e-3\n"));
  CHECK_FALSE(is_refused(kLaunched + "python train.py --learning_rate $LR\n"));
  CHECK_FALSE(is_refused("if [ $N -gt 1 ]; then\n" + kLaunched + "else\npython train.py --learning_rate 1e-3\nfi\n"));
  CHECK_FALSE(is_refused("[ $N -gt 1 ] && " + kLaunched + "[ $N -eq 1 ] && python train.py --learning_rate 1e-3\n"));
  CHECK_FALSE(is_refused("one() {\npython train.py --learning_rate 1e-3\n}\nmany() {\n" + kLaunched + "}\n$1\n"));
}

TEST_CASE("two runs: a script that is started by its path, on a task's machine and in a pod", "[read]") {
  const TemporaryDirectory folder;
  const fs::path root = folder.path();
  put(root / "launch.sh", "torchrun --nproc_per_node=8 train.py --per_device_train_batch_size 4 --learning_rate 1e-5 \"$@\"\n");
  const std::string head = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n";
  for (const char* line : {"./launch.sh", "chmod +x launch.sh && ./launch.sh --bf16", "ssh n1 bash /w/launch.sh",
                           "srun --container-image=x bash -c \"bash launch.sh\"", "srun --label bash -c \"cd /w && ./launch.sh\""}) {
    INFO(line);
    CHECK(batch_of(put(root / "job.sbatch", head + line + "\n")) == "4");
  }
  CHECK(batch_of(put(root / "task.yaml", "num_nodes: 2\nresources: {accelerators: A100:8}\nrun: |\n  bash launch.sh\n")) == "4");
  CHECK(
      batch_of(put(root / "pod.yaml",
                   "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec:\n  template:\n    spec:\n      restartPolicy: Never\n"
                   "      containers:\n        - name: p\n          image: x\n          command: [bash, launch.sh]\n"
                   "          resources: {limits: {nvidia.com/gpu: 8}}\n")) == "4");
  // Beside what trains here it is no run, and what is not here is said.
  const std::string own = "torchrun --nproc_per_node=8 own.py --per_device_train_batch_size 2 --learning_rate 1e-5\n";
  CHECK(batch_of(put(root / "both.sbatch", head + "./launch.sh\n" + own)) == "2");
  const Result<std::vector<Reading>> missing = read(put(root / "missing.sbatch", head + "./missing.sh --tp 4\n"));
  REQUIRE(missing.ok());
  CHECK(unread_strategy(*missing).size() == 1);
}

TEST_CASE("two runs: DeepSpeed's own argument names its file, whatever the script is", "[read]") {
  const TemporaryDirectory folder;
  const fs::path root = folder.path();
  put(root / "conf/ds.json", R"({"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}, "bf16": {"enabled": true}})");
  const std::string line = "deepspeed --num_gpus=8 tune.py --model_name_or_path a/b --deepspeed_config ";
  CHECK(batch_of(put(root / "a.sh", line + "conf/ds.json\n")) == "4");
  const Result<std::vector<Reading>> missing = read(put(root / "b.sh", line + "conf/none.json\n"));
  REQUIRE(missing.ok());
  CHECK(has_error(unread_strategy(*missing)));
  const Result<std::vector<Reading>> name = read(put(root / "c.sh", line + "zero3\n"));  // a word of the script's own
  REQUIRE(name.ok());
  CHECK_FALSE(has_error(unread_strategy(*name)));
}

TEST_CASE("two runs: a TrainJob's processes are those of torchrun that is told none", "[read]") {
  const std::string command = "[torchrun, train.py, --learning_rate, 1e-5, --per_device_train_batch_size, '4']";
  CHECK(read_together({{"a.yaml", train_job("8", command)}}).text("hardware.gpus_per_node") == "8");
  const Result<std::vector<Reading>> four = read_config(embedded_templates(), train_job("4", command), "a.yaml");
  REQUIRE(four.ok());
  CHECK_FALSE(merge_readings(*four).ok());
  CHECK(num_found("a.yaml", train_job("4", command), "TR008") == 1);
  CHECK(num_found("a.yaml", train_job("8", command), "TR008") == 0);
  CHECK(num_found("a.yaml", train_job("auto", command), "TR008") == 0);
  CHECK(num_found("a.yaml", train_job("4", "[python, train.py]"), "TR008") == 0);
}

TEST_CASE("two runs: options in a variable that the line above does not go on to", "[lint]") {
  const std::string set =
      "EXTRA=\"--bf16 --learning_rate 1e-5\"\ntorchrun --nproc_per_node 8 train.py --per_device_train_batch_size 4";
  CHECK(num_found("a.sh", set + "\n  $EXTRA\n", "SH002") == 1);
  CHECK(num_found("a.sh", set + " \\\n  $EXTRA\n", "SH002") == 0);
  CHECK(num_found("a.sh", "EXTRA=\"echo --bf16\"\n$EXTRA\n", "SH002") == 0);
}

TEST_CASE("two runs: advice names variables of the scheduler that is there", "[lint]") {
  const std::string run = "torchrun --nnodes=2 --nproc_per_node=1 train.py\n";
  CHECK(num_found("a.sh", "#!/bin/bash\n#OAR -l nodes=2\n" + run, "TR010", "SLURM") == 0);
  CHECK(num_found("a.sh", "#!/bin/bash\n#OAR -l nodes=2\n" + run, "TR010", "--master_addr with the name") == 2);
  CHECK(num_found("a.sh", "#!/bin/bash\n#SBATCH --nodes=2\nsrun " + run, "TR010", "SLURM_NODEID") == 2);
  const std::string task =
      "num_nodes: 2\nresources: {accelerators: A100:8}\nrun: |\n  torchrun --nnodes=1 --nproc_per_node=8 train.py\n";
  CHECK(num_found("a.yaml", task, "TR009", "SKYPILOT_NUM_NODES") == 1);
}
