// Files that a configuration or a job script names: read with it where they are, by name where the path is another machine's.
#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cli/settings/named_file.h"
#include "cli/settings/read_files.h"
#include "codegen/read/read_script.h"
#include "support/file_says.h"
#include "support/temporary_directory.h"

using namespace distsetup;
namespace fs = std::filesystem;

namespace {

constexpr char kZero3[] = R"({"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 2})";
constexpr char kTrain[] = "train.py --model_name_or_path o/m --bf16 True --num_train_epochs 1 --per_device_train_batch_size 2";

std::string put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
  return path.string();
}

std::string accelerate_with(const std::string& file) {
  return "distributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 8\ndeepspeed_config:\n  deepspeed_config_file: " + file + "\n";
}

Result<std::vector<Reading>> read(const std::string& path) { return read_foreign_files(embedded_templates(), {path}, "", {}); }

FileSays said(const std::string& path) {
  Result<std::vector<Reading>> readings = read(path);
  REQUIRE(readings.ok());
  return merged(std::move(*readings));
}

bool is_told(const Diagnostics& diagnostics, const std::string& words) {
  return std::any_of(diagnostics.begin(), diagnostics.end(),
                     [&words](const Diagnostic& one) { return one.message.find(words) != std::string::npos; });
}

}  // namespace

TEST_CASE("named files: a path of another machine is the file beside it of that name, and says so", "[read]") {
  const TemporaryDirectory folder;
  const fs::path root = folder.path();
  put(root / "repo/configs/ds.json", kZero3);
  const std::string beside = put(root / "repo/configs/a.yaml", accelerate_with("/home/somebody/work/ds.json"));
  const std::string below = put(root / "repo/launch/b.yaml", accelerate_with("/home/somebody/repo/configs/ds.json"));
  for (const std::string& path : {beside, below}) {
    const Result<std::vector<Reading>> readings = read(path);
    REQUIRE(readings.ok());
    CHECK(is_told(readings.diagnostics, "is read in its place"));
    CHECK(said(path).text("strategy.sharding") == "zero3");
    CHECK(unread_strategy(*readings).empty());
  }
}

TEST_CASE("named files: one that is not here is asked for, and no other is taken for it", "[read]") {
  const TemporaryDirectory folder;
  const fs::path root = folder.path();
  put(root / "repo/configs/ds.json", kZero3);
  // Of this name in a folder above alone; of a relative path with other folders; behind "..".
  for (const char* file : {"/home/somebody/ds.json", "other/ds.json", "../../configs/ds.json"}) {
    const std::string path = put(root / "repo/launch/deep/a.yaml", accelerate_with(file));
    const Result<std::vector<Reading>> readings = read(path);
    REQUIRE(readings.ok());
    const bool is_there = std::string_view(file).starts_with("..");  // from its own folder, as it is written
    CHECK(unread_strategy(*readings).empty() == is_there);
    CHECK(has_error(unread_strategy(*readings)) != is_there);
    CHECK(said(path).text("strategy.sharding").empty() != is_there);
    CHECK(said(path).text("strategy.trainer") == "deepspeed");
  }
  // What says the stage itself needs no file.
  const std::string own = put(root / "b.yaml", "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config: {zero_stage: 2}\n");
  CHECK(unread_strategy(*read(own)).empty());
}

TEST_CASE("named files: a path from the repository's folder is found from a script further down", "[read]") {
  const TemporaryDirectory folder;
  const fs::path root = folder.path();
  put(root / "repo/scripts/zero3.json", kZero3);
  const std::string script =
      put(root / "repo/scripts/big/run.sh", std::string("deepspeed --num_gpus 8 ") + kTrain + " --deepspeed ./scripts/zero3.json\n");
  CHECK(said(script).text("strategy.sharding") == "zero3");
}

TEST_CASE("named files: a script that srun starts is read, with the machines of the job", "[read]") {
  const TemporaryDirectory folder;
  const fs::path root = folder.path();
  const std::string inner = std::string("torchrun --nnodes ${NNODES:-1} --nproc_per_node 8 ") + kTrain + " --deepspeed ds.json\n";
  put(root / "scripts/start.sh", inner);
  put(root / "scripts/ds.json", kZero3);
  const std::string head = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n";
  for (const char* line :
       {"srun bash scripts/start.sh\n", "srun ./scripts/start.sh\n", "srun --kill-on-bad-exit=1 bash $ROOT/scripts/start.sh 4\n"}) {
    const FileSays job = said(put(root / "job.sbatch", head + line));
    CHECK(job.text("hardware.nodes") == "4");
    CHECK(job.text("strategy.sharding") == "zero3");
    CHECK(job.text("micro_batch") == "2");
  }
  // One that is not here is asked for; a wrapper is given what it starts, and is not.
  const Result<std::vector<Reading>> missing = read(put(root / "a.sbatch", head + "srun bash scripts/other.sh\n"));
  REQUIRE(missing.ok());
  CHECK(is_told(unread_strategy(*missing), "what the job starts is not known"));
  CHECK_FALSE(has_error(unread_strategy(*missing)));
  const Result<std::vector<Reading>> wrapped = read(put(root / "b.sbatch", head + "srun scripts/numa.sh python " + kTrain + "\n"));
  REQUIRE(wrapped.ok());
  CHECK(unread_strategy(*wrapped).empty());
}

TEST_CASE("named files: scripts that start each other are read once", "[read]") {
  const TemporaryDirectory folder;
  const fs::path root = folder.path();
  const std::string a = put(root / "a.sh", std::string("srun bash b.sh\nsrun torchrun --nproc_per_node 8 ") + kTrain + "\n");
  put(root / "b.sh", std::string("srun bash a.sh\ntorchrun --nproc_per_node 8 ") + kTrain + "\n");
  const Result<std::vector<Reading>> readings = read(a);
  REQUIRE(readings.ok());
  CHECK(readings->size() < 20);
}

TEST_CASE("named files: torchtitan's file by the flag of its script, whatever the script is called", "[read]") {
  const TemporaryDirectory folder;
  const fs::path root = folder.path();
  put(root / "configs/m.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 3\nseq_len = 8192\n");
  const FileSays run =
      said(put(root / "run.sh", "torchrun --nproc_per_node 8 ./train.py --job.config_file ${FILE:-\"./configs/m.toml\"}\n"));
  CHECK(run.text("micro_batch") == "3");
  CHECK(run.text("train.sequence_length") == "8192");
}

TEST_CASE("named files: the hosts of deepspeed's own flag") {
  const TemporaryDirectory folder;
  const std::string script =
      put(fs::path(folder.path()) / "run.sh", std::string("deepspeed --hostfile hosts --num_gpus 4 ") + kTrain + "\n");
  CHECK(said(script).text("hardware.nodes").empty());
  put(fs::path(folder.path()) / "hosts", "node1 slots=8\nnode2 slots=8\n");
  const FileSays run = said(script);
  CHECK(run.text("hardware.nodes") == "2");
  CHECK(run.text("hardware.gpus_per_node") == "4");
}

TEST_CASE("named files: what only the caller gives is told, also where nothing else is given") {
  const TemporaryDirectory folder;
  const FileSays run = said(put(fs::path(folder.path()) / "run.sh", "torchrun --nproc_per_node 8 train.py \"$@\"\n"));
  REQUIRE(run.readings.size() == 2);
  CHECK(run.readings[1].lost.size() == 1);
}

TEST_CASE("named files: an entry of a manifest's own ConfigMap is the file that its command names") {
  const TemporaryDirectory folder;
  const fs::path path = fs::path(folder.path()) / "j.yaml";
  const std::string map =
      "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  ds.json: |\n    {\"zero_optimization\": {\"stage\": 3}}\n---\n";
  const auto job = [](const std::string& file) {
    return "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  template:\n    spec:\n      containers:\n      - name: t\n"
           "        command: [deepspeed, train.py, --deepspeed, " +
           file + ", --output_dir, o, --learning_rate, \"1e-5\", --per_device_train_batch_size, \"2\"]\n" +
           "        resources: {limits: {nvidia.com/gpu: 8}}\n";
  };
  CHECK(said(put(path, map + job("/config/ds.json"))).text("strategy.sharding") == "zero3");
  CHECK(said(put(path, map + job("/config/other_ds.json"))).text("strategy.sharding").empty());
  CHECK(said(put(path, job("/config/ds.json"))).text("strategy.sharding").empty());
}

TEST_CASE("named files: a DeepSpeed file that a script of one's own is given decides, whatever its argument is called", "[read]") {
  const TemporaryDirectory folder;
  const auto unread = [&folder](const std::string& flags) {
    const std::string path =
        put(folder.path() + "/a.sh", "torchrun --nproc_per_node 8 x_dpo.py --learning_rate 1e-4 --foo 1 " + flags + "\n");
    const Result<std::vector<Reading>> readings = read(path);
    REQUIRE(readings.ok());
    return is_told(unread_strategy(*readings), "which is not here and says how the model is sharded");
  };
  for (const char* flag : {"--deepspeed_config", "--ds_config", "--deepspeed-cfg", "--deepspeed"}) {
    CHECK(unread(std::string(flag) + " \"$OUT/ds.json\""));
    CHECK(unread(std::string(flag) + " conf/ds.json"));
  }
  CHECK_FALSE(unread("--data_config \"$OUT/ds.json\""));
}
