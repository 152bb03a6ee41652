// Corpus and sampler: what a token, a sequence, a global batch is, and that no mesh changes it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>

#include "base/diagnostic_codes.h"
#include "base/digest.h"
#include "data/set_writer.h"
#include "runtime/data/corpus.h"
#include "runtime/data/sampler.h"
#include "support/temporary_directory.h"

using namespace distsetup;
namespace fs = std::filesystem;

namespace {

void add_file(const TemporaryDirectory& folder, Plan& plan, const std::string& name, const std::string& text, bool held_out = false) {
  folder.write(name, text);
  plan.data.files.push_back({name, static_cast<int64_t>(text.size()), sha256(text), held_out});
}

std::string text_of(int64_t size, int seed) {
  std::string text(static_cast<size_t>(size), '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>((i * 7 + static_cast<size_t>(seed) * 31 + i * i / 5) % 256);
  return text;
}

Plan tiny_plan() {
  Plan plan;
  plan.model.vocabulary = 256;
  plan.train.sequence_length = 8;
  plan.train.global_batch = 8;
  plan.train.seed = 5;
  plan.micro_batch = 2;
  plan.gradient_accumulation = 2;
  plan.mesh.dp_shard = 2;
  return plan;
}

Plan with_mesh(Plan plan, int dp_replicate, int dp_shard, int64_t micro_batch, int64_t accumulation) {
  plan.mesh.dp_replicate = dp_replicate;
  plan.mesh.dp_shard = dp_shard;
  plan.micro_batch = micro_batch;
  plan.gradient_accumulation = accumulation;
  return plan;
}

}  // namespace

// Three samples for training, one held out: a text of 20 tokens, conversations of 6 and of 14.
Plan prepared_plan(const TemporaryDirectory& folder) {
  Result<SetWriter> writer = SetWriter::create(folder.path("set"));
  REQUIRE(writer.ok());
  const auto ids = [](uint32_t from, uint32_t n) {
    std::vector<uint32_t> all(n);
    std::iota(all.begin(), all.end(), from);
    return all;
  };
  CHECK(writer->add({ids(0, 20), {{0, 20}}, TooLong::kContinues, 0}, SetSplit::kTraining).empty());
  CHECK(writer->add({ids(100, 6), {{2, 4}, {5, 6}}, TooLong::kIsCut, 0}, SetSplit::kTraining).empty());
  CHECK(writer->add({ids(200, 14), {{12, 14}}, TooLong::kIsCut, 0}, SetSplit::kTraining).empty());  // its answer is beyond 8 tokens
  CHECK(writer->add({ids(50, 4), {{3, 4}}, TooLong::kIsCut, 0}, SetSplit::kHeldOut).empty());
  SetDescription description;
  description.vocabulary_size = 256;
  const Result<SetDescription> set = writer->finish(description);
  REQUIRE(set.ok());
  Plan plan = tiny_plan();
  plan.train.method = "sft";
  plan.data.tokenizer = kPreparedTokens;
  const Result<std::string> digest = sha256_of_file(folder.path("set/dataset.json"));
  plan.data.files.push_back(
      {"set/dataset.json", static_cast<int64_t>(std::filesystem::file_size(folder.path("set/dataset.json"))), *digest, false});
  for (const SetFile& f : set->files) plan.data.files.push_back({"set/" + f.path, f.bytes, f.sha256, f.path.starts_with("held_out")});
  return plan;
}

TEST_CASE("of a prepared set exactly the trained tokens are targets") {
  const TemporaryDirectory folder;
  Plan plan = prepared_plan(folder);
  const Result<Corpus> corpus = read_corpus(plan, folder.path());
  INFO(format_diagnostics(corpus.diagnostics));
  REQUIRE(corpus.ok());
  REQUIRE(corpus->training.size() == 3 + 1);  // 19 targets of the text in three windows; a conversation is one, or none
  CHECK(corpus->training_tokens == 19 + 3);
  const Result<SetLengths> lengths = read_set_lengths(folder.path("set"));
  REQUIRE(lengths.ok());
  CHECK(pieces_of(*lengths, 8).size() == 4);
  CHECK(pieces_of(*lengths, 11).size() == 2 + 1);
  CHECK(pieces_of(*lengths, 12).size() == 2 + 2);  // now the answer is within a sequence
  CHECK(corpus->held_out_tokens == 1);
  std::vector<int64_t> ids(8), targets(8);
  fill_sequence(*corpus, corpus->training[1], ids, targets);
  CHECK(ids == std::vector<int64_t>{8, 9, 10, 11, 12, 13, 14, 15});
  CHECK(targets == std::vector<int64_t>{9, 10, 11, 12, 13, 14, 15, 16});
  fill_sequence(*corpus, corpus->training[3], ids, targets);
  CHECK(ids == std::vector<int64_t>{100, 101, 102, 103, 104, 0, 0, 0});
  CHECK(targets == std::vector<int64_t>{-1, 102, 103, -1, 105, -1, -1, -1});
  fill_sequence(*corpus, corpus->held_out[0], ids, targets);
  CHECK(targets == std::vector<int64_t>{-1, -1, 53, -1, -1, -1, -1, -1});
}

namespace {

// 60 conversations of two sources, of 2 to 9 tokens, their last half trained.
Plan packed_plan(const TemporaryDirectory& folder, const std::vector<SetPart>& mixture = {}) {
  Result<SetWriter> writer = SetWriter::create(folder.path("set"));
  REQUIRE(writer.ok());
  for (uint32_t i = 0; i < 60; ++i) {
    const uint32_t length = 2 + i * 7 % 8;
    std::vector<uint32_t> ids(length);
    std::iota(ids.begin(), ids.end(), 4 * i);
    const NewSample sample = {ids, {{length / 2, length}}, TooLong::kIsCut, i < 40 ? 0u : 1u};
    CHECK(writer->add(sample, i % 6 == 5 ? SetSplit::kHeldOut : SetSplit::kTraining).empty());
  }
  SetDescription description;
  description.vocabulary_size = 256;
  description.sources = {{"a", "00", "jsonl", 40, {}}, {"b", "00", "jsonl", 20, {}}};
  description.mixture = mixture;
  const Result<SetDescription> set = writer->finish(description);
  REQUIRE(set.ok());
  Plan plan = tiny_plan();
  plan.train.method = "sft";
  plan.data.tokenizer = kPreparedTokens;
  plan.data.packing = true;
  plan.train.sequence_length = 16;
  const Result<std::string> digest = sha256_of_file(folder.path("set/dataset.json"));
  plan.data.files.push_back(
      {"set/dataset.json", static_cast<int64_t>(fs::file_size(folder.path("set/dataset.json"))), *digest, false});
  for (const SetFile& f : set->files) plan.data.files.push_back({"set/" + f.path, f.bytes, f.sha256, f.path.starts_with("held_out")});
  return plan;
}

}  // namespace

TEST_CASE("packed rows hold whole windows one after the other, with positions that begin again", "[packing]") {
  const TemporaryDirectory folder;
  const Plan plan = packed_plan(folder);
  const Result<Corpus> corpus = read_corpus(plan, folder.path());
  REQUIRE(corpus.ok());
  const PackedRows rows = training_rows(*corpus, plan.train.seed, 0);
  CHECK(rows.size() < static_cast<int64_t>(corpus->training.size()) / 2);
  std::vector<int64_t> ids(16), targets(16), positions(16);
  int64_t trained = 0;
  for (int64_t r = 0; r < rows.size(); ++r) {
    std::vector<Window> windows;
    for (const uint32_t w : rows.row(r)) windows.push_back(corpus->training[w]);
    fill_row(*corpus, windows, {ids, targets, positions});
    size_t at = 0;
    for (const Window& w : windows) {
      std::vector<int64_t> alone(16), alone_targets(16);
      fill_sequence(*corpus, w, alone, alone_targets);
      for (size_t t = 0; t < static_cast<size_t>(w.length); ++t, ++at) {
        CHECK(ids[at] == alone[t]);
        CHECK(targets[at] == alone_targets[t]);
        CHECK(positions[at] == static_cast<int64_t>(t));
      }
    }
    for (size_t pad = 0; at < 16; ++at, ++pad) {
      CHECK(targets[at] == kIgnoredTarget);
      CHECK(positions[at] == static_cast<int64_t>(pad));
    }
    trained += std::count_if(targets.begin(), targets.end(), [](int64_t t) { return t >= 0; });
  }
  CHECK(trained == corpus->training_tokens);
  Plan padded = plan;
  padded.data.packing = false;
  CHECK(read_corpus(padded, folder.path())->digest != corpus->digest);
  const Result<SetLengths> lengths = read_set_lengths(folder.path("set"));
  for (const double epochs : {1.0, 3.0}) {
    int64_t sum = 0;
    for (int64_t epoch = 0; epoch < static_cast<int64_t>(epochs); ++epoch)
      sum += training_rows(*corpus, plan.train.seed, epoch).size();
    CHECK(num_rows(*lengths, 16, Packing::kOn, plan.train.seed, epochs) == sum);
  }
}

TEST_CASE("packed rows and mixtures: any mesh trains on the same tokens, and goes on where another stopped", "[packing]") {
  const bool is_mixture = GENERATE(false, true);
  const TemporaryDirectory folder;
  const Plan plan = packed_plan(folder, is_mixture ? std::vector<SetPart>{{"a", 1, 1}, {"b", 3, 1}} : std::vector<SetPart>{});
  const Result<Corpus> corpus = read_corpus(plan, folder.path());
  INFO(format_diagnostics(corpus.diagnostics));
  REQUIRE(corpus.ok());
  CHECK(corpus->mixture.size() == (is_mixture ? 2u : 0u));
  Sampler one(*corpus, with_mesh(plan, 1, 1, 8, 1), 0);
  std::map<uint32_t, int64_t> seen;
  for (int step = 0; step < 9; ++step) {
    const Cursor saved = one.cursor();
    const Batch whole = one.next();
    for (const int64_t w : whole.sequences)
      ++seen[corpus->prepared[0]->sample(corpus->training[static_cast<size_t>(w)].document).source];
    for (const Plan& mesh : {with_mesh(plan, 1, 1, 2, 4), with_mesh(plan, 1, 2, 2, 2), with_mesh(plan, 4, 1, 2, 1)}) {
      std::multiset<std::vector<int64_t>> expected, found;
      const auto add = [](const Batch& batch, std::multiset<std::vector<int64_t>>& rows) {
        REQUIRE(batch.positions.size() == batch.ids.size());
        for (size_t i = 0; i < batch.ids.size(); i += 16) {
          std::vector<int64_t> row;
          for (const std::vector<int64_t>* of : {&batch.ids, &batch.targets, &batch.positions})
            row.insert(row.end(), of->begin() + static_cast<ptrdiff_t>(i), of->begin() + static_cast<ptrdiff_t>(i) + 16);
          rows.insert(row);
        }
      };
      add(whole, expected);
      for (int rank = 0; rank < mesh.mesh.world(); ++rank) {
        Sampler resumed(*corpus, mesh, rank);
        resumed.seek(saved);
        const Batch part = resumed.next();
        CHECK(part.sequences == whole.sequences);
        CHECK(part.global_valid_tokens == whole.global_valid_tokens);
        CHECK(resumed.cursor() == one.cursor());
        add(part, found);
      }
      CHECK(found == expected);
    }
  }
  if (is_mixture) CHECK(seen[1] > 2 * seen[0]);
  const Batch held_out = held_out_batch(*corpus, with_mesh(plan, 1, 1, 8, 1), 0);
  CHECK(held_out.global_valid_tokens == corpus->held_out_tokens);
  CHECK(held_out.positions.size() == held_out.ids.size());
}

TEST_CASE("of a prepared set one rank reads all, the others notice another set nevertheless") {
  const TemporaryDirectory folder;
  const Plan plan = packed_plan(folder);
  CHECK(read_corpus(plan, folder.path(), Verify::kSizes).ok());
  {
    std::fstream tokens(folder.path("set/training.tokens"), std::ios::in | std::ios::out | std::ios::binary);
    tokens.put('\x7f');
  }
  CHECK(read_corpus(plan, folder.path(), Verify::kSizes).ok());
  CHECK_FALSE(read_corpus(plan, folder.path()).ok());
  fs::resize_file(folder.path("set/training.spans"), 8);
  CHECK_FALSE(read_corpus(plan, folder.path(), Verify::kSizes).ok());
}

TEST_CASE("a prepared set that is not the planned one is refused") {
  const TemporaryDirectory folder;
  Plan plan = prepared_plan(folder);
  plan.model.vocabulary = 255;
  CHECK_FALSE(read_corpus(plan, folder.path()).ok());
  plan.model.vocabulary = 256;
  plan.data.files[1].sha256[0] ^= 1;
  const Result<Corpus> changed = read_corpus(plan, folder.path());
  REQUIRE_FALSE(changed.ok());
  CHECK(changed.diagnostics.front().message.find("has the digest") != std::string::npos);
  plan.data = {};
  plan.data.files.push_back({"text", 1, "", false});
  const Result<Corpus> text = read_corpus(plan, folder.path());  // for sft
  REQUIRE_FALSE(text.ok());
  CHECK(text.diagnostics.front().message.find("trains on answers alone") != std::string::npos);
}

TEST_CASE("windows cover every target of a document once and never cross documents") {
  const TemporaryDirectory folder;
  Plan plan = tiny_plan();
  add_file(folder, plan, "a", text_of(17, 1));  // 16 targets: two whole windows
  add_file(folder, plan, "b", text_of(20, 2));  // 19 targets: 8, 8, 3
  add_file(folder, plan, "c", "x");             // no target
  add_file(folder, plan, "d", "");
  add_file(folder, plan, "e", text_of(2, 3));  // one target
  add_file(folder, plan, "h", text_of(12, 4), true);
  const Result<Corpus> corpus = read_corpus(plan, folder.path());
  REQUIRE(corpus.ok());
  CHECK(corpus->training.size() == 6);
  CHECK(corpus->training_tokens == 16 + 19 + 1);
  CHECK(corpus->held_out_tokens == 11);
  std::map<int, int64_t> expected_begin;
  for (const Window& window : corpus->training) {
    CHECK(window.begin == expected_begin[window.document]);
    expected_begin[window.document] += window.valid_tokens;
    std::vector<int64_t> ids(8), targets(8);
    fill_sequence(*corpus, window, ids, targets);
    const std::string& text = corpus->documents[static_cast<size_t>(window.document)];
    for (int t = 0; t < 8; ++t) {
      const size_t at = static_cast<size_t>(window.begin + t), i = static_cast<size_t>(t);
      if (t < window.valid_tokens) {
        CHECK(ids[i] == static_cast<unsigned char>(text[at]));
        CHECK(targets[i] == static_cast<unsigned char>(text[at + 1]));  // shifted once
        if (t > 0) CHECK(ids[i] == targets[i - 1]);
      } else {
        CHECK(ids[i] == kPaddingToken);
        CHECK(targets[i] == kIgnoredTarget);
      }
    }
  }
}

TEST_CASE("an epoch's permutation depends on seed and epoch only and has every window once") {
  const std::vector<uint32_t> order = epoch_permutation(1000, 3, 0);
  CHECK(std::set<uint32_t>(order.begin(), order.end()).size() == 1000);
  CHECK(order == epoch_permutation(1000, 3, 0));
  CHECK(order != epoch_permutation(1000, 3, 1));
  CHECK(order != epoch_permutation(1000, 4, 0));
  int64_t moved = 0;
  for (size_t i = 0; i < order.size(); ++i) moved += std::abs(static_cast<int64_t>(order[i]) - static_cast<int64_t>(i));
  CHECK(moved > 250 * 1000);  // uniform: one third of n², on average
  CHECK(epoch_permutation(6, 0, 0) == std::vector<uint32_t>(epoch_permutation(6, 0, 0)));
}

TEST_CASE("the global batch does not depend on the mesh, and each sequence is computed once") {
  const TemporaryDirectory folder;
  Plan plan = tiny_plan();
  for (int i = 0; i < 7; ++i) add_file(folder, plan, "f" + std::to_string(i), text_of(20 + 13 * i, i));
  const Result<Corpus> corpus = read_corpus(plan, folder.path());
  REQUIRE(corpus.ok());
  Sampler one(*corpus, with_mesh(plan, 1, 1, 8, 1), 0);
  const Plan meshes[] = {with_mesh(plan, 1, 1, 1, 8), with_mesh(plan, 1, 2, 2, 2), with_mesh(plan, 2, 2, 1, 2),
                         with_mesh(plan, 4, 1, 2, 1), with_mesh(plan, 1, 8, 1, 1)};
  std::vector<std::vector<Sampler>> samplers;
  for (const Plan& mesh : meshes) {
    samplers.emplace_back();
    for (int rank = 0; rank < mesh.mesh.world(); ++rank) samplers.back().emplace_back(*corpus, mesh, rank);
  }
  std::set<int64_t> valid_per_rank;
  for (int step = 0; step < 12; ++step) {
    const Batch whole = one.next();
    for (size_t k = 0; k < std::size(meshes); ++k) {
      std::multiset<std::vector<int64_t>> expected, found;
      for (int i = 0; i < 8; ++i) expected.emplace(whole.ids.begin() + i * 8, whole.ids.begin() + i * 8 + 8);
      int64_t valid = 0;
      for (Sampler& sampler : samplers[k]) {
        const Batch part = sampler.next();
        CHECK(part.sequences == whole.sequences);
        CHECK(part.global_valid_tokens == whole.global_valid_tokens);
        CHECK(sampler.cursor() == one.cursor());
        const int64_t mine =
            static_cast<int64_t>(part.targets.size()) - std::count(part.targets.begin(), part.targets.end(), kIgnoredTarget);
        if (k == 1) valid_per_rank.insert(mine);
        valid += mine;
        for (size_t i = 0; i < part.ids.size(); i += 8)
          found.emplace(part.ids.begin() + static_cast<int64_t>(i), part.ids.begin() + static_cast<int64_t>(i) + 8);
      }
      CHECK(found == expected);
      CHECK(valid == whole.global_valid_tokens);
    }
  }
  CHECK(valid_per_rank.size() > 1);  // the documents are of unequal length: ranks differ in tokens
}

TEST_CASE("regression 3: every data-parallel rank has data, and tensor-parallel ranks the same") {
  const TemporaryDirectory folder;
  Plan plan = tiny_plan();
  for (int i = 0; i < 4; ++i) add_file(folder, plan, "f" + std::to_string(i), text_of(60, i));
  const Result<Corpus> corpus = read_corpus(plan, folder.path());
  REQUIRE(corpus.ok());
  plan.mesh.tp = 2;
  std::vector<Batch> batches;
  for (int rank = 0; rank < plan.mesh.world(); ++rank) {
    Sampler sampler(*corpus, plan, rank);
    batches.push_back(sampler.next());
    CHECK(std::count_if(batches.back().targets.begin(), batches.back().targets.end(), [](int64_t t) { return t >= 0; }) > 0);
  }
  CHECK(batches[0].ids == batches[1].ids);
  CHECK(batches[2].ids == batches[3].ids);
  CHECK(batches[0].ids != batches[2].ids);
}

TEST_CASE("regression 24: a batch that begins in one epoch ends in the next, and nothing is left over") {
  const TemporaryDirectory folder;
  Plan plan = with_mesh(tiny_plan(), 1, 1, 4, 2);
  add_file(folder, plan, "a", text_of(8 * 5 + 1, 1));  // 5 windows, 8 sequences a batch
  const Result<Corpus> corpus = read_corpus(plan, folder.path());
  REQUIRE(corpus.ok());
  REQUIRE(corpus->training.size() == 5);
  Sampler sampler(*corpus, plan, 0);
  std::vector<int64_t> all;
  for (int step = 0; step < 5; ++step) {
    const Batch batch = sampler.next();
    CHECK(batch.sequences.size() == 8);
    CHECK(batch.ids.size() == 64);
    all.insert(all.end(), batch.sequences.begin(), batch.sequences.end());
  }
  for (int64_t epoch = 0; epoch < 8; ++epoch) {
    const std::vector<uint32_t> order = epoch_permutation(5, plan.train.seed, epoch);
    CHECK(std::equal(order.begin(), order.end(), all.begin() + epoch * 5));
  }
  CHECK(sampler.cursor() == Cursor{7, 5, 40, 320});
}

TEST_CASE("data as stored: every epoch in the order of the files, and a saved cursor goes on exactly there, on any mesh") {
  const TemporaryDirectory folder;
  Plan plan = with_mesh(tiny_plan(), 1, 1, 4, 2);
  plan.data.shuffle = false;
  add_file(folder, plan, "a", text_of(8 * 5 + 1, 1));  // 5 windows, 8 sequences a batch
  const Result<Corpus> corpus = read_corpus(plan, folder.path());
  REQUIRE(corpus.ok());
  Sampler straight(*corpus, plan, 0);
  std::vector<int64_t> all;
  for (int step = 0; step < 5; ++step) {
    Sampler resumed(*corpus, with_mesh(plan, 2, 2, 2, 1), 3);
    resumed.seek(straight.cursor());
    const Batch batch = straight.next();
    CHECK(resumed.next().sequences == batch.sequences);
    CHECK(resumed.cursor() == straight.cursor());
    all.insert(all.end(), batch.sequences.begin(), batch.sequences.end());
  }
  REQUIRE(all.size() == 40);
  for (size_t i = 0; i < all.size(); ++i) CHECK(all[i] == static_cast<int64_t>(i % 5));
  // The position in one order says nothing in another: a run is not continued with the other one.
  const std::string digest = corpus->digest;
  plan.data.shuffle = true;
  CHECK(read_corpus(plan, folder.path())->digest != digest);
}

TEST_CASE("regression 22: a sampler set to a saved cursor goes on exactly there, on any mesh") {
  const TemporaryDirectory folder;
  Plan plan = tiny_plan();
  for (int i = 0; i < 5; ++i) add_file(folder, plan, "f" + std::to_string(i), text_of(31 + 9 * i, i));
  const Result<Corpus> corpus = read_corpus(plan, folder.path());
  REQUIRE(corpus.ok());
  Sampler straight(*corpus, with_mesh(plan, 1, 1, 8, 1), 0);
  for (int stop = 0; stop < 9; ++stop) {
    const Cursor saved = straight.cursor();
    Sampler resumed(*corpus, with_mesh(plan, 2, 2, 2, 1), 3);
    resumed.seek(saved);
    const Batch expected = straight.next();
    CHECK(resumed.next().sequences == expected.sequences);
    CHECK(resumed.cursor() == straight.cursor());
  }
}

TEST_CASE("the held-out set is dealt out whole, filled up with sequences without targets") {
  const TemporaryDirectory folder;
  Plan plan = tiny_plan();
  add_file(folder, plan, "a", text_of(40, 1));
  add_file(folder, plan, "h", text_of(8 * 5 + 4, 2), true);  // 6 windows: 5 whole, 3 tokens
  const Result<Corpus> corpus = read_corpus(plan, folder.path());
  REQUIRE(corpus.ok());
  const Batch first = held_out_batch(*corpus, plan, 0), second = held_out_batch(*corpus, plan, 1);
  CHECK(first.ids.size() == second.ids.size());
  CHECK(first.ids.size() == 2 * 2 * 8);  // two micro-batches of two sequences
  CHECK(first.global_valid_tokens == 43);
  const auto valid = [](const Batch& batch) {
    return std::count_if(batch.targets.begin(), batch.targets.end(), [](int64_t t) { return t >= 0; });
  };
  CHECK(valid(first) + valid(second) == 43);
}

TEST_CASE("regression 50: missing, changed or absent data is an error, never replaced") {
  const TemporaryDirectory folder;
  Plan plan = tiny_plan();
  const auto message = [&folder](const Plan& p) {
    const Result<Corpus> corpus = read_corpus(p, folder.path());
    REQUIRE_FALSE(corpus.ok());
    CHECK(corpus.diagnostics.front().code == code::kData);
    return corpus.diagnostics.front().message;
  };
  CHECK_THAT(message(plan), Catch::Contains("names no data files"));
  add_file(folder, plan, "a", text_of(100, 1));
  REQUIRE(read_corpus(plan, folder.path()).ok());
  fs::rename(folder.path("a"), folder.path("b"));
  CHECK_THAT(message(plan), Catch::Contains("/a'") && Catch::Contains("no such file"));
  folder.write("a", text_of(99, 1));
  CHECK_THAT(message(plan), Catch::Contains("has 99 bytes, expected 100"));
  folder.write("a", text_of(100, 2));
  CHECK_THAT(message(plan), Catch::Contains("has the digest"));
  Plan empty = tiny_plan();
  add_file(folder, empty, "e", "");
  CHECK_THAT(message(empty), Catch::Contains("nothing to train on"));
}
