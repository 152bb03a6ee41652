// Exact parameter counts, through the whole path: file -> strict reader -> geometry -> count. The integers are the published totals
// (and, for the from-scratch table, what its geometry comes to by hand).
#include <catch2/catch.hpp>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/diagnostic_codes.h"
#include "model/count.h"
#include "model/flops.h"
#include "model/geometry.h"
#include "model/presets.h"
#include "support/presets.h"

namespace distsetup {
namespace {

Geometry preset(const std::string& name) {
  const Result<Geometry> geometry = find_model(presets(), name);
  INFO(format_diagnostics(geometry.diagnostics));
  REQUIRE(geometry.ok());
  return *geometry;
}

std::string hf_directory(const std::string& name) {
  const char* root = std::getenv("DISTSETUP_SOURCE");
  const std::string directory = std::string(root ? root : ".") + "/tests/data/hf/" + name;
  REQUIRE(std::filesystem::exists(directory + "/config.json"));
  return directory;
}

struct Expected {
  const char* name;
  int64_t total;
};

// The totals of the models that publish one, to the integer.
constexpr Expected kPublished[] = {
    {"llama2_7b", 6'738'415'616},
    {"llama2_13b", 13'015'864'320},
    {"llama2_70b", 68'976'648'192},
    {"llama3_8b", 8'030'261'248},
    {"llama3_70b", 70'553'706'496},
    {"llama3.1_8b", 8'030'261'248},
    {"llama3.1_70b", 70'553'706'496},
    {"llama3.1_405b", 405'853'388'800},
    {"llama3.2_1b", 1'235'814'400},
    {"llama3.2_3b", 3'212'749'824},
    {"codellama_7b", 6'738'546'688},
    {"mistral_7b", 7'241'732'096},
    {"mixtral_8x7b", 46'702'792'704},
    {"qwen2.5_0.5b", 494'032'768},
    {"qwen2.5_7b", 7'615'616'512},
    {"qwen3_0.6b", 596'049'920},
    {"qwen3_1.7b", 1'720'574'976},
    {"qwen3_4b", 4'022'468'096},
    {"qwen3_8b", 8'190'735'360},
    {"qwen3_14b", 14'768'307'200},
    {"qwen3_32b", 32'762'123'264},
    {"qwen3_30b_a3b", 30'532'122'624},
    {"gemma_2b", 2'506'172'416},
    {"gemma_7b", 8'537'680'896},
    {"gemma2_9b", 9'241'705'984},
    {"gemma3_1b", 999'885'952},
    {"falcon_7b", 6'921'720'704},
    {"falcon_40b", 41'303'293'952},
    {"phi_2", 2'779'683'840},
    {"phi3_mini", 3'821'079'552},
    {"gpt2", 124'439'808},
    {"gpt2_xl", 1'557'611'200},
    {"gpt_neox_20b", 20'554'567'680},
    {"deepseek_v2", 235'741'434'880},
    {"deepseek_v2_lite", 15'706'484'224},
    {"deepseek_v3", 671'026'419'200},
    {"baichuan_7b", 7'000'559'616},
    {"baichuan2_7b", 7'505'973'248},
    {"baichuan2_13b", 13'896'668'160},
    {"chatglm3_6b", 6'243'584'000},
    {"codellama_34b", 33'743'970'304},
    {"gemma2_2b", 2'614'341'888},
    {"internlm_7b", 7'321'948'160},
    {"internlm_20b", 20'088'714'240},
    {"nemotron_8b", 8'540'135'424},
    {"nemotron_22b", 21'266'116'608},
    {"nemotron4_15b", 15'628'775'424},
    {"nemotron4_340b", 341'029'195'776},
    {"phi_1.5", 1'418'270'720},
    {"powerlm_3b", 3'510'819'072},
    {"qwen_1.8b", 1'836'828'672},
    {"qwen_7b", 7'721'324'544},
    {"qwen_14b", 14'167'290'880},
    {"qwen_72b", 72'287'920'128},
    {"qwen1.5_14b", 14'167'290'880},
    {"qwen1.5_32b", 32'512'218'112},
    {"command_r7b", 8'028'033'024},
    {"qwen2.5_32b", 32'763'876'352},
    {"smollm_1.7b", 1'711'376'384},
    {"stablelm_base_alpha_3b", 3'637'321'728},
    {"stablecode_completion_alpha_3b", 2'769'310'720},
    {"tinyllama_1.1b", 1'100'048'384},
    {"yi_6b", 6'061'035'520},
    {"yi_34b", 34'388'917'248},
    {"santacoder", 1'124'886'528},
    {"mpt_125m", 125'311'488},
    {"mpt_350m", 355'985'408},
    {"mpt_760m", 760'470'528},
    {"mpt_1b", 1'315'950'592},
    {"mpt_3b", 2'651'837'440},
    {"mpt_7b", 6'658'859'008},
    {"mpt_13b", 12'853'954'560},
    {"mpt_30b", 29'975'214'080},
    {"mpt_70b", 64'862'437'376},
    {"gpt3_5b", 5'051'228'160},
    {"gpt3_20b", 20'262'014'976},
    {"gpt3_175b", 174'615'846'912},
    {"opt_125m", 125'239'296},
    {"opt_1.3b", 1'315'758'080},
    {"bloom_560m", 559'214'592},
    {"bloom_1b1", 1'065'314'304},
    {"bloom_3b", 3'002'557'440},
    {"bloom_7b1", 7'069'016'064},
    {"bloom_176b", 176'247'271'424},
    {"starcoder2_3b", 3'030'371'328},
    {"stablelm2_1.6b", 1'644'515'328},
    {"internlm2_7b", 7'737'708'544},
    {"glm4_9b", 9'399'951'360},
    {"deepseek_coder_6.7b", 6'740'512'768},
    {"deepseek_coder_33b", 33'342'991'360},
    {"deepseek_moe_16b", 16'375'728'128},
    {"qwen3_coder_480b_a35b", 480'154'875'392},
    {"solar_10.7b", 10'731'524'096},
    {"granite3.3_8b", 8'170'864'640},
    {"smollm3_3b", 3'075'098'624},
    {"olmoe_1b_7b", 6'919'161'856},
    {"phi4_mini", 3'836'021'760},
    {"gemma3_270m", 268'098'176},
    {"falcon_180b", 179'522'565'120},
    {"yi_9b", 8'829'407'232},
};

// The from-scratch size table: layers, hidden, heads, kv heads as its code has them, and three readings of its feed-forward.
struct ScratchRow {
  const char* size;
  int64_t num_layers, hidden, num_heads, num_kv_heads;
  int64_t as_built, wide_one_kv_per_head, llama_shaped;
};
constexpr ScratchRow kScratch[] = {
    {"350m", 24, 1024, 16, 16, 468'239'360, 468'239'360, 373'867'520},
    {"1b", 24, 2048, 16, 16, 1'741'785'088, 1'741'785'088, 1'364'297'728},
    {"3b", 28, 3072, 24, 8, 4'072'320'000, 4'424'641'536, 3'367'676'928},
    {"7b", 32, 4096, 32, 8, 8'047'038'464, 8'852'344'832, 6'738'415'616},
    {"13b", 40, 5120, 40, 8, 15'427'589'120, 17'105'310'720, 13'015'864'320},
    {"30b", 60, 6656, 52, 8, 38'458'640'896, 42'957'031'936, 32'528'943'616},
    {"70b", 80, 8192, 64, 8, 77'029'711'872, 86'424'952'832, 65'285'660'672},
};

Geometry scratch_geometry(const ScratchRow& row, int64_t num_kv_heads, int64_t feed_forward) {
  Geometry g;
  g.family = "llama";
  g.num_layers = row.num_layers;
  g.hidden = row.hidden;
  g.num_heads = row.num_heads;
  g.num_kv_heads = num_kv_heads;
  g.head_size = row.hidden / row.num_heads;
  g.feed_forward = feed_forward;
  g.vocabulary = 32000;
  return g;
}

}  // namespace

TEST_CASE("counts: every preset equals the published total") {
  for (const Expected& expected : kPublished) {
    INFO(expected.name);
    const Geometry geometry = preset(expected.name);
    CHECK(geometry.name == expected.name);
    CHECK(count_parameters(geometry).total == expected.total);
  }
}

TEST_CASE("counts: a Hugging Face config.json gives the published total") {
  std::set<std::string> tested;
  for (const Expected& expected : kPublished) {
    const char* root = std::getenv("DISTSETUP_SOURCE");
    const std::string directory = std::string(root ? root : ".") + "/tests/data/hf/" + expected.name;
    if (!std::filesystem::exists(directory)) continue;
    INFO(directory);
    const Result<Geometry> geometry = resolve_model(presets(), directory);
    INFO(format_diagnostics(geometry.diagnostics));
    REQUIRE(geometry.ok());
    CHECK(count_parameters(*geometry).total == expected.total);
    tested.insert(expected.name);
  }
  CHECK(tested.size() == 19);  // every directory of tests/data/hf
}

TEST_CASE("counts: config.json and preset of the same model are the same geometry") {
  for (const char* name : {"llama2_7b", "llama3_8b", "llama3.2_1b", "qwen2.5_0.5b", "qwen3_8b", "qwen3_30b_a3b", "mistral_7b",
                           "mixtral_8x7b", "gemma_2b", "gemma2_9b", "gemma3_1b", "falcon_7b", "falcon_40b", "phi_2", "phi3_mini",
                           "gpt2", "gpt_neox_20b", "deepseek_v2_lite", "deepseek_v3"}) {
    INFO(name);
    const Result<Geometry> read = resolve_model(presets(), hf_directory(name));
    REQUIRE(read.ok());
    Geometry from_config = *read;
    Geometry from_preset = preset(name);
    from_preset.label = from_config.label;  // a config.json states neither label nor hub id
    from_preset.hub_id = from_config.hub_id;
    from_preset.source = from_config.source;
    CHECK(from_config.family == from_preset.family);
    CHECK(from_config.layer_class == from_preset.layer_class);
    CHECK(from_config.rope_base == from_preset.rope_base);
    CHECK(from_config.norm_epsilon == from_preset.norm_epsilon);
    CHECK(from_config.rope_scaled == from_preset.rope_scaled);
    CHECK(from_config.activation == from_preset.activation);
    CHECK(from_config.max_positions == from_preset.max_positions);
    CHECK(from_config.sliding_window == from_preset.sliding_window);
    CHECK((from_config == from_preset));
  }
}

TEST_CASE("counts: the from-scratch table in its three readings") {
  for (const ScratchRow& row : kScratch) {
    INFO(row.size);
    CHECK(count_parameters(scratch_geometry(row, row.num_kv_heads, 4 * row.hidden)).total == row.as_built);
    CHECK(count_parameters(scratch_geometry(row, row.num_heads, 4 * row.hidden)).total == row.wide_one_kv_per_head);
    CHECK(count_parameters(preset(std::string("scratch_") + row.size)).total == row.llama_shaped);
    const bool runs = row.num_heads % row.num_kv_heads == 0;
    CHECK(count_parameters(preset(std::string("scratch_") + row.size + "_wide")).total ==
          (runs ? row.as_built : row.wide_one_kv_per_head));
  }
}

TEST_CASE("counts: a two-matrix feed-forward of 4 times hidden gives the labels of the from-scratch table") {
  const double expected_in_billions[] = {0.3676, 1.339, 3.368, 6.705, 12.911, 32.324, 64.950};
  for (size_t i = 0; i < std::size(kScratch); ++i) {
    INFO(kScratch[i].size);
    Geometry g = scratch_geometry(kScratch[i], kScratch[i].num_heads, 4 * kScratch[i].hidden);
    g.gated_mlp = false;
    CHECK(static_cast<double>(count_parameters(g).total) / 1e9 == Approx(expected_in_billions[i]).margin(0.0006));
  }
  Geometry llama2_70b = scratch_geometry(kScratch[6], 8, 28672);
  CHECK(count_parameters(llama2_70b).total == 68'976'648'192);
}

TEST_CASE("counts: active parameters of expert models") {
  CHECK(count_parameters(preset("mixtral_8x7b")).active == 12'879'925'248);
  CHECK(static_cast<double>(count_parameters(preset("qwen3_30b_a3b")).active) / 1e9 == Approx(3.353).margin(0.0006));
  const ParameterCount dense = count_parameters(preset("llama3_8b"));
  CHECK(dense.active == dense.total);
}

TEST_CASE("counts: the parts sum to the total") {
  for (const char* name : {"llama3_8b", "llama3.2_1b", "gpt2", "phi_2", "quickstart"}) {
    INFO(name);
    const Geometry g = preset(name);
    const ParameterCount count = count_parameters(g);
    CHECK(count.embedding + count.head + count.final_norm + g.num_layers * count.per_layer == count.total);
    CHECK((count.head == 0) == g.tied_embeddings);
  }
}

TEST_CASE("counts: the first line of a preset states its true count") {
  for (const std::string& id : preset_ids(presets(), "models")) {
    INFO(id);
    const std::string_view text = find_preset(presets(), "models", id)->text;
    REQUIRE(text.starts_with("# "));
    std::string digits;
    for (const char c : text.substr(2, text.find(" parameters") - 2)) {
      if (c != ',') digits += c;
    }
    CHECK(digits == std::to_string(count_parameters(preset(id)).total));
  }
}

TEST_CASE("flops: 6 per matmul parameter and half of the sequence in attention") {
  const Geometry g = preset("llama2_7b");
  // Matmul parameters: all but the embedding and the norms.
  const double matmul = 6'738'415'616.0 - 32000.0 * 4096 - 65.0 * 4096;
  const double forward = 2 * matmul + 32 * 2 * (4096.0 / 2) * 32 * (128 + 128);
  CHECK(token_flops(g, 4096).forward == Approx(forward).epsilon(1e-12));
  CHECK(token_flops(g, 4096).train == Approx(3 * forward).epsilon(1e-12));
}

TEST_CASE("flops: tied heads count, windows cap, experts count by top-k") {
  const Geometry tied = preset("llama3.2_1b");
  Geometry untied = tied;
  untied.tied_embeddings = false;
  CHECK(token_flops(tied, 2048).forward == token_flops(untied, 2048).forward);

  const Geometry mistral = preset("mistral_7b");
  Geometry global = mistral;
  global.sliding_window = 0;
  CHECK(token_flops(mistral, 4096).forward == token_flops(global, 4096).forward);
  const double saved = token_flops(global, 16384).forward - token_flops(mistral, 16384).forward;
  CHECK(saved == Approx(32 * 2.0 * (8192 - 4096 * (1 - 4096.0 / 32768)) * 32 * 256).epsilon(1e-9));

  const Geometry mixtral = preset("mixtral_8x7b");
  const double no_attention = token_flops(mixtral, 0).forward;
  const double active_matmul = 12'879'925'248.0 - 32000.0 * 4096 - 65.0 * 4096;
  CHECK(no_attention == Approx(2 * active_matmul).epsilon(1e-12));

  const Geometry deepseek = preset("deepseek_v2_lite");
  const double per_position = token_flops(deepseek, 2).forward - token_flops(deepseek, 0).forward;
  CHECK(per_position == Approx(27 * 2.0 * 16 * (128 + 64 + 128)).epsilon(1e-6));
}

TEST_CASE("regression 46: a preset label further than 5 % from its count is noted") {
  const std::optional<Diagnostic> note = label_note(preset("1B"));
  REQUIRE(note);
  CHECK(note->code == code::kLabelOff);
  CHECK(note->severity == Severity::kNote);
  CHECK(note->message == "'llama3.2_1b' is called 1B but has 1,235,814,400 parameters (+24 %)");
  CHECK_FALSE(label_note(preset("70B")));
  CHECK_FALSE(label_note(preset("llama2_7b")));
  CHECK_FALSE(label_note(preset("quickstart")));  // no label
  CHECK(label_note(preset("mixtral_8x7b"))->message == "'mixtral_8x7b' is called 8x7B but has 46,702,792,704 parameters (-17 %)");
  // Every from-scratch label that the table has off by more than 5 %.
  for (const char* name :
       {"scratch_350m", "scratch_1b", "scratch_3b", "scratch_30b", "scratch_70b", "scratch_350m_wide", "scratch_1b_wide",
        "scratch_3b_wide", "scratch_7b_wide", "scratch_13b_wide", "scratch_30b_wide", "scratch_70b_wide"}) {
    INFO(name);
    CHECK(label_note(preset(name)));
  }
  for (const char* name : {"scratch_7b", "scratch_13b"}) CHECK_FALSE(label_note(preset(name)));
}

}  // namespace distsetup
