// Folders of PEFT's adapters: what is read, and what is refused by name.
#include <catch2/catch.hpp>

#include <fstream>
#include <string>
#include <vector>

#include "base/safetensors.h"
#include "support/temporary_directory.h"
#include "weights/adapter_folder.h"

namespace distsetup {
namespace {

const std::string kQuery = "base_model.model.model.layers.0.self_attn.q_proj";
const std::vector<float> kValues(1024, 0.5f);

struct Folder {
  TemporaryDirectory directory;

  void config(const std::string& more = "", int rank = 4) const {
    std::ofstream(directory.path() + "/adapter_config.json")
        << R"({"peft_type": "LORA", "r": )" << rank << R"(, "lora_alpha": 8, "target_modules": ["v_proj", "q_proj"])" << more << "}";
  }
  void tensors(const std::vector<TensorData>& all) const {
    REQUIRE(write_safetensors(directory.path() + "/adapter_model.safetensors", all, {{"format", "pt"}}).ok());
  }
  std::string said() const {
    const Result<AdapterFolder> folder = read_adapter_folder(directory.path());
    return folder.ok() ? "" : folder.diagnostics.front().message;
  }
};

std::vector<TensorData> both_halves() {
  return {{kQuery + ".lora_A.weight", {4, 16}, kValues.data()}, {kQuery + ".lora_B.weight", {32, 4}, kValues.data()}};
}

TEST_CASE("adapter folder: rank, alpha and targets of the configuration") {
  const Folder folder;
  folder.tensors(both_halves());
  folder.config(R"(, "use_rslora": true, "bias": "none", "modules_to_save": null, "rank_pattern": {}, "lora_dropout": 0.0)");
  const Result<AdapterFolder> read = read_adapter_folder(folder.directory.path());
  REQUIRE(read.ok());
  CHECK(read->rank == 4);
  CHECK(read->alpha == 8);
  CHECK(read->rslora);
  CHECK(read->targets == std::vector<std::string>{"q_proj", "v_proj"});
  CHECK(read->weights.plan.files.size() == 1);
  CHECK(read->weights.tensors.size() == 2);
}

TEST_CASE("adapter folder: the head's own weight beside its adapter is left to the base model") {
  const std::string head = "base_model.model.lm_head";
  std::vector<TensorData> tensors = both_halves();
  tensors.push_back({head + ".base_layer.weight", {32, 16}, kValues.data()});
  const Folder alone;
  alone.tensors(tensors);
  alone.config();
  CHECK(alone.said().find("'base_model.model.lm_head.base_layer.weight' is no half of an adapter") != std::string::npos);
  tensors.push_back({head + ".lora_A.weight", {4, 16}, kValues.data()});
  tensors.push_back({head + ".lora_B.weight", {32, 4}, kValues.data()});
  const Folder folder;
  folder.tensors(tensors);
  folder.config();
  const Result<AdapterFolder> read = read_adapter_folder(folder.directory.path());
  REQUIRE(read.ok());
  CHECK(read->weights.tensors.size() == 4);
  CHECK(read->targets == std::vector<std::string>{"lm_head", "model.layers.0.self_attn.q_proj"});
  const Result<WeightsFolder> again = read_planned_adapter(read->weights.plan, folder.directory.path());
  REQUIRE(again.ok());
  CHECK_FALSE(again->tensors.contains(head + ".base_layer.weight"));
}

TEST_CASE("adapter folder: a pattern in place of targets becomes the modules that have tensors") {
  const Folder folder;
  folder.tensors(both_halves());
  std::ofstream(folder.directory.path() + "/adapter_config.json")
      << R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ".*\\.q_proj"})";
  const Result<AdapterFolder> read = read_adapter_folder(folder.directory.path());
  REQUIRE(read.ok());
  CHECK(read->targets == std::vector<std::string>{"model.layers.0.self_attn.q_proj"});
}

TEST_CASE("adapter folder: beside a tower for pictures the text model's modules have their own names") {
  for (const std::string where : {"model.language_model.layers.0", "language_model.model.layers.0", "model.layers.0"}) {
    const Folder folder;
    const std::string query = "base_model.model." + where + ".self_attn.q_proj", tower = "base_model.model.model.visual.blocks.0.qkv";
    folder.tensors({{query + ".lora_A.weight", {4, 16}, kValues.data()},
                    {query + ".lora_B.weight", {32, 4}, kValues.data()},
                    {tower + ".lora_A.weight", {4, 16}, kValues.data()},
                    {tower + ".lora_B.weight", {32, 4}, kValues.data()}});
    folder.config();
    const Result<AdapterFolder> read = read_adapter_folder(folder.directory.path());
    REQUIRE(read.ok());
    CHECK(read->targets == std::vector<std::string>{"model.layers.0.self_attn.q_proj", "model.visual.blocks.0.qkv"});
    CHECK(read->weights.tensors.contains(kQuery + ".lora_A.weight"));
    CHECK(read->weights.tensors.contains(tower + ".lora_A.weight"));  // which no module of the text model takes
    const Result<WeightsFolder> again = read_planned_adapter(read->weights.plan, folder.directory.path());
    REQUIRE(again.ok());
    CHECK(again->tensors.contains(kQuery + ".lora_B.weight"));
  }
}

TEST_CASE("adapter folder: adapters that were trained with dropout go on without it, and a warning says so") {
  const Folder folder;
  folder.tensors(both_halves());
  folder.config(R"(, "lora_dropout": 0.1)");
  const Result<AdapterFolder> read = read_adapter_folder(folder.directory.path());
  REQUIRE(read.ok());
  REQUIRE(read.diagnostics.size() == 1);
  CHECK(read.diagnostics[0].message.find("lora_dropout 0.1") != std::string::npos);
}

TEST_CASE("adapter folder: what changes results and is not there is refused by name") {
  const Folder folder;
  folder.tensors(both_halves());
  const auto said = [&](const std::string& more, int rank = 4) {
    folder.config(more, rank);
    return folder.said();
  };
  CHECK(said(R"(, "use_dora": true)").find("DoRA") != std::string::npos);
  CHECK(said(R"(, "bias": "all")").find("biases") != std::string::npos);
  CHECK(said(R"(, "rank_pattern": {"q_proj": 8})").find("rank_pattern") != std::string::npos);
  CHECK(said(R"(, "modules_to_save": ["lm_head"])").find("modules_to_save") != std::string::npos);
  CHECK(said("", 8).find("expected rank 8") != std::string::npos);
  std::ofstream(folder.directory.path() + "/adapter_config.json") << R"({"peft_type": "IA3", "r": 4})";
  CHECK(folder.said().find("no LoRA adapters") != std::string::npos);
}

TEST_CASE("adapter folder: tensors that are no halves of adapters") {
  const Folder folder;
  folder.config();
  CHECK_FALSE(folder.said().empty());  // no tensors at all
  folder.tensors({both_halves()[0]});
  CHECK(folder.said().find("'" + kQuery + ".lora_B.weight' is not") != std::string::npos);
  std::vector<TensorData> more = both_halves();
  more.push_back({"base_model.model.lm_head.weight", {8, 16}, kValues.data()});
  folder.tensors(more);
  CHECK(folder.said().find("no half of an adapter") != std::string::npos);
}

}  // namespace
}  // namespace distsetup
