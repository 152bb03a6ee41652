// A run starts from published weights: every family, type and mesh gets exactly the files' values; what cannot be read is an error
// that names file and tensor; memory stays at the shard and two pieces. Without processes: each rank's part is called in turn.
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "plan/published_order.h"
#include "runtime/checkpoint/load_weights.h"
#include "runtime/expert_cases.h"
#include "runtime/family_cases.h"
#include "support/published_folder.h"
#include "support/temporary_directory.h"
#include "weights/match.h"
#include "weights/read_box.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

struct MeshCase {
  Mesh mesh;
  Sharding sharding = Sharding::kZero3;
};

std::vector<MeshCase> meshes() {
  return {{{}, Sharding::kDdp},
          {{.dp_replicate = 2}, Sharding::kDdp},
          {{.dp_shard = 2}, Sharding::kZero1},
          {{.dp_shard = 3}, Sharding::kZero2},
          {{.dp_shard = 2}, Sharding::kZero3},
          {{.dp_shard = 3}, Sharding::kZero3},
          {{.dp_replicate = 2, .dp_shard = 2}, Sharding::kZero3},
          {{.cp = 2}, Sharding::kZero3},
          {{.tp = 2}, Sharding::kDdp},
          {{.dp_shard = 2, .tp = 2}, Sharding::kZero3},
          {{.dp_shard = 2, .ep = 2}, Sharding::kZero3},
          {{.dp_replicate = 2, .dp_shard = 4, .ep = 2}, Sharding::kZero1},
          {{.dp_shard = 2, .ep = 2}, Sharding::kDdp},
          {{.dp_shard = 2, .tp = 2, .ep = 2}, Sharding::kZero3},
          {{.pp = 2, .dp_shard = 2, .ep = 2}, Sharding::kZero2},
          {{.pp = 2}, Sharding::kDdp},
          {{.pp = 2, .dp_shard = 3, .tp = 2}, Sharding::kZero3}};
}

// One rank's state, with values that loading has to replace.
struct RankState {
  Layout layout;
  Coordinates at;
  std::vector<float> master, moment1, moment2;
  RankState(const Geometry& geometry, const MeshCase& of, int rank)
      : layout(make_layout(geometry, of.mesh, of.sharding, coordinates(of.mesh, rank).pp)),
        at(coordinates(of.mesh, rank)),
        master(size_t(layout.shard_numel), 77.0f),
        moment1(master),
        moment2(master) {}
  ShardState state() { return {&layout, at, master, {{"exp_avg", moment1}, {"exp_avg_sq", moment2}}}; }

  // Elements that are not what the folder holds; padding has to be zero.
  int64_t num_wrong(int64_t& num_seen) const {
    std::vector<float> expected(master.size(), 0.0f);
    for (const UnitLayout& unit : layout.units) {
      const ElementRange range = owned_range(unit, shard_index(layout, unit, at));
      for (const Parameter& p : unit.parameters) {
        const ElementRange part = owned_part(layout, unit, p, at);
        for (int64_t i = part.begin; i < part.end; ++i) {
          const int64_t element = full_element(p, at.tp, i - p.offset);
          if (element < 0) continue;
          expected[size_t(unit.shard_offset + i - range.begin)] =
              published::value_of(p.name, published_element(p, layout.geometry, element));
          ++num_seen;
        }
      }
    }
    int64_t wrong = 0;
    for (size_t i = 0; i < master.size(); ++i) wrong += master[i] != expected[i] || moment1[i] != 0 || moment2[i] != 0;
    return wrong;
  }
};

std::vector<tiny::FamilyCase> all_families() {
  std::vector<tiny::FamilyCase> out = tiny::families();
  for (const std::string experts : {"mixtral", "qwen2", "glm4"}) out.push_back({experts, tiny::expert_geometry(experts)});
  Geometry g = tiny::of("llama");
  g.qkv_bias = g.mlp_bias = true;
  out.push_back({"llama", g});
  g.tied_embeddings = true;
  out.push_back({"llama_tied", g});
  g = tiny::of("qwen3");
  g.qk_norm = true;
  out.push_back({"qwen3", g});
  g = tiny::of("phi3");
  out.push_back({"phi3", g});
  g = tiny::with_layer_norm("gpt_bigcode");
  g.num_kv_heads = 1, g.learned_positions = 16, g.tied_embeddings = true;
  out.push_back({"gpt_bigcode", g});
  g = tiny::with_layer_norm("falcon");  // 40B: groups of heads
  g.parallel_block = true, g.qkv_bias = g.output_bias = g.mlp_bias = false;
  out.push_back({"falcon_40b", g});
  for (tiny::FamilyCase& one : out) one.geometry.feed_forward = 38;  // divisible by two ranks
  return out;
}

std::string load_problem(const WeightsFolder& folder, const Geometry& geometry, const MeshCase& mesh = {}) {
  RankState rank(geometry, mesh, 0);
  const Diagnostics found = load_weights(folder, rank.state());
  return found.empty() ? "" : found.front().message;
}

TEST_CASE("weights: every family, type and mesh gets the files' values, and padding zeros") {
  int num_meshes = 0;
  for (const tiny::FamilyCase& family : all_families()) {
    for (const auto& [dtype, num_files] : {std::pair{"F32", size_t(1)}, {"BF16", size_t(3)}, {"F16", size_t(2)}}) {
      TemporaryDirectory folder;
      published::write_folder(folder.path(), published::tensors_of(family.geometry, dtype), num_files);
      const Result<WeightsFolder> read = read_weights_folder(folder.path());
      INFO(family.name << " " << dtype << " " << format_diagnostics(read.diagnostics));
      REQUIRE(read.ok());
      REQUIRE(read->plan.files.size() == num_files);
      for (const MeshCase& mesh : meshes()) {
        if (has_error(check_native(family.geometry, {.tp = mesh.mesh.tp, .ep = mesh.mesh.ep}))) continue;
        ++num_meshes;
        int64_t wrong = 0, seen = 0;
        for (int r = 0; r < mesh.mesh.world(); ++r) {
          RankState rank(family.geometry, mesh, r);
          const Diagnostics found = load_weights(*read, rank.state());
          INFO("rank " << r << " of pp " << mesh.mesh.pp << " tp " << mesh.mesh.tp << " " << format_diagnostics(found));
          REQUIRE(found.empty());
          wrong += rank.num_wrong(seen);
        }
        CHECK(wrong == 0);
        CHECK(seen >= make_layout(family.geometry, {}).numel);
      }
    }
  }
  CHECK(num_meshes > 400);
}

TEST_CASE("weights: ranks read the bytes of their own boxes, and together every byte once") {
  const Geometry geometry = all_families().back().geometry;
  TemporaryDirectory folder;
  published::write_folder(folder.path(), published::tensors_of(geometry, "BF16"));
  const Result<WeightsFolder> read = read_weights_folder(folder.path());
  REQUIRE(read.ok());
  const Result<MatchedWeights> matched = match_weights(*read, geometry);
  REQUIRE(matched.ok());
  int64_t total = 0;
  for (int r = 0; r < 3; ++r) {
    RankState rank(geometry, {{.dp_shard = 3}}, r);
    BoxReader reader(*read, geometry);
    for (const UnitLayout& unit : rank.layout.units)
      for (const Parameter& p : unit.parameters)
        for (const Box& box : boxes_of(rank.layout, unit, p, rank.at))
          REQUIRE(reader.read(p, *matched->tensors.at(p.name), box, rank.master.data() + box.shard_offset).empty());
    CHECK(reader.bytes_read() <= 2 * rank.layout.shard_numel);
    total += reader.bytes_read();
  }
  CHECK(total == 2 * make_layout(geometry, {}).numel);
}

TEST_CASE("weights: a tied head that is published too has to be the embedding") {
  Geometry geometry = tiny::of("llama");
  geometry.tied_embeddings = true;
  std::vector<published::Tensor> tensors = published::tensors_of(geometry, "BF16");
  published::Tensor head = tensors.front();
  head.name = "lm_head.weight";
  head.dtype = "F32";
  tensors.push_back(head);
  {
    TemporaryDirectory folder;
    published::write_folder(folder.path(), tensors);
    CHECK(load_problem(*read_weights_folder(folder.path()), geometry) == "");
  }
  tensors.back().values.back() += 1;
  TemporaryDirectory folder;
  published::write_folder(folder.path(), tensors);
  CHECK_THAT(load_problem(*read_weights_folder(folder.path()), geometry),
             Catch::StartsWith("'lm_head.weight' and 'model.embed_tokens.weight' differ in '"));
}

TEST_CASE("weights: a file that was cut off, changed or cannot be read is an error with its name") {
  const Geometry geometry = tiny::of("llama");
  TemporaryDirectory folder;
  published::write_folder(folder.path(), published::tensors_of(geometry, "F32"), 2);
  WeightsFolder read = *read_weights_folder(folder.path());
  Plan plan;
  plan.model = geometry;
  plan.weights = read.plan;
  CHECK(open_weights(plan, "").ok());

  const std::string file = folder.path("model-2.safetensors");
  plan.weights.files[1].header_sha256 = std::string(64, '0');
  CHECK_THAT(open_weights(plan, "").diagnostics.front().message,
             Catch::Contains("'" + file + "' is not the file that was planned with: it has the header digest"));
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 100);
  CHECK_THAT(open_weights(plan, "").diagnostics.front().message, Catch::Contains(file) && Catch::Contains("bytes, expected"));
  CHECK_THAT(load_problem(read, geometry), Catch::StartsWith("cannot read tensor '") && Catch::Contains(file) &&
                                               Catch::EndsWith("the file ends early"));  // cut off while it is read
  std::filesystem::remove(file);
  CHECK_THAT(load_problem(read, geometry), Catch::Contains("cannot read '" + file + "', no such file"));
  std::filesystem::create_symlink("/proc/self/mem", file);  // reads of what is not mapped fail as a bad disk does
  CHECK_THAT(load_problem(read, geometry), Catch::Contains(file) && Catch::EndsWith("input/output error"));
}

int64_t high_water_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  for (int64_t kib = 0; status >> word;)
    if (word == "VmHWM:" && status >> kib) return kib << 10;
  return -1;
}

// The head and the embedding are 4 GB in bf16; a rank of 256 owns 17 MB of them.
TEST_CASE("weights: loading takes the shard and little more, however large the tensors") {
  Geometry geometry = tiny::of("llama");
  geometry.vocabulary = 1 << 25;
  TemporaryDirectory folder;
  std::vector<published::Tensor> small = published::tensors_of(tiny::of("llama"), "BF16");
  Json header = Json::object();
  int64_t offset = 0;
  for (const UnitLayout& unit : make_layout(geometry, {}).units) {
    for (const Parameter& p : unit.parameters) {
      header[p.name] = {{"dtype", "BF16"}, {"shape", published_shape(p)}, {"data_offsets", {offset, offset + 2 * full_numel(p)}}};
      offset += 2 * full_numel(p);
    }
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  published::write(folder.path("model.safetensors"), std::string(reinterpret_cast<const char*>(&length), 8) + text);
  std::filesystem::resize_file(folder.path("model.safetensors"), uintmax_t(8 + int64_t(length) + offset));  // sparse: no disk is taken
  REQUIRE(offset > int64_t{4} << 30);
  const Result<WeightsFolder> read = read_weights_folder(folder.path());
  REQUIRE(read.ok());
  RankState rank(geometry, {{.dp_shard = 256}}, 3);
  std::ofstream("/proc/self/clear_refs") << "5";  // the high-water mark begins again
  const int64_t before = high_water_bytes();
  REQUIRE(load_weights(*read, rank.state()).empty());
  REQUIRE(before > 0);
  CHECK(high_water_bytes() - before <= int64_t{128} << 20);
  CHECK(rank.master[0] == 0.0f);
}

TEST_CASE("weights: tensors are compared by name, with buffers that nobody reads and names without the prefix let through") {
  Geometry geometry = tiny::with_layer_norm("gpt2");
  geometry.learned_positions = 16, geometry.tied_embeddings = true;
  std::vector<published::Tensor> tensors = published::tensors_of(geometry, "F32");
  const auto problem = [&](const std::vector<published::Tensor>& of) {
    TemporaryDirectory folder;
    published::write_folder(folder.path(), of);
    const Result<WeightsFolder> read = read_weights_folder(folder.path());
    REQUIRE(read.ok());
    const Result<MatchedWeights> matched = match_weights(*read, geometry);
    if (!matched.ok()) return matched.diagnostics.front().message.substr(folder.path().size());
    return load_problem(*read, geometry);
  };
  std::vector<published::Tensor> published_in_2019 = tensors;  // as GPT-2 itself is
  for (published::Tensor& t : published_in_2019) t.name = t.name.substr(std::strlen("transformer."));
  published_in_2019.push_back({"h.0.attn.bias", {1, 1, 2, 2}, "F32", {1, 0, 1, 1}});
  CHECK(problem(published_in_2019) == "");

  std::vector<published::Tensor> quantised = tensors;
  quantised[2].dtype = "F8_E4M3";
  CHECK_THAT(problem(quantised), Catch::EndsWith("1 of a type that is not read: '" + tensors[2].name + "' is F8_E4M3"));
  tensors[2].shape = {3, 5};
  tensors[2].values.resize(15);
  tensors.erase(tensors.begin() + 4);
  tensors.push_back({"score.weight", {2}, "F32", {1, 2}});
  tensors[0] = {tensors[0].name, {2}, "F32", {1, 2}};
  const std::string said = problem(tensors);
  CHECK_THAT(said, Catch::Contains("1 missing: 'transformer.h.0.attn.c_attn.weight'"));
  CHECK_THAT(said, Catch::Contains("1 unexpected: 'score.weight'"));
  CHECK_THAT(said, Catch::Contains("2 of another shape: 'transformer.wte.weight' is [2], expected [53, 32]"));
}

}  // namespace
}  // namespace distsetup
