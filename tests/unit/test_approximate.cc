// A config.json of an architecture that nobody described is planned by its sizes, and says how far that may be off.
#include <catch2/catch.hpp>

#include <fstream>

#include "base/value_json.h"
#include "model/approximate.h"
#include "model/count.h"
#include "model/hf_config.h"
#include "planner/search/make_plan.h"
#include "support/presets.h"
#include "support/problems.h"
#include "support/temporary_directory.h"

using namespace distsetup;

namespace {

Result<Geometry> read(const std::string& text, const std::string& directory = "") {
  return geometry_from_hf_config(presets(), *parse_json(text, "config.json"), "mine", directory);
}

double share(const Geometry& g, double parameters) { return static_cast<double>(count_parameters(g).total) / parameters; }

// A file of safetensors with one tensor of so many elements, without its data: the header is all that is read.
void write_header(const std::string& path, int64_t rows, int64_t columns) {
  const std::string header = fmt::format(
      R"({{"__metadata__":{{"format":"pt"}},"w":{{"dtype":"BF16","shape":[{},{}],"data_offsets":[0,2]}}}})", rows, columns);
  std::ofstream file(path, std::ios::binary);
  for (size_t i = 0; i < 8; ++i) file.put(static_cast<char>(header.size() >> (8 * i) & 0xff));
  file << header;
}

}  // namespace

TEST_CASE("approximate: sizes under the names that families use for them") {
  // GLM-4-9B: 9,399,951,360 parameters.
  const Result<Geometry> glm = read(
      R"({"model_type": "glm", "hidden_size": 4096, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 2,
          "head_dim": 128, "intermediate_size": 13696, "vocab_size": 151552, "rms_norm_eps": 1e-5, "max_position_embeddings": 131072})");
  REQUIRE(glm.ok());
  CHECK(is_approximate(*glm));
  CHECK(share(*glm, 9'399'951'360) == Approx(1).margin(0.01));
  REQUIRE(glm.diagnostics.size() == 1);
  CHECK(glm.diagnostics[0].message.find("memory may be off by 15 %, time by 30 %") != std::string::npos);
  // Mamba 2.8B: 2,768,345,600.
  const Result<Geometry> mamba = read(R"({"model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64, "vocab_size": 50280,
                                          "state_size": 16, "expand": 2, "intermediate_size": 5120, "tie_word_embeddings": true})");
  REQUIRE(mamba.ok());
  CHECK(share(*mamba, 2'768'345'600) == Approx(1).margin(0.05));
  // BERT large: 335,174,458 with its pooler and heads.
  const Result<Geometry> bert = read(
      R"({"model_type": "bert", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
               "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12})");
  REQUIRE(bert.ok());
  CHECK(share(*bert, 335'174'458) == Approx(1).margin(0.02));
  CHECK_FALSE(bert->gated_mlp);
  // The text model of one with pictures, of a family that is not known.
  const Result<Geometry> seeing = read(R"({"model_type": "some_vl", "llm_config": {"model_type": "some_text", "hidden_size": 512,
                                           "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 1000}})");
  REQUIRE(seeing.ok());
  CHECK(seeing->hidden == 512);
  CHECK(read(R"({"model_type": "qwen4", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 256})")
            .diagnostics[0]
            .help.find("qwen") != std::string::npos);
  const Result<Geometry> none = read(R"({"model_type": "novel", "hidden_size": 64})");
  REQUIRE_FALSE(none.ok());
  CHECK(none.diagnostics[0].code == std::string("DS0206"));
  CHECK(none.diagnostics[0].message.find("no 'num_hidden_layers, vocab_size'") != std::string::npos);
}

TEST_CASE("approximate: the tensors of safetensors files say how many parameters there are") {
  const TemporaryDirectory folder;
  write_header(folder.path() + "/model-00001-of-00002.safetensors", 300'000, 1000);
  write_header(folder.path() + "/model-00002-of-00002.safetensors", 100'000, 1000);
  CHECK(count_in_safetensors(folder.path()) == 400'000'000);
  const Result<Geometry> g =
      read(R"({"model_type": "novel", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "vocab_size": 32000})",
           folder.path());
  REQUIRE(g.ok());
  CHECK(share(*g, 400e6) == Approx(1).margin(0.001));
  CHECK(g.diagnostics[0].message.find("counted in its safetensors files") != std::string::npos);
  std::ofstream(folder.path() + "/cut.safetensors") << "short";
  CHECK(count_in_safetensors(folder.path()) == 0);
  CHECK(count_in_safetensors("/no/such/folder") == 0);
}

TEST_CASE("approximate: the plan is another trainer's, with wider intervals") {
  const TemporaryDirectory folder;
  std::ofstream(folder.path() + "/config.json")
      << R"({"model_type": "novel", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
             "intermediate_size": 14336, "vocab_size": 128256, "rms_norm_eps": 1e-5})";
  Spec spec;
  REQUIRE(set(spec, "model", folder.path(), {"command line", 0, 0}).empty());
  REQUIRE(set(spec, "hardware.nodes", "1", {"command line", 0, 0}).empty());
  const Result<Inputs> inputs = read_inputs(spec, presets());
  REQUIRE(inputs.ok());
  const Result<Problem> problem = resolve(spec, presets(), *inputs);
  INFO(format_diagnostics(problem.diagnostics));
  REQUIRE(problem.ok());
  CHECK(problem->trainer.name == "fsdp2");
  const Result<Plan> plan = make_plan(*problem), known = make_plan(*resolved({{"model", "8B"}, {"nodes", "1"}, {"trainer", "fsdp2"}}));
  REQUIRE(plan.ok());
  const auto width = [](const Plan& p) { return p.time.step_high_s / p.time.step_low_s; };
  CHECK(width(*plan) > 1.5 * width(*known));
  CHECK(static_cast<double>(plan->memory.device_high_bytes) > 1.1 * static_cast<double>(plan->memory.device_bytes));
}
