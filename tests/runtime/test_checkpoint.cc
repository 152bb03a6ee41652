// Checkpoints: format, every mesh loads every other's, what a crash or a broken file leaves, retention. Without processes: each rank's
// part is called in turn.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/load.h"
#include "runtime/expert_cases.h"
#include "support/seed.h"
#include "support/temporary_directory.h"
#include "weights/stored_checkpoint.h"

using namespace distsetup;
namespace fs = std::filesystem;

namespace {

Geometry geometry_of(int64_t hidden, int64_t layers) {
  Geometry geometry;
  geometry.name = geometry.family = "llama";
  geometry.num_layers = layers;
  geometry.hidden = hidden;
  geometry.num_heads = 4;
  geometry.num_kv_heads = 2;
  geometry.head_size = hidden / 4;
  geometry.feed_forward = hidden * 3 - 2;
  geometry.vocabulary = 37;
  return geometry;
}

// All ranks' states of one mesh, filled so that element i of the whole parameter number p is p · 1000003 + i in the master and shifted
// in the moments.
struct Ranks {
  Layout layout;
  std::vector<int> writers;
  std::map<std::string, int64_t> numbers;                 // of parameters, by name
  std::vector<std::array<std::vector<float>, 3>> values;  // by writer
  Ranks(const Geometry& geometry, int dp_replicate, int dp_shard, int tp = 1, int cp = 1, int ep = 1)
      : Ranks(geometry, {.dp_replicate = dp_replicate, .dp_shard = dp_shard, .cp = cp, .tp = tp, .ep = ep},
              dp_shard > 1 ? Sharding::kZero3 : Sharding::kDdp) {}
  Ranks(const Geometry& geometry, const Mesh& mesh, Sharding sharding)
      : layout(make_layout(geometry, mesh, sharding)), writers(writer_ranks(layout)) {
    values.resize(writers.size());
    for (auto& rank : values) {
      for (auto& state : rank) state.assign(static_cast<size_t>(layout.shard_numel), 0.0f);
    }
    for (const UnitLayout& unit : make_layout(geometry, {}).units)
      for (const Parameter& parameter : unit.parameters) numbers.emplace(parameter.name, static_cast<int64_t>(numbers.size()));
  }
  ShardState state(size_t writer) {
    auto& rank = values[writer];
    return {&layout, coordinates(layout.mesh, writers[writer]), rank[0], {{"exp_avg", rank[1]}, {"exp_avg_sq", rank[2]}}};
  }
  static float value(int64_t parameter, int64_t element, int64_t state, int64_t seed) {
    const uint32_t bits = static_cast<uint32_t>((parameter * 1000003 + element) * 2654435761u + state * 40503u + seed * 97u);
    return static_cast<float>(bits >> 8) * 0x1p-20f - 4.0f;
  }
  template <class F>
  void for_each(F&& f) {  // f(value&, expected) for every element of every state
    for (size_t w = 0; w < writers.size(); ++w) {
      const Coordinates at = coordinates(layout.mesh, writers[w]);
      for (const UnitLayout& unit : layout.units) {
        const ElementRange range = owned_range(unit, shard_index(layout, unit, at));
        for (const Parameter& parameter : unit.parameters) {
          const ElementRange part = owned_part(layout, unit, parameter, at);
          for (int64_t i = part.begin; i < part.end; ++i) {
            const int64_t element = full_element(parameter, at.tp, i - parameter.offset);
            for (size_t s = 0; s < 3 && element >= 0; ++s)
              f(values[w][s][static_cast<size_t>(unit.shard_offset + i - range.begin)], numbers.at(parameter.name), element,
                static_cast<int64_t>(s));
          }
        }
      }
    }
  }
  void fill(int64_t seed = 0) {
    for_each([seed](float& x, int64_t p, int64_t i, int64_t s) { x = value(p, i, s, seed); });
  }
  int64_t num_wrong(int64_t seed = 0) {
    int64_t wrong = 0, seen = 0;
    for_each([&](float& x, int64_t p, int64_t i, int64_t s) { ++seen, wrong += x == value(p, i, s, seed) ? 0 : 1; });
    const bool has_copies = layout.mesh.ep > 1 && layout.sharding == Sharding::kDdp;  // of all but experts
    CHECK((has_copies ? seen > 3 * layout.numel : seen == 3 * layout.numel));
    return wrong;
  }
};

CheckpointMetadata metadata_of(int64_t step) {
  return {.step = step,
          .tokens = step * 64,
          .loss = 1.25 / static_cast<double>(step + 1),
          .learning_rate = 3e-4,
          .cursor = {1, 7, step * 8, step * 64},
          .seed = 11,
          .data_digest = std::string(64, 'a')};
}

Diagnostics save(const std::string& directory, Ranks& ranks, int64_t step) {
  Diagnostics found = begin_checkpoint(directory, step);
  if (has_error(found)) return found;
  std::map<std::string, FileDigest> files;
  for (size_t w = 0; w < ranks.writers.size(); ++w) {
    const int rank = ranks.writers[w];
    const Result<std::map<std::string, FileDigest>> digests = write_rank_files(directory, step, rank, ranks.state(w));
    if (!digests.ok()) return digests.diagnostics;
    files.insert(digests->begin(), digests->end());
  }
  return commit_checkpoint(directory, ranks.state(0), std::string(64, 'b'), metadata_of(step), files);
}

void load_all(const std::string& directory, int64_t step, Ranks& ranks) {
  for (size_t w = 0; w < ranks.writers.size(); ++w) {
    const Diagnostics found = load_shard(directory, step, ranks.state(w));
    INFO(format_diagnostics(found));
    REQUIRE(found.empty());
  }
}

std::string why_refused(const std::string& directory, int64_t step) {
  const Result<CheckpointMetadata> metadata = verify_checkpoint(directory, step);
  REQUIRE_FALSE(metadata.ok());
  return metadata.diagnostics.front().message;
}

}  // namespace

TEST_CASE("a safetensors file reads back as written, whatever its shapes") {
  const TemporaryDirectory folder;
  const std::vector<float> data = {1, 2, 3, 4, 5, 6, 7};
  const Result<FileDigest> digest = write_safetensors(
      folder.path("a"), {{"w", {2, 3}, data.data()}, {"b", {1}, data.data() + 6}, {"empty", {0, 4}, nullptr}}, {{"format", "pt"}});
  REQUIRE(digest.ok());
  CHECK(digest->sha256 == sha256(bytes_of_file(folder.path("a"))));
  CHECK(digest->bytes == static_cast<int64_t>(fs::file_size(folder.path("a"))));
  const Result<SafetensorsHeader> header = read_safetensors_header(folder.path("a"));
  REQUIRE(header.ok());
  CHECK(header->metadata.at("format") == "pt");
  REQUIRE(header->tensors.size() == 3);
  const TensorEntry& w = header->tensors.at("w");
  CHECK(w.shape == std::vector<int64_t>{2, 3});
  CHECK(w.begin % 8 == 0);
  const std::string bytes = bytes_of_file(folder.path("a"));
  CHECK(std::memcmp(bytes.data() + w.begin, data.data(), 24) == 0);
}

TEST_CASE("malformed safetensors headers are refused with what is wrong") {
  const auto parse = [](const std::string& json, int64_t data_bytes) {
    const uint64_t length = json.size();
    std::string file(8, '\0');
    std::memcpy(file.data(), &length, 8);
    file += json + std::string(static_cast<size_t>(data_bytes), 'x');
    const Result<SafetensorsHeader> header = parse_safetensors(file, static_cast<int64_t>(file.size()), "f");
    return header.ok() ? std::string() : header.diagnostics.front().message;
  };
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  CHECK(parse(good, 8).empty());
  CHECK(parse("{}", 0).empty());
  CHECK_THAT(parse(good, 7), Catch::Contains("expected"));
  CHECK_THAT(parse(good, 9), Catch::Contains("expected"));
  CHECK_THAT(parse("[]", 0), Catch::Contains("not a JSON object"));
  CHECK_THAT(parse("{", 0), Catch::Contains("not a JSON object"));
  CHECK(parse(R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})", 4) ==
        "");  // whether a type is read is the reader's matter
  CHECK_THAT(parse(R"({"a":{"dtype":"BF15","shape":[2],"data_offsets":[0,4]}})", 4), Catch::Contains("unknown dtype \"BF15\""));
  CHECK_THAT(parse(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4), Catch::Contains("hold 4 bytes"));
  CHECK_THAT(parse(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8), Catch::Contains("natural"));
  CHECK_THAT(parse(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", 8), Catch::Contains("too large"));
  CHECK_THAT(parse(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12), Catch::Contains("begins at 4"));
  CHECK_THAT(
      parse(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12),
      Catch::Contains("begins at 4"));
  CHECK_THAT(
      parse(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8),
      Catch::Contains("twice"));
  CHECK_THAT(parse(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})", 8), Catch::Contains("expected the keys"));
  CHECK_THAT(parse(R"({"__metadata__":{"a":1}})", 0), Catch::Contains("not text"));
  CHECK_FALSE(parse_safetensors(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10), 10, "f").ok());
  CHECK_FALSE(parse_safetensors("1234", 4, "f").ok());
}

TEST_CASE("random mutations of a header never crash, and what is accepted stays inside the file", "[nightly]") {
  const TemporaryDirectory folder;
  const std::vector<float> data(64, 1.0f);
  REQUIRE(write_safetensors(folder.path("a"), {{"w", {4, 8}, data.data()}, {"b", {32}, data.data()}}, {{"format", "pt"}}).ok());
  const std::string good = bytes_of_file(folder.path("a"));
  const uint64_t seed = fixed_seed(12345);
  std::mt19937_64 random(seed);
  INFO("seed " << seed << " (DISTSETUP_SEED repeats it)");
  int num_refused = 0;
  for (int round = 0; round < num_rounds(20000); ++round) {
    std::string bytes = good;
    const int num_changes = 1 + static_cast<int>(random() % 4);
    for (int k = 0; k < num_changes; ++k) {
      const size_t at = random() % (random() % 4 == 0 ? 8 : bytes.size());
      switch (random() % 4) {
        case 0: bytes[at] = static_cast<char>(random()); break;
        case 1: bytes.erase(at, 1 + random() % 8); break;
        case 2: bytes.insert(at, 1, "0123456789[]{},:\"-eE."[random() % 21]); break;
        default: bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8)); break;
      }
      if (bytes.size() < 9) break;
    }
    const Result<SafetensorsHeader> header = parse_safetensors(bytes, static_cast<int64_t>(bytes.size()), "f");
    if (!header.ok()) {
      ++num_refused;
      CHECK_FALSE(header.diagnostics.empty());
      continue;
    }
    for (const auto& [name, entry] : header->tensors) {
      REQUIRE(entry.begin >= 8);
      REQUIRE(entry.end <= static_cast<int64_t>(bytes.size()));
      REQUIRE(entry.end - entry.begin == num_elements(entry.shape) * 4);
    }
  }
  CHECK(num_refused > 5000);
}

TEST_CASE("manifests round-trip, and random mutations of them never crash", "[nightly]") {
  Ranks ranks(geometry_of(16, 1), 1, 2);
  const TemporaryDirectory folder;
  ranks.fill();
  REQUIRE(save(folder.path(), ranks, 3).empty());
  const std::string path = checkpoint_path(folder.path(), 3);
  const std::string index = bytes_of_file(path + "/index.json"), metadata = bytes_of_file(path + "/metadata.json"),
                    commit = bytes_of_file(path + "/COMMIT");
  REQUIRE(index_from_json(index, "i").ok());
  CHECK(dump_json(to_json(*index_from_json(index, "i"))) == index);
  CHECK(*metadata_from_json(metadata, "m") == metadata_of(3));
  CHECK(dump_json(to_json(*commit_from_json(commit, "c"))) == commit);
  const uint64_t seed = fixed_seed(99);
  std::mt19937_64 random(seed);
  INFO("seed " << seed << " (DISTSETUP_SEED repeats it)");
  for (int round = 0; round < num_rounds(3000); ++round) {
    for (const std::string* good : {&index, &metadata, &commit}) {
      std::string text = *good;
      const size_t at = random() % text.size();
      if (random() % 2 == 0)
        text.erase(at, 1 + random() % 6);
      else
        text[at] = static_cast<char>(random());
      index_from_json(text, "i");
      metadata_from_json(text, "m");
      commit_from_json(text, "c");
    }
  }
  Json other = Json::parse(metadata);
  other["extra"] = 1;
  CHECK_FALSE(metadata_from_json(other.dump(), "m").ok());
  Json outside = Json::parse(index);
  outside["parameters"].begin().value()["boxes"][0]["start"][0] = 1000000;
  CHECK_FALSE(index_from_json(outside.dump(), "i").ok());
  Json escape = Json::parse(index);
  escape["parameters"].begin().value()["boxes"][0]["file"] = "../rank_0.safetensors";
  CHECK_FALSE(index_from_json(escape.dump(), "i").ok());
}

TEST_CASE("regression 22: any mesh loads what any other wrote, bit for bit, padding zero") {
  struct MeshCase {
    int replicate, shard, tp, cp = 1;
  };
  // Heads of other sizes, a vocabulary of 37: over 2 and 4 ranks its last rows are padding. Phi-3 publishes fused matrices.
  const MeshCase cases[] = {{1, 1, 1}, {1, 2, 1}, {1, 3, 1}, {1, 4, 1},    {2, 2, 1},    {1, 7, 1},   {4, 1, 1},
                            {1, 1, 2}, {1, 3, 2}, {2, 2, 2}, {1, 1, 1, 2}, {1, 2, 1, 3}, {2, 2, 2, 2}};
  Geometry fused = geometry_of(16, 1);
  fused.family = "phi3";
  for (const Geometry& geometry : {geometry_of(16, 2), geometry_of(12, 1), fused}) {
    for (const MeshCase& from : cases) {
      const TemporaryDirectory folder;
      Ranks written(geometry, from.replicate, from.shard, from.tp, from.cp);
      written.fill(from.shard);
      REQUIRE(save(folder.path(), written, 40).empty());
      CHECK(verify_checkpoint(folder.path(), 40).ok());
      for (const MeshCase& to : cases) {
        Ranks read(geometry, to.replicate, to.shard, to.tp, to.cp);
        for (auto& rank : read.values)
          for (auto& state : rank) std::fill(state.begin(), state.end(), 7.5f);
        load_all(folder.path(), 40, read);
        CHECK(read.num_wrong(from.shard) == 0);
        Ranks expected(geometry, to.replicate, to.shard, to.tp, to.cp);
        expected.fill(from.shard);
        CHECK(read.values == expected.values);  // padding included
      }
    }
  }
}

// Every third pair of meshes, in turn; all of them at night.
TEST_CASE("meshes that share experts among ranks load what any other wrote, bit for bit, padding zero", "[nightly][all]") {
  const int stride = is_nightly() ? 1 : 3;
  int pair = 0;
  struct MeshCase {
    Mesh mesh;
    Sharding sharding;
  };
  const MeshCase cases[] = {{{}, Sharding::kDdp},
                            {{.dp_shard = 2}, Sharding::kZero3},
                            {{.dp_shard = 3, .cp = 2}, Sharding::kZero2},
                            {{.dp_shard = 2, .ep = 2}, Sharding::kZero3},
                            {{.dp_shard = 4, .ep = 2}, Sharding::kZero1},
                            {{.dp_replicate = 2, .dp_shard = 4, .ep = 4}, Sharding::kZero3},
                            {{.dp_shard = 3, .cp = 2, .ep = 2}, Sharding::kZero2},
                            {{.dp_shard = 2, .ep = 2}, Sharding::kDdp},
                            {{.dp_replicate = 2, .dp_shard = 2, .cp = 2, .ep = 4}, Sharding::kDdp},
                            {{.dp_shard = 8, .ep = 8}, Sharding::kZero3},
                            {{.tp = 2}, Sharding::kZero3},
                            {{.dp_shard = 2, .tp = 2, .ep = 4}, Sharding::kDdp},
                            {{.dp_shard = 3, .tp = 2, .ep = 2}, Sharding::kZero2},
                            {{.dp_replicate = 2, .cp = 2, .tp = 2}, Sharding::kZero1}};
  for (const std::string which : {"qwen2", "glm4"}) {
    Geometry geometry = tiny::expert_geometry(which);
    geometry.num_experts = 8, geometry.router_groups = which == "glm4" ? 4 : 1;
    geometry.feed_forward = 38;
    for (const MeshCase& from : cases) {
      const TemporaryDirectory folder;
      Ranks written(geometry, from.mesh, from.sharding);
      written.fill(from.mesh.ep);
      REQUIRE(save(folder.path(), written, 40).empty());
      CHECK(verify_checkpoint(folder.path(), 40).ok());
      for (const MeshCase& to : cases) {
        if (pair++ % stride != 0) continue;
        INFO(which << " ep " << from.mesh.ep << " tp " << from.mesh.tp << " to ep " << to.mesh.ep << " tp " << to.mesh.tp);
        Ranks read(geometry, to.mesh, to.sharding);
        for (auto& rank : read.values)
          for (auto& state : rank) std::fill(state.begin(), state.end(), 7.5f);
        load_all(folder.path(), 40, read);
        CHECK(read.num_wrong(from.mesh.ep) == 0);
        Ranks expected(geometry, to.mesh, to.sharding);
        expected.fill(from.mesh.ep);
        CHECK(read.values == expected.values);  // padding included
      }
    }
  }
}

TEST_CASE("a single rank's file holds the whole model under its published names") {
  const TemporaryDirectory folder;
  Ranks ranks(geometry_of(16, 2), 1, 1);
  ranks.fill();
  REQUIRE(save(folder.path(), ranks, 1).empty());
  const Result<SafetensorsHeader> header = read_safetensors_header(checkpoint_path(folder.path(), 1) + "/rank_0.safetensors");
  REQUIRE(header.ok());
  CHECK(header->tensors.at("model.layers.1.self_attn.q_proj.weight").shape == std::vector<int64_t>{16, 16});
  CHECK(header->tensors.contains("model.embed_tokens.weight.exp_avg_sq"));
  CHECK_FALSE(fs::exists(checkpoint_path(folder.path(), 1) + "/rank_0.1.safetensors"));
}

TEST_CASE("boxes of one parameter lie in different files under its name, and each file says where they begin") {
  const TemporaryDirectory folder;
  Ranks ranks(geometry_of(12, 1), 1, 5);
  ranks.fill();
  REQUIRE(save(folder.path(), ranks, 1).empty());
  const std::string path = checkpoint_path(folder.path(), 1);
  CHECK(fault_of(path).empty());
  int num_second = 0;
  for (int rank = 0; rank < 5; ++rank) {
    const std::string second_path = path + "/" + rank_file_name(rank, 1);
    if (!fs::exists(second_path)) continue;
    ++num_second;
    const Result<SafetensorsHeader> first = read_safetensors_header(path + "/" + rank_file_name(rank));
    const Result<SafetensorsHeader> second = read_safetensors_header(second_path);
    REQUIRE(first.ok());
    REQUIRE(second.ok());
    for (const auto& entry : second->tensors) CHECK(first->tensors.contains(entry.first));
    const Json places = Json::parse(second->metadata.at("DCP_SHARDING_INFO"));
    CHECK(places.size() == second->tensors.size());
    for (const auto& [name, entry] : second->tensors) CHECK(places.at(name).at("saved_offsets").size() == entry.shape.size());
  }
  CHECK(num_second > 0);
}

TEST_CASE("format 1, in which a rank has one file, is still read") {
  const TemporaryDirectory folder;
  const std::vector<float> begin = {0, 1, 2}, end = {3, 4, 5};
  const Result<FileDigest> digest = write_safetensors(
      folder.path("rank_0.safetensors"), {{"w.box0", {1, 3}, begin.data()}, {"w.box1", {1, 3}, end.data()}}, {{"format", "pt"}});
  REQUIRE(digest.ok());
  const std::string index =
      R"({"format": 1, "plan_digest": "", "states": ["", ".exp_avg", ".exp_avg_sq"],
          "mesh": {"pp": 1, "dp_replicate": 1, "dp_shard": 1, "cp": 1, "tp": 1, "ep": 1},
          "parameters": {"w": {"shape": [2, 3], "boxes": [
            {"file": "rank_0.safetensors", "start": [0, 0], "size": [1, 3], "suffix": ".box0"},
            {"file": "rank_0.safetensors", "start": [1, 0], "size": [1, 3], "suffix": ".box1"}]}}})";
  std::ofstream(folder.path("index.json")) << index;
  const std::string metadata = dump_json(to_json(metadata_of(7)));
  std::ofstream(folder.path("metadata.json")) << metadata;
  const CheckpointCommit commit = {7,
                                   {{"rank_0.safetensors", *digest},
                                    {"index.json", {static_cast<int64_t>(index.size()), sha256(index)}},
                                    {"metadata.json", {static_cast<int64_t>(metadata.size()), sha256(metadata)}}}};
  std::ofstream(folder.path("COMMIT")) << dump_json(to_json(commit));
  REQUIRE(verify_stored(folder.path()).ok());
  Result<StoredCheckpoint> stored = StoredCheckpoint::open(folder.path());
  REQUIRE(stored.ok());
  std::vector<float> values(4);
  REQUIRE(stored->read("w", "", {{0, 1}, {2, 2}, 0}, values.data()).empty());
  CHECK(values == std::vector<float>{1, 2, 4, 5});
  CHECK_THAT(fault_of(folder.path()), Catch::Contains("has no tensor 'w.exp_avg.box0'"));
}

TEST_CASE("regression 17: loaded parameters equal the file, and another model is refused") {
  const TemporaryDirectory folder;
  Ranks ranks(geometry_of(16, 2), 1, 2);
  ranks.fill(5);
  REQUIRE(save(folder.path(), ranks, 9).empty());
  Ranks again(geometry_of(16, 2), 1, 2);
  load_all(folder.path(), 9, again);
  REQUIRE(save(folder.path("second"), again, 9).empty());
  for (const char* file : {"rank_0.safetensors", "rank_1.safetensors"}) {
    CHECK(sha256(bytes_of_file(checkpoint_path(folder.path(), 9) + "/" + file)) ==
          sha256(bytes_of_file(checkpoint_path(folder.path("second"), 9) + "/" + file)));
  }
  for (const Geometry& other : {geometry_of(16, 3), geometry_of(16, 1), geometry_of(32, 2)}) {
    Ranks wrong(other, 1, 1);
    const Diagnostics found = load_shard(folder.path(), 9, wrong.state(0));
    REQUIRE(found.size() == 1);
    CHECK_THAT(found.front().message, Catch::Contains("another model"));
  }
}

TEST_CASE("a checkpoint of an optimizer that keeps other states is refused, its parameters can still be read") {
  const TemporaryDirectory folder;
  Ranks ranks(geometry_of(16, 1), 1, 1);
  ranks.fill(3);
  REQUIRE(save(folder.path(), ranks, 4).empty());
  ShardState other = ranks.state(0);
  other.states.pop_back();
  const Diagnostics found = load_shard(folder.path(), 4, other);
  REQUIRE(found.size() == 1);
  CHECK_THAT(found.front().message, Catch::Contains("is of the optimizer adamw"));
  CHECK(load_parameters(checkpoint_path(folder.path(), 4), other).empty());
  CHECK(ranks.num_wrong(3) == 0);  // what it refuses it leaves alone
}

TEST_CASE("a truncated, changed, missing or uncommitted file makes a checkpoint invalid") {
  const TemporaryDirectory folder;
  Ranks ranks(geometry_of(16, 1), 1, 2);
  ranks.fill();
  const auto fresh = [&] {
    fs::remove_all(folder.path("checkpoint_5"));
    REQUIRE(save(folder.path(), ranks, 5).empty());
    REQUIRE(verify_checkpoint(folder.path(), 5).ok());
  };
  const std::string path = checkpoint_path(folder.path(), 5);
  for (const char* file : {"rank_0.safetensors", "rank_1.safetensors", "index.json", "metadata.json"}) {
    fresh();
    const std::string bytes = bytes_of_file(path + "/" + file);
    std::ofstream(path + "/" + file, std::ios::binary) << bytes.substr(0, bytes.size() - 1);
    CHECK_THAT(why_refused(folder.path(), 5), Catch::Contains("bytes, expected"));
    std::string changed = bytes;
    changed[changed.size() / 2] = static_cast<char>(changed[changed.size() / 2] ^ 1);
    std::ofstream(path + "/" + file, std::ios::binary) << changed;
    CHECK_THAT(why_refused(folder.path(), 5), Catch::Contains("digest"));
    fs::remove(path + "/" + file);
    CHECK_THAT(why_refused(folder.path(), 5), Catch::Contains("missing"));
  }
  fresh();
  fs::remove(path + "/COMMIT");
  CHECK_THAT(why_refused(folder.path(), 5), Catch::Contains("no COMMIT"));
  std::ofstream(path + "/COMMIT") << "{}";
  CHECK_THAT(why_refused(folder.path(), 5), Catch::Contains("'format' is missing"));
  fresh();
  fs::rename(path, checkpoint_path(folder.path(), 6));
  CHECK_THAT(why_refused(folder.path(), 6), Catch::Contains("says step 5, expected 6"));
}

TEST_CASE("digests are shared among ranks: a broken file is found by exactly one part") {
  const TemporaryDirectory folder;
  Ranks ranks(geometry_of(16, 1), 1, 4);
  ranks.fill();
  REQUIRE(save(folder.path(), ranks, 5).empty());
  const std::string file = checkpoint_path(folder.path(), 5) + "/rank_2.safetensors";
  std::string bytes = bytes_of_file(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(file, std::ios::binary) << bytes;
  int num_found = 0;
  for (int part = 0; part < 4; ++part) num_found += verify_checkpoint(folder.path(), 5, part, 4).ok() ? 0 : 1;
  CHECK(num_found == 1);
}

TEST_CASE("what a killed save leaves is never taken for a checkpoint, and does not hinder the next save") {
  const TemporaryDirectory folder;
  Ranks four(geometry_of(16, 1), 1, 4), two(geometry_of(16, 1), 1, 2);
  four.fill(4);
  two.fill(2);
  REQUIRE(begin_checkpoint(folder.path(), 8).empty());  // killed after one file of four
  REQUIRE(write_rank_files(folder.path(), 8, 3, four.state(3)).ok());
  CHECK(list_checkpoints(folder.path()).empty());
  REQUIRE(save(folder.path(), two, 8).empty());  // on another mesh: the left-over rank_3 is gone
  CHECK(verify_checkpoint(folder.path(), 8).ok());
  CHECK_FALSE(fs::exists(checkpoint_path(folder.path(), 8) + "/rank_3.safetensors"));
  fs::remove(checkpoint_path(folder.path(), 8) + "/COMMIT");  // killed between rename and COMMIT
  REQUIRE(save(folder.path(), four, 8).empty());
  Ranks read(geometry_of(16, 1), 1, 1);
  load_all(folder.path(), 8, read);
  CHECK(read.num_wrong(4) == 0);
}

TEST_CASE("regression 37: retention keeps the newest, and deletes only committed checkpoints of exactly our names") {
  const TemporaryDirectory folder;
  Ranks ranks(geometry_of(16, 1), 1, 1);
  ranks.fill();
  for (int64_t step : {10, 20, 30, 40}) REQUIRE(save(folder.path(), ranks, step).empty());
  const std::vector<std::string> foreign = {"checkpoint_7", "checkpoint_007", "checkpoint_12.old", "my_checkpoint_5",
                                            "checkpoint_",  "checkpoint_9x",  "checkpoint_-3",     "data"};
  for (const std::string& name : foreign) {
    fs::create_directories(folder.path(name));
    std::ofstream(folder.path(name + "/precious")) << "mine";
  }
  fs::create_directories(folder.path("elsewhere"));
  fs::create_directory_symlink(folder.path("elsewhere"), folder.path("checkpoint_3"));
  std::ofstream(folder.path("checkpoint_10/notes.txt")) << "mine";
  REQUIRE(retire_checkpoints(folder.path(), 40, {}).empty());
  CHECK(fs::exists(folder.path("checkpoint_20")));
  const std::vector<std::string> complaints = retire_checkpoints(folder.path(), 40, {.keep = 2});
  CHECK(complaints.size() == 1);  // checkpoint_10 holds a file that is not ours
  CHECK(fs::exists(folder.path("checkpoint_10/notes.txt")));
  CHECK_FALSE(fs::exists(folder.path("checkpoint_20")));
  CHECK(verify_checkpoint(folder.path(), 30).ok());
  CHECK(verify_checkpoint(folder.path(), 40).ok());
  for (const std::string& name : foreign) CHECK(fs::exists(folder.path(name + "/precious")));
  CHECK(fs::is_symlink(folder.path("checkpoint_3")));
}

TEST_CASE("regression 37: refused and newer steps neither count nor disappear") {
  const TemporaryDirectory folder;
  Ranks ranks(geometry_of(16, 1), 1, 1);
  ranks.fill();
  for (int64_t step : {10, 20, 30}) REQUIRE(save(folder.path(), ranks, step).empty());
  retire_checkpoints(folder.path(), 20, {.keep = 1},
                     {20});  // 30 is newer than what was just saved, 20 was refused: 10 is the one that counts
  CHECK(list_checkpoints(folder.path()) == std::vector<int64_t>{30, 20, 10});
  retire_checkpoints(folder.path(), 30, {.keep = 1}, {20});
  CHECK(list_checkpoints(folder.path()) == std::vector<int64_t>{30, 20});
}

TEST_CASE("a disk that is full fails the save with a message, and the checkpoint before stays valid") {
  const TemporaryDirectory folder;
  Ranks ranks(geometry_of(32, 2), 1, 1);
  ranks.fill();
  REQUIRE(save(folder.path(), ranks, 1).empty());
  rlimit old = {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {4096, old.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const Diagnostics found = save(folder.path(), ranks, 2);
  ::setrlimit(RLIMIT_FSIZE, &old);
  ::signal(SIGXFSZ, old_handler);
  REQUIRE(found.size() == 1);
  CHECK_THAT(found.front().message, Catch::Contains("cannot write") && Catch::Contains("rank_0.safetensors"));
  discard_partial(folder.path(), 2);
  CHECK(list_checkpoints(folder.path()) == std::vector<int64_t>{1});
  CHECK_FALSE(fs::exists(folder.path("checkpoint_2.partial")));
  CHECK(verify_checkpoint(folder.path(), 1).ok());
}
