// Folders of published weights: what is found in them, how values are converted, where downloaded models are, how files are exported.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "base/file.h"
#include "base/json.h"
#include "base/value_yaml.h"
#include "model/families.h"
#include "model/hf_write.h"
#include "plan/native_program.h"
#include "planner/spec/spec.h"
#include "planner/spec/spec_text.h"
#include "support/published_folder.h"
#include "support/temporary_directory.h"
#include "weights/export_tensors.h"
#include "weights/folder.h"
#include "weights/hub_cache.h"
#include "weights/match.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

std::string problem_of(const std::string& folder) {
  const Result<WeightsFolder> read = read_weights_folder(folder);
  return read.ok() ? "" : read.diagnostics.front().message;
}

Geometry small_geometry() {
  Geometry g;
  g.family = "llama";
  g.num_layers = 3;
  g.hidden = 32, g.num_heads = 4, g.num_kv_heads = 2, g.head_size = 8, g.feed_forward = 64, g.vocabulary = 300;
  return g;
}

TEST_CASE("weights: every fp16 and bf16 value survives, and rounding is to nearest even") {
  for (const StoredType type : {StoredType::kF16, StoredType::kBf16}) {
    int num_lost = 0;
    for (uint32_t bits = 0; bits < 1 << 16; ++bits) {
      const auto stored = static_cast<uint16_t>(bits);
      float value = 0;
      uint16_t back = 0;
      widen(type, &stored, 1, &value);
      narrow(type, &value, 1, &back);
      const bool is_nan = std::isnan(value);
      num_lost += !is_nan && back != stored;
      if (is_nan) {
        widen(type, &back, 1, &value);
        num_lost += !std::isnan(value);
      }
    }
    CHECK(num_lost == 0);
  }
  const auto rounded = [](StoredType type, float value) {
    uint16_t bits = 0;
    float back = 0;
    narrow(type, &value, 1, &bits);
    widen(type, &bits, 1, &back);
    return back;
  };
  CHECK(rounded(StoredType::kBf16, 1 + 0x1p-8f) == 1);  // a tie goes to the even one
  CHECK(rounded(StoredType::kBf16, 1 + 0x3p-8f) == 1 + 0x1p-6f);
  CHECK(rounded(StoredType::kBf16, 1 + 0x1p-8f + 0x1p-20f) == 1 + 0x1p-7f);
  CHECK(rounded(StoredType::kF16, 1 + 0x1p-11f) == 1);
  CHECK(rounded(StoredType::kF16, 1 + 0x3p-11f) == 1 + 0x1p-9f);
  CHECK(rounded(StoredType::kF16, 0x1p-25f) == 0);
  CHECK(rounded(StoredType::kF16, 0x3p-26f) == 0x1p-24f);
  CHECK(rounded(StoredType::kF16, 65519.0f) == 65504);
  CHECK(rounded(StoredType::kF16, -0.0f) == 0);
}

TEST_CASE("weights: a value beyond fp16 is told, infinity is not") {
  uint16_t bits = 0;
  for (const float value : {65504.0f, -65504.0f, std::numeric_limits<float>::infinity()})
    CHECK(narrow(StoredType::kF16, &value, 1, &bits));
  for (const float value : {65520.0f, -1e6f}) CHECK_FALSE(narrow(StoredType::kF16, &value, 1, &bits));
}

TEST_CASE("weights: a folder is read by its index, and what does not belong together is refused") {
  const std::vector<published::Tensor> tensors = {{"a", {2}, "F32", {1, 2}}, {"b", {2, 2}, "BF16", {1, 2, 3, 4}}};
  TemporaryDirectory folder;
  published::write_folder(folder.path(), tensors, 2);
  const Result<WeightsFolder> read = read_weights_folder(folder.path());
  REQUIRE(read.ok());
  CHECK(read->tensors.at("b").entry.shape == std::vector<int64_t>{2, 2});
  CHECK(read->plan.files[read->tensors.at("b").file].path == "model-2.safetensors");
  CHECK(read->plan.files[0].header_sha256.size() == 64);

  const std::string index = folder.path("model.safetensors.index.json");
  published::write(index, R"({"weight_map": {"a": "model-1.safetensors", "b": "model-1.safetensors"}})");
  CHECK_THAT(problem_of(folder.path()), Catch::Contains("tensor 'b' is in 'model-1.safetensors', which has none of this name"));
  published::write(index, R"({"weight_map": {"a": "../model-1.safetensors"}})");
  CHECK_THAT(problem_of(folder.path()), Catch::EndsWith("expected the name of a file beside it"));
  published::write(index, R"({"weight_map": {"a": "model-1.safetensors", "b": "model-3.safetensors"}})");
  CHECK_THAT(problem_of(folder.path()), Catch::Contains("model-3.safetensors', no such file"));
  published::write(folder.path("model-3.safetensors"), published::file_of(tensors));
  CHECK_THAT(problem_of(folder.path()), Catch::Contains("tensor 'a' is in 'model-1.safetensors' and in 'model-3.safetensors'"));
  published::write(index, "[]");
  CHECK_THAT(problem_of(folder.path()), Catch::Contains("no 'weight_map'"));
  CHECK_THAT(problem_of(folder.path("nowhere")), Catch::StartsWith("no folder '"));
}

TEST_CASE("weights: other formats are named") {
  TemporaryDirectory folder;
  CHECK_THAT(problem_of(folder.path()), Catch::StartsWith("no model.safetensors and no model.safetensors.index.json in '"));
  folder.write("model.Q4_K_M.gguf", "GGUF");
  CHECK_THAT(problem_of(folder.path()), Catch::EndsWith("has GGUF weights, such as 'model.Q4_K_M.gguf', expected safetensors"));
  folder.write("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12345\n");
  CHECK_THAT(problem_of(folder.path()), Catch::EndsWith("is a pointer of Git LFS, and its content is elsewhere"));
  folder.write("model.safetensors", "ver");
  CHECK_THAT(problem_of(folder.path()), Catch::Contains("is not a valid safetensors file"));
}

TEST_CASE("weights: downloaded models are found where huggingface_hub puts them") {
  TemporaryDirectory home;
  home.write(".cache/huggingface/hub/models--org--tiny/refs/main", "abc123");
  home.write(".cache/huggingface/hub/models--org--tiny/snapshots/abc123/config.json", "{}");
  home.write("other/hub/models--org--half/refs/main", "abc");
  std::map<std::string, std::string> variables = {{"HOME", home.path()}};
  const auto variable = [&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  CHECK(*find_in_hub_cache("org/tiny", {}, variable) == home.path(".cache/huggingface/hub/models--org--tiny/snapshots/abc123"));
  variables["HF_HOME"] = home.path("other");
  const Result<std::string> gone = find_in_hub_cache("org/tiny", {}, variable);
  REQUIRE_FALSE(gone.ok());
  CHECK(gone.diagnostics.front().help == "download it: hf download org/tiny");
  CHECK_FALSE(find_in_hub_cache("org/half", {}, variable).ok());
  variables["HF_HUB_CACHE"] = home.path(".cache/huggingface/hub");
  CHECK(find_in_hub_cache("org/tiny", {}, variable).ok());
  CHECK(is_hub_id("meta-llama/Llama-3.1-8B"));
  for (const char* name : {"8B", "./model", "../model", "a/b/c", "/model", "model/", "a b/c"}) CHECK_FALSE(is_hub_id(name));
}

TEST_CASE("weights: a run file names them beside the model") {
  const auto spec_of = [](const std::string& model) {
    const Result<Spec> spec = spec_from_value(*parse_yaml("version: 1\nmodel: " + model + "\n", "run.yaml"));
    REQUIRE(spec.ok());
    return *spec;
  };
  CHECK(spec_of("{base: 8B, weights: llama}").text("model") == "8B");
  CHECK(spec_of("{base: 8B, weights: llama}").text("model.weights") == "llama");
  CHECK(spec_of("{weights: llama}").text("model") == "llama");
  const Spec changed = spec_of("{base: 8B, vocabulary: 300, weights: llama}");
  REQUIRE(changed.model.has_value());
  CHECK(changed.model->find("weights") == nullptr);
  for (const char* model : {"{base: 8B, weights: llama}", "{weights: llama}", "{base: 8B, vocabulary: 300, weights: llama}"}) {
    const Spec spec = spec_of(model);
    const Result<Spec> again = spec_from_value(*parse_yaml(to_yaml(spec), "run.yaml"));
    REQUIRE(again.ok());
    CHECK(canonical_text(*again) == canonical_text(spec));
  }
}

TEST_CASE("weights: a text model is found beside a tower for pictures, which an export writes again") {
  struct Folder {
    FolderNames names;
    std::string norm, tower;
  };
  const Geometry g = small_geometry();
  for (const Folder& f : {Folder{FolderNames::kOwn, "model.norm.weight", "visual.blocks.0.weight"},
                          Folder{FolderNames::kBesideOthers, "language_model.model.norm.weight", "vision_tower.norm.weight"},
                          Folder{FolderNames::kInsideModel, "model.language_model.norm.weight", "model.visual.norm.weight"}}) {
    INFO(f.tower);
    std::vector<published::Tensor> tensors = published::tensors_of(g, "BF16");
    for (published::Tensor& tensor : tensors) tensor.name = name_in_folder(f.names, tensor.name);
    CHECK(std::any_of(tensors.begin(), tensors.end(), [&](const published::Tensor& t) { return t.name == f.norm; }));
    tensors.push_back({f.tower, {3}, "BF16", {1, 2, 3}});
    TemporaryDirectory folder;
    published::write_folder(folder.path(), tensors, 2);
    const Result<WeightsFolder> read = read_weights_folder(folder.path());
    REQUIRE(read.ok());
    const Result<MatchedWeights> matched = match_weights(*read, g);
    REQUIRE(matched.ok());
    CHECK(matched->names == f.names);
    CHECK(matched->tensors.at("model.norm.weight")->entry.name == f.norm);
    REQUIRE(matched->others.size() == 1);
    const PublishedTensor& tower = *matched->others[0];
    CHECK(tower.entry.name == f.tower);
    const OtherParts others = {f.names, {{tower.entry, folder.path(read->plan.files[tower.file].path)}}};
    const std::vector<ExportedFile> files = exported_files(g, StoredType::kBf16, 20'000, others);
    CHECK(files.size() > 1);
    CHECK(files.back().copied.size() == 1);
    const Json index = Json::parse(exported_index(files, StoredType::kBf16));
    CHECK(index["weight_map"].size() == tensors.size());
    for (const published::Tensor& tensor : tensors) CHECK(index["weight_map"].contains(tensor.name));
    TemporaryDirectory out;
    const ReadParameter ones = [](const Parameter&, const Box& box, float* values) {
      std::fill_n(values, box.numel(), 1.0f);
      return Diagnostics{};
    };
    REQUIRE(write_exported_file(files.back(), g, StoredType::kBf16, ones, out.path()).empty());
    const std::string bytes = *read_file(out.path(files.back().name)), before = *read_file(others.tensors[0].path);
    const TensorEntry again = read_safetensors_header(out.path(files.back().name))->tensors.at(f.tower);
    CHECK(bytes.substr(size_t(again.begin), 6) == before.substr(size_t(tower.entry.begin), 6));
  }
  // A tensor of no part that is known is one too many.
  std::vector<published::Tensor> tensors = published::tensors_of(g, "BF16");
  tensors.push_back({"vision_tower.norm.weight", {3}, "BF16", {1, 2, 3}});
  TemporaryDirectory folder;
  published::write_folder(folder.path(), tensors, 1);
  const Result<MatchedWeights> matched = match_weights(*read_weights_folder(folder.path()), g);
  REQUIRE_FALSE(matched.ok());
  CHECK_THAT(matched.diagnostics[0].message, Catch::Contains("1 unexpected: 'vision_tower.norm.weight'"));
}

TEST_CASE("weights: files of an export are full but not over, and hold every parameter once") {
  const Geometry g = small_geometry();
  const std::vector<ExportedFile> one = exported_files(g, StoredType::kBf16, 5'000'000'000);
  REQUIRE(one.size() == 1);
  CHECK(one[0].name == "model.safetensors");
  const std::vector<ExportedFile> files = exported_files(g, StoredType::kBf16, 20'000);
  CHECK(files.size() == 5);
  CHECK(files[1].name == "model-00002-of-00005.safetensors");
  std::set<std::string> names;
  for (const ExportedFile& file : files) {
    int64_t bytes = 0;
    for (const Parameter& p : file.parameters) bytes += 2 * full_numel(p), names.insert(p.name);
    CHECK((bytes <= 20'000 || file.parameters.size() == 1));
  }
  CHECK(names.size() == one[0].parameters.size());
  const Json index = Json::parse(exported_index(files, StoredType::kBf16));
  CHECK(index["weight_map"].size() == names.size());
  CHECK(index["metadata"]["total_size"] == 2 * make_layout(g, {}).numel);
}

TEST_CASE("weights: every preset that the bundled trainer runs has a config.json that reads back as it") {
  const Result<Presets> presets = load_presets();
  REQUIRE(presets.ok());
  int num_written = 0;
  std::set<std::string> families;
  for (const std::string& id : preset_ids(*presets, "models")) {
    const Result<Geometry> geometry = find_model(*presets, id);
    if (!geometry.ok() || has_error(check_native(*geometry))) continue;
    const Result<Json> config = hf_config_of(*presets, *geometry, "bfloat16");
    INFO(id << " " << format_diagnostics(config.diagnostics));
    if (config.ok()) families.insert(geometry->family);
    // Models that are planned as one of our families, with what its config.json has no key for.
    const bool is_other = std::set<std::string>{"afm_4.5b", "internlm_20b", "internlm_7b", "tiny_qwen"}.contains(id);
    CHECK((config.ok() != is_other || !is_family(*presets, geometry->family)));
    num_written += config.ok();
  }
  CHECK(num_written > 30);
  for (const char* family :
       {"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "olmo2", "gpt2", "gpt_neox", "falcon"})
    CHECK(families.contains(family));
}

}  // namespace
}  // namespace distsetup
