// Files of ms-swift's arguments: read with the tables of its flags, and the command line that names one is over it.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "cli/settings/read_files.h"
#include "codegen/read/recognise.h"
#include "support/file_says.h"
#include "support/temporary_directory.h"

using namespace distsetup;
namespace fs = std::filesystem;

namespace {

const std::string kArguments =
    "model: o/m\ntuner_type: lora\nlora_rank: 8\ntorch_dtype: bfloat16\ndataset:\n  - 'o/d#500'\nmax_length: 2048\n"
    "per_device_train_batch_size: 2\nlearning_rate: 1e-4\ndeepspeed: zero2\noutput_dir: o\n";

FileSays said(const std::string& text, const std::string& name) {
  INFO(text);
  Result<std::vector<Reading>> read = read_config(embedded_templates(), text, name);
  REQUIRE(read.ok());
  return merged(std::move(*read));
}

// A job that starts a command in a folder with args.yaml.
FileSays job_says(const std::string& command, const std::string& arguments) {
  const TemporaryDirectory folder;
  std::ofstream(fs::path(folder.path()) / "args.yaml") << arguments;
  const fs::path job = fs::path(folder.path()) / "job.sh";
  std::ofstream(job) << "#!/bin/bash\n" << command << "\n";
  Result<std::vector<Reading>> readings = read_foreign_files(embedded_templates(), {job.string()}, "", {});
  REQUIRE(readings.ok());
  return merged(std::move(*readings));
}

}  // namespace

TEST_CASE("ms-swift's files: arguments in YAML and JSON say what the flags say", "[read]") {
  const std::string json =
      R"({"model": "o/m", "tuner_type": "lora", "lora_rank": 8, "per_device_train_batch_size": 2, "max_length": 2048, "deepspeed": "zero2"})";
  for (const FileSays& file : {said(kArguments, "args.yaml"), said(json, "args.json")}) {
    CHECK(file.is_read_as("ms-swift"));
    CHECK(file.text("model.hub_id") == "o/m");
    CHECK(file.text("train.finetune") == "lora");
    CHECK(file.text("train.lora_rank") == "8");
    CHECK(file.text("micro_batch") == "2");
    CHECK(file.text("train.sequence_length") == "2048");
    CHECK(file.text("strategy.sharding") == "zero2");
    CHECK(file.text("train.beta2") == "0.95");  // ms-swift's own default
  }
  CHECK(said(kArguments + "ENV:\n  NPROC_PER_NODE: 4\n  MAX_PIXELS: '1'\n", "args.yaml").text("hardware.gpus_per_node") == "4");
  const FileSays megatron = said(
      "model: o/m\ntuner_type: full\nmicro_batch_size: 1\nglobal_batch_size: 64\ntensor_model_parallel_size: 2\n"
      "padding_free: true\n",
      "args.yaml");
  CHECK(megatron.is_read_as("ms-swift with Megatron"));
  CHECK(megatron.text("mesh.tp") == "2");
  CHECK(megatron.text("train.global_batch") == "64");
  // Keys that its file has and no plan carries are none that stop it.
  const Result<std::vector<Reading>> vision = read_config(
      embedded_templates(), "model: o/m\ntuner_type: full\nmicro_batch_size: 1\nfreeze_vit: true\nmodel_name: bot\nfreeze_vot: 1\n",
      "args.yaml");
  REQUIRE(vision.ok());
  for (const LostKey& lost : vision->at(0).lost) CHECK((lost.why == LostKey::Why::kUnknownKey) == (lost.key == "freeze_vot"));
}

TEST_CASE("ms-swift's files: near misses are not files of its arguments", "[read]") {
  const std::string trainer = "model_name_or_path: o/m\noutput_dir: o\nper_device_train_batch_size: 2\nmax_length: 512\n";
  CHECK_FALSE(said(trainer, "t.yaml").is_read_as("ms-swift"));
  const std::string tuned =
      "base_model: o/m\nsequence_len: 512\nmicro_batch_size: 1\nadapter: lora\nlora_r: 8\ndatasets: [{path: d, type: alpaca}]\n";
  CHECK_FALSE(said(tuned, "a.yaml").is_read_as("ms-swift"));
}

TEST_CASE("ms-swift's files: the command that starts with one, and what stands behind it", "[read]") {
  const FileSays plain = job_says("NPROC_PER_NODE=8 swift sft args.yaml", kArguments);
  CHECK(plain.text("hardware.gpus_per_node") == "8");
  CHECK(plain.text("micro_batch") == "2");
  CHECK(plain.text("strategy.trainer") == "deepspeed");
  CHECK(job_says("NPROC_PER_NODE=8 swift sft args.yaml --per_device_train_batch_size 4", kArguments).text("micro_batch") == "4");
  CHECK(job_says("NPROC_PER_NODE=8 megatron sft args.yaml", "model: o/m\ntuner_type: full\nmicro_batch_size: 3\nlr: 1e-5\n")
            .text("micro_batch") == "3");
  // A file that is the value of a flag is none of arguments.
  CHECK(job_says("NPROC_PER_NODE=8 swift sft --model o/n --dataset args.yaml", kArguments).text("micro_batch") == "1");
}
