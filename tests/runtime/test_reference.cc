// Pairs from a prepared set to batches, and what the reference makes of them: the same on every mesh, kept and read again.
#include <filesystem>
#include <numeric>

#include "base/digest.h"
#include "base/file.h"
#include "data/set_writer.h"
#include "runtime/data/reference.h"
#include "runtime/data/sampler.h"
#include "runtime/tiny.h"
#include "support/temporary_directory.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

constexpr int64_t kPairs = 7, kLength = 12;

std::vector<uint32_t> counted(uint32_t from, size_t n) {
  std::vector<uint32_t> ids(n);
  for (size_t i = 0; i < n; ++i) ids[i] = (from + uint32_t(i) * 5) % 53;
  return ids;
}

// Pair 2 has a prompt as long as a sequence: it is left out.
Plan pairs_plan(const TemporaryDirectory& folder, TinyOptions o = {}) {
  Result<SetWriter> writer = SetWriter::create(folder.path("set"));
  REQUIRE(writer.ok());
  for (uint32_t i = 0; i < kPairs; ++i) {
    const uint32_t prompt = i == 2 ? kLength + 1 : 3;
    for (const uint32_t answer : {4u + i % 3, 2u + i})
      CHECK(writer->add({counted(i + answer, prompt + answer), {{prompt, prompt + answer}}, TooLong::kIsCut, 0}, SetSplit::kTraining)
                .empty());
  }
  SetDescription description;
  description.vocabulary_size = 53;
  description.holds_pairs = true;
  const Result<SetDescription> set = writer->finish(description);
  REQUIRE(set.ok());
  o.preference = PreferencePlan{};
  o.global_batch = 4;
  o.sequence_length = kLength;
  Plan plan = tiny_plan(o);
  plan.data.tokenizer = kPreparedTokens;
  const std::string path = folder.path("set/dataset.json");
  plan.data.files.push_back({"set/dataset.json", int64_t(std::filesystem::file_size(path)), *sha256_of_file(path), false});
  for (const SetFile& f : set->files) plan.data.files.push_back({"set/" + f.path, f.bytes, f.sha256, f.path.starts_with("held_out")});
  return plan;
}

TEST_CASE("pairs of a prepared set: two sequences each, dealt out together", "[preference]") {
  const TemporaryDirectory folder;
  Plan plan = pairs_plan(folder);
  const Result<Corpus> corpus = read_corpus(plan, folder.path());
  INFO(format_diagnostics(corpus.diagnostics));
  REQUIRE(corpus.ok());
  REQUIRE(corpus->training.size() == kPairs - 1);
  Sampler sampler(*corpus, plan, 0);
  const distsetup::Batch whole = sampler.next();
  CHECK(whole.num_terms == 4);
  CHECK(whole.own == whole.sequences);
  REQUIRE(whole.ids.size() == 4 * 2 * kLength);
  for (size_t q = 0; q < 8; ++q) {
    const Window window = corpus->training[size_t(whole.own[q / 2])];
    const auto tokens = corpus->prepared[0]->tokens(window.document + int64_t(q % 2));
    const int64_t* ids = whole.ids.data() + q * kLength;
    const int64_t* targets = whole.targets.data() + q * kLength;
    CHECK(std::equal(ids, ids + std::min<size_t>(tokens.size() - 1, kLength), tokens.begin()));
    CHECK(targets[1] == -1);
    CHECK(targets[2] == int64_t(tokens[3]));  // the first of the answer
  }
  plan.mesh.dp_replicate = 2;
  plan.micro_batch = 2;
  Sampler second(*corpus, plan, 1);
  const distsetup::Batch half = second.next();
  CHECK(half.own == std::vector<int64_t>(whole.own.begin() + 2, whole.own.end()));
  CHECK(std::equal(half.ids.begin(), half.ids.end(), whole.ids.begin() + 4 * kLength));
  CHECK(half.num_terms == 4);
  plan.train.method = "sft";
  CHECK(read_corpus(plan, folder.path()).diagnostics.front().message ==
        "the set holds preference pairs, and the plan's method is sft");
}

TEST_CASE("the reference: the same on every mesh, kept and read again", "[preference]") {
  const TemporaryDirectory folder;
  TinyOptions o;
  o.geometry.num_heads = 4, o.geometry.num_kv_heads = 2, o.geometry.feed_forward = 36;
  const Plan plan = pairs_plan(folder, o);
  const Result<Corpus> corpus = read_corpus(plan, folder.path());
  REQUIRE(corpus.ok());
  const auto found_on = [&](TinyOptions mesh) {
    mesh.geometry = o.geometry, mesh.preference = PreferencePlan{}, mesh.global_batch = 4, mesh.sequence_length = kLength;
    Plan split = tiny_plan(mesh);
    split.data = plan.data;
    ReferenceLogps logps;
    run_ranks(split.mesh, [&](Communicator& communicator) {
      const auto device = make_cpu_device();
      Engine engine(split, *device, communicator);
      engine.initialize_parameters();
      engine.load();
      const ReferenceLogps mine = find_reference(engine, communicator, *corpus, split);
      if (communicator.rank() + 1 == communicator.world()) logps = mine;
    });
    return logps;
  };
  const ReferenceLogps one = found_on({});
  REQUIRE(one.training.size() == 2 * (kPairs - 1));
  CHECK(one.held_out.empty());
  CHECK(std::all_of(one.training.begin(), one.training.end(), [](float logp) { return logp < -1; }));
  TinyOptions zero3, tp, pp, cp;
  zero3.sharding = Sharding::kZero3, zero3.shard = 2;
  tp.tp = 2, pp.pp = 2, cp.cp = 2;
  for (const TinyOptions& mesh : {zero3, tp, pp, cp}) {
    const ReferenceLogps other = found_on(mesh);
    REQUIRE(other.training.size() == one.training.size());
    for (size_t i = 0; i < one.training.size(); ++i) CHECK(other.training[i] == Approx(one.training[i]).epsilon(1e-6));
  }
  const std::string path = reference_path(folder.path()), digest = reference_digest(plan, *corpus);
  REQUIRE(write_reference(path, one, digest).empty());
  const Result<ReferenceLogps> again = read_reference(path, *corpus, digest);
  REQUIRE(again.ok());
  CHECK(again->training == one.training);
  Plan other = plan;
  other.train.seed += 1;  // other starting weights
  CHECK_FALSE(read_reference(path, *corpus, reference_digest(other, *corpus)).ok());
  CHECK(logps_of(one.training, {2, -1}) == std::vector<float>{one.training[4], one.training[5], 0, 0});
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 4);
  CHECK_FALSE(read_reference(path, *corpus, digest).ok());
}

}  // namespace
}  // namespace distsetup
