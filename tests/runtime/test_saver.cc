// Saves beside training: the bytes of a save at once, whatever is trained meanwhile; failures that end nothing.
#include <array>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "runtime/checkpoint/load.h"
#include "runtime/checkpoint/saver.h"
#include "support/temporary_directory.h"
#include "thread_communicator.h"

using namespace distsetup;
namespace fs = std::filesystem;
using When = CheckpointSaver::When;

namespace {

Geometry tiny_geometry() {
  Geometry geometry;
  geometry.name = geometry.family = "llama";
  geometry.num_layers = 2;
  geometry.hidden = 16;
  geometry.num_heads = geometry.num_kv_heads = 2;
  geometry.head_size = 8;
  geometry.feed_forward = 24;
  geometry.vocabulary = 32;
  return geometry;
}

// One of four ranks, two replicas of two shards: its state, and a place to copy it to.
struct SavingRank {
  Layout layout = make_layout(tiny_geometry(), {.dp_replicate = 2, .dp_shard = 2});
  Coordinates at;
  std::array<std::vector<float>, 3> values;
  std::vector<float> copy;
  CheckpointSaver saver;

  SavingRank(Communicator& communicator, const std::string& directory, bool beside, Retention rule = {})
      : at(coordinates(layout.mesh, communicator.rank())),
        copy(beside ? 3 * static_cast<size_t>(layout.shard_numel) : 0),
        saver(communicator, {directory, rule, std::string(64, 'b'), {}}, copy) {
    fill(0);
  }
  void fill(int64_t step) {
    for (size_t s = 0; s < values.size(); ++s) {
      values[s].resize(static_cast<size_t>(layout.shard_numel));
      for (size_t i = 0; i < values[s].size(); ++i)
        values[s][i] = static_cast<float>(step + 1) * static_cast<float>(i + 7 * s + 1) + static_cast<float>(at.dp_shard);
    }
  }
  ShardState state() { return {&layout, at, values[0], {{"exp_avg", values[1]}, {"exp_avg_sq", values[2]}}}; }
  std::vector<SaveNews> save(int64_t step, When when, double loss = 1) {
    return saver.save(state(), at.dp_replicate == 0,
                      {.step = step, .loss = loss, .learning_rate = 0.1, .seed = 1, .data_digest = std::string(64, 'a')}, when);
  }
};

void rethrow(const std::vector<std::exception_ptr>& failures) {
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

std::string all_bytes(const std::string& checkpoint) {
  std::string bytes;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(checkpoint)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) bytes += name + *read_file(checkpoint + "/" + name);
  return bytes;
}

}  // namespace

TEST_CASE("saver: beside training it writes the bytes of a save at once, not what is trained meanwhile") {
  const TemporaryDirectory folder;
  rethrow(run_ranks(4, [&](ThreadCommunicator& communicator) {
    SavingRank at_once(communicator, folder.path("at_once"), false), beside(communicator, folder.path("beside"), true);
    at_once.save(5, When::kAtOnce);
    CHECK(beside.save(5, When::kBeside).empty());
    beside.fill(6);
    for (int step = 6; beside.saver.newest() != 5; ++step) beside.saver.poll();
    beside.fill(0);
    CHECK(at_once.saver.newest() == 5);
  }));
  CHECK(verify_checkpoint(folder.path("beside"), 5).ok());
  CHECK(all_bytes(folder.path("beside/checkpoint_5")) == all_bytes(folder.path("at_once/checkpoint_5")));
}

TEST_CASE("saver: a second save waits for the first, and the last one is there when it returns") {
  const TemporaryDirectory folder;
  rethrow(run_ranks(4, [&](ThreadCommunicator& communicator) {
    SavingRank rank(communicator, folder.path(), true, {.keep = 2});
    for (int64_t step : {1, 2, 3}) {
      rank.fill(step);
      const std::vector<SaveNews> news = rank.save(step, When::kBeside);
      CHECK(news.size() == (step == 1 ? 0 : 1));
      for (const SaveNews& one : news) CHECK(one.committed == step - 1);
    }
    const std::vector<SaveNews> last = rank.save(4, When::kAtOnce);
    REQUIRE(last.size() == 2);
    CHECK(last[0].committed == 3);
    CHECK(last[1].committed == 4);
    CHECK(rank.save(4, When::kAtOnce).empty());  // it is there already
    CHECK_FALSE(rank.saver.poll());
  }));
  CHECK(list_checkpoints(folder.path()) == std::vector<int64_t>{4, 3});
}

TEST_CASE("saver: where rank 0 cannot begin, beside training the run goes on, and the next save is whole") {
  const TemporaryDirectory folder;
  rethrow(run_ranks(4, [&](ThreadCommunicator& communicator) {
    SavingRank rank(communicator, folder.path(), true);
    rank.save(1, When::kBeside);
    rank.saver.wait();
    rank.save(2, When::kBeside);
    rank.saver.wait();
    if (communicator.rank() == 0) std::ofstream(folder.path("checkpoint_3.partial")) << "a file, where the next one's folder belongs";
    double met = 0;
    communicator.control_sum(&met, 1);
    const std::vector<SaveNews> news = rank.save(3, When::kBeside);
    REQUIRE(news.size() == 1);
    CHECK_FALSE(news[0].committed);
    CHECK(news[0].complaints.size() == (communicator.rank() == 0 ? 1 : 0));
    CHECK(rank.saver.newest() == 2);
    rank.save(4, When::kBeside);
    CHECK(rank.saver.wait().back().committed == 4);
  }));
  CHECK(list_checkpoints(folder.path()) == std::vector<int64_t>{4, 2, 1});
  CHECK(fs::is_regular_file(folder.path("checkpoint_3.partial")));  // it is not ours
}

TEST_CASE("retention: the newest, marks and the best stay, and what was not evaluated is never the best") {
  std::vector<RatedStep> steps;
  for (int64_t step = 100; step > 0; step -= 10)
    steps.push_back({step, step == 60 ? std::nullopt : std::optional(1.0 + (step % 7) * 0.1)});
  CHECK(steps_to_retire(steps, {}).empty());
  CHECK(steps_to_retire(steps, {.keep = 100}).empty());
  CHECK(steps_to_retire(steps, {.keep = 2}) == std::vector<int64_t>{80, 70, 60, 50, 40, 30, 20, 10});
  CHECK(steps_to_retire(steps, {.keep = 1, .keep_every = 50}) == std::vector<int64_t>{90, 80, 70, 60, 40, 30, 20, 10});
  // 70 % 7 is 0, 50 % 7 is 1, 100 % 7 is 2.
  CHECK(steps_to_retire(steps, {.keep = 1, .keep_best = 2}) == std::vector<int64_t>{90, 80, 60, 40, 30, 20, 10});
}

TEST_CASE("retention: the best by held-out loss, or by the loss of the step") {
  const TemporaryDirectory folder;
  rethrow(run_ranks(4, [&](ThreadCommunicator& communicator) {
    SavingRank rank(communicator, folder.path(), false, {.keep = 1, .keep_best = 1, .metric = CheckpointMetric::kLoss});
    for (int64_t step : {1, 2, 3, 4}) rank.save(step, When::kAtOnce, step == 2 ? 0.5 : 1);
  }));
  CHECK(list_checkpoints(folder.path()) == std::vector<int64_t>{4, 2});
}
