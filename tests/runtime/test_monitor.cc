// Environment, agreement on failures, checkpoints saved together, drift of replicas, metrics.jsonl, predicted beside measured.
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "base/file.h"
#include "base/json.h"
#include "runtime/checkpoint/collective.h"
#include "runtime/checkpoint/load.h"
#include "runtime/checkpoint/saver.h"
#include "runtime/monitor/environment.h"
#include "runtime/monitor/event_file.h"
#include "runtime/monitor/failure.h"
#include "runtime/monitor/metrics.h"
#include "runtime/monitor/replicas.h"
#include "runtime/monitor/report.h"
#include "support/temporary_directory.h"
#include "thread_communicator.h"

using namespace distsetup;
namespace fs = std::filesystem;

namespace {

Getenv from(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

// Exit code and text of what a rank threw; 0 = nothing.
struct Outcome {
  int exit_code = 0;
  std::string what;
};
Outcome outcome_of(const std::exception_ptr& failure) {
  if (!failure) return {};
  try {
    std::rethrow_exception(failure);
  } catch (const Failure& f) {
    return {f.exit_code(), f.what()};
  } catch (const CommunicationError& f) {
    return {kExitPeer, f.what()};
  }
}

Geometry small_geometry() {
  Geometry geometry;
  geometry.name = geometry.family = "llama";
  geometry.num_layers = 1;
  geometry.hidden = 16;
  geometry.num_heads = 4;
  geometry.num_kv_heads = 2;
  geometry.head_size = 4;
  geometry.feed_forward = 40;
  geometry.vocabulary = 32;
  return geometry;
}

// Four ranks, two replicas of two shards.
struct Saver {
  Mesh mesh = {.dp_replicate = 2, .dp_shard = 2};
  Layout layout = make_layout(small_geometry(), mesh);
  CheckpointPlace place(const fs::path& directory) const { return {directory.string(), {.keep = 2}, std::string(64, 'b'), {}}; }
  // What rank's save does; its values depend on its shard only.
  void save(Communicator& communicator, const fs::path& directory, int64_t step) const {
    const Coordinates at = coordinates(mesh, communicator.rank());
    std::array<std::vector<float>, 3> values;
    for (auto& state : values) state.assign(static_cast<size_t>(layout.shard_numel), static_cast<float>(at.dp_shard + 1));
    const CheckpointMetadata metadata = {
        .step = step, .loss = 1.0, .learning_rate = 0.1, .seed = 1, .data_digest = std::string(64, 'a')};
    save_checkpoint(communicator, place(directory), {&layout, at, values[0], {{"exp_avg", values[1]}, {"exp_avg_sq", values[2]}}},
                    at.dp_replicate == 0, metadata);
  }
};

}  // namespace

TEST_CASE("each launcher's variables are read, and what is missing or wrong is named") {
  const Result<RankEnvironment> none = read_environment(from({}));
  REQUIRE(none.ok());
  CHECK(none->world == 1);
  CHECK(none->source == "no launcher");
  const Result<RankEnvironment> torchrun = read_environment(from({{"RANK", "3"},
                                                                  {"WORLD_SIZE", "4"},
                                                                  {"LOCAL_RANK", "1"},
                                                                  {"LOCAL_WORLD_SIZE", "2"},
                                                                  {"MASTER_ADDR", "a"},
                                                                  {"MASTER_PORT", "77"},
                                                                  {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                                  {"TORCHELASTIC_RUN_ID", "r"},
                                                                  {"TORCHELASTIC_RESTART_COUNT", "2"},
                                                                  {"SLURM_PROCID", "0"},
                                                                  {"SLURM_STEP_ID", "0"}}));
  REQUIRE(torchrun.ok());
  CHECK(torchrun->rank == 3);
  CHECK(torchrun->local_world == 2);
  CHECK(torchrun->rendezvous.master_address == "a");
  CHECK(torchrun->rendezvous.master_port == 77);
  CHECK(torchrun->rendezvous.agent_store);
  const Result<RankEnvironment> slurm = read_environment(from({{"SLURM_PROCID", "5"},
                                                               {"SLURM_NTASKS", "99"},
                                                               {"SLURM_STEP_NUM_TASKS", "8"},
                                                               {"SLURM_LOCALID", "1"},
                                                               {"SLURM_STEP_ID", "0"},
                                                               {"SLURM_JOB_ID", "12"},
                                                               {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
                                                               {"MASTER_ADDR", "n1"},
                                                               {"MASTER_PORT", "20012"}}));
  REQUIRE(slurm.ok());
  CHECK(slurm->rank == 5);
  CHECK(slurm->world == 8);
  CHECK(slurm->local_world == 4);
  CHECK(slurm->rendezvous.run_id != torchrun->rendezvous.run_id);
  CHECK(read_environment(from({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}))->world == 1);  // the batch shell, not a task
  const Result<RankEnvironment> mpi = read_environment(from({{"OMPI_COMM_WORLD_RANK", "1"},
                                                             {"OMPI_COMM_WORLD_SIZE", "2"},
                                                             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}));
  REQUIRE(mpi.ok());
  CHECK(mpi->rank == 1);

  const auto message = [](std::map<std::string, std::string> variables) {
    const Result<RankEnvironment> environment = read_environment(from(std::move(variables)));
    REQUIRE_FALSE(environment.ok());
    return environment.diagnostics.front().message;
  };
  CHECK(message({{"RANK", "0"}}) == "WORLD_SIZE is not set, expected a number beside its kin");
  CHECK(message({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}}) == "RANK is '2', expected a number from 0 to 1");
  CHECK(message({{"RANK", "-1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}}) == "RANK is '-1', expected a number from 0 to 1");
  CHECK(message({{"RANK", "1x"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}}) == "RANK is '1x', expected a number from 0 to 1");
  CHECK(message({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_PORT", "99999"}}) ==
        "MASTER_PORT is '99999', expected a number from 1 to 65535");
  CHECK_THAT(message({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}}),
             Catch::Contains("MASTER_ADDR is not set"));
}

TEST_CASE("a failure of one rank ends all, and only that rank says why") {
  const auto failures = run_ranks(3, [](ThreadCommunicator& communicator) {
    agree(communicator, {}, kExitFailed);
    Diagnostics mine;
    if (communicator.rank() == 1) mine.push_back(error("DS0901", {}, "no data here"));
    agree(communicator, mine, kExitBadEnvironment);
    FAIL("unreachable");
  });
  CHECK(outcome_of(failures[1]).exit_code == kExitBadEnvironment);
  CHECK(outcome_of(failures[1]).what == "no data here");
  for (int rank : {0, 2}) {
    CHECK(outcome_of(failures[static_cast<size_t>(rank)]).exit_code == kExitPeer);
    CHECK(outcome_of(failures[static_cast<size_t>(rank)]).what == "stopped, because 1 of 3 ranks failed here");
  }
}

TEST_CASE("regression 4: a save is the same collective calls on every rank, writers or not") {
  const TemporaryDirectory folder;
  const Saver saver;
  std::array<int64_t, 4> num_operations = {};
  const auto failures = run_ranks(4, [&](ThreadCommunicator& communicator) {
    saver.save(communicator, folder.path(), 3);
    num_operations[static_cast<size_t>(communicator.rank())] = communicator.num_operations;
  });
  for (const auto& failure : failures) CHECK(outcome_of(failure).what.empty());
  CHECK(num_operations[0] > 0);
  for (int64_t n : num_operations) CHECK(n == num_operations[0]);
  CHECK(verify_checkpoint(folder.path(), 3).ok());
  CHECK(fs::exists(folder.path("checkpoint_3/rank_0.safetensors")));
  CHECK(fs::exists(folder.path("checkpoint_3/rank_1.safetensors")));
  CHECK_FALSE(fs::exists(folder.path("checkpoint_3/rank_2.safetensors")));  // replica 1 writes nothing
}

TEST_CASE("a rank that cannot write fails the save on all ranks, and nothing half-written is left") {
  const TemporaryDirectory folder;
  const Saver saver;
  run_ranks(4, [&](ThreadCommunicator& communicator) { saver.save(communicator, folder.path(), 1); });
  const auto failures = run_ranks(4, [&](ThreadCommunicator& communicator) {
    saver.save(communicator, communicator.rank() == 1 ? folder.path("nowhere") : folder.path(), 2);
  });
  CHECK_THAT(outcome_of(failures[1]).what, Catch::Contains("cannot write") && Catch::Contains("rank_1.safetensors"));
  for (int rank : {0, 2, 3}) CHECK(outcome_of(failures[static_cast<size_t>(rank)]).exit_code == kExitPeer);
  CHECK(list_checkpoints(folder.path()) == std::vector<int64_t>{1});
  CHECK_FALSE(fs::exists(folder.path("checkpoint_2.partial")));
}

TEST_CASE("regression 21: all ranks go on from the same step, whoever finds the newest checkpoint broken") {
  const TemporaryDirectory folder;
  const Saver saver;
  for (int64_t step : {5, 6}) run_ranks(4, [&](ThreadCommunicator& communicator) { saver.save(communicator, folder.path(), step); });
  const auto start_steps = [&](int world) {
    std::mutex mutex;
    std::vector<int64_t> steps;
    std::atomic<size_t> num_lines = 0, num_refused = 0;
    const auto failures = run_ranks(world, [&](ThreadCommunicator& communicator) {
      const FoundCheckpoint found = find_checkpoint(communicator, folder.path());
      num_lines += found.refused.size();
      num_refused = found.refused_steps.size();
      const std::lock_guard lock(mutex);
      steps.push_back(found.newest ? found.newest->step : -1);
    });
    for (const auto& failure : failures) {
      if (failure) steps.push_back(-outcome_of(failure).exit_code * 100);
    }
    CHECK(num_lines == num_refused);  // said once, by one rank
    return steps;
  };
  CHECK(start_steps(4) == std::vector<int64_t>{6, 6, 6, 6});
  for (const char* file : {"index.json", "rank_0.safetensors", "rank_1.safetensors"}) {
    const std::string path = folder.path(std::string("checkpoint_6/") + file);
    const std::string bytes = *read_file(path);
    std::string broken = bytes;
    broken.back() = static_cast<char>(broken.back() ^ 1);
    std::ofstream(path, std::ios::binary) << broken;
    CHECK(start_steps(4) == std::vector<int64_t>{5, 5, 5, 5});
    CHECK(start_steps(3) == std::vector<int64_t>{5, 5, 5});
    std::ofstream(path, std::ios::binary) << bytes;
  }
  CHECK(start_steps(2) == std::vector<int64_t>{6, 6});
  for (int64_t step : {5, 6}) fs::resize_file(folder.path("checkpoint_" + std::to_string(step) + "/index.json"), 3);
  CHECK(start_steps(2) == std::vector<int64_t>{-100, -100});  // refused, all of them: starting over would hide it
  for (int64_t step : {5, 6}) fs::remove(folder.path("checkpoint_" + std::to_string(step) + "/COMMIT"));
  CHECK(start_steps(2) == std::vector<int64_t>{-1, -1});  // never finished: from the beginning
}

TEST_CASE("regression 30: replicas whose bits differ stop the run on every rank") {
  for (int drifted : {-1, 0, 3}) {
    const auto failures = run_ranks(4, [drifted](ThreadCommunicator& communicator) {
      Layout layout;
      layout.mesh = {.dp_replicate = 2, .dp_shard = 2};
      const int shard = coordinates(layout.mesh, communicator.rank()).dp_shard;
      std::vector<float> master(1000, 0.5f + static_cast<float>(shard));
      if (communicator.rank() == drifted) master[777] = std::nextafter(master[777], 10.0f);
      check_replicas(communicator, layout, master);
    });
    for (const auto& failure : failures) {
      CHECK(outcome_of(failure).exit_code == (drifted < 0 ? 0 : kExitFailed));
      if (drifted == 0) CHECK_THAT(outcome_of(failure).what, Catch::Contains("ranks 0 and 2"));
      if (drifted == 3) CHECK_THAT(outcome_of(failure).what, Catch::Contains("ranks 1 and 3"));
    }
  }
}

TEST_CASE("regression 25: metrics after a resume have every step once, and a line that was cut short is gone") {
  const TemporaryDirectory folder;
  const std::string path = folder.path("metrics.jsonl");
  {
    MetricsFile metrics;
    REQUIRE(metrics.open(path, -1).ok());
    REQUIRE(metrics.write({{"kind", "evaluation"}, {"step", 0}}).empty());
    for (int step = 1; step <= 9; ++step) REQUIRE(metrics.write({{"kind", "step"}, {"step", step}, {"loss", 1.0 / step}}).empty());
  }
  std::ofstream(path, std::ios::app) << "{\"kind\": \"st";
  MetricsFile metrics;
  const Result<int64_t> dropped = metrics.open(path, 6);
  REQUIRE(dropped.ok());
  CHECK(*dropped == 4);
  for (int step = 7; step <= 8; ++step) REQUIRE(metrics.write({{"kind", "step"}, {"step", step}}).empty());
  std::ifstream file(path);
  std::vector<int> steps;
  for (std::string line; std::getline(file, line);) steps.push_back(Json::parse(line)["step"].get<int>());
  CHECK(steps == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("predicted and measured stand side by side in the plan's words") {
  Plan plan;
  plan.memory.terms = {
      {"parameter shard", 100, 100, "forward"}, {"activation", 50, 70, "backward"}, {"arena packing", 4, 4, "backward"}};
  plan.memory.arena_bytes = 80;
  plan.time.step_s = 0.5;
  plan.time.by_instruction = {{"Forward", 0.2}, {"Backward", 0.3}};
  MemoryReport memory;
  memory.run_bytes[static_cast<size_t>(BufferClass::kParameterShard)] = 100;
  memory.run_bytes[static_cast<size_t>(BufferClass::kActivation)] = 10;
  memory.arena_peak_bytes[static_cast<size_t>(BufferClass::kActivation)] = 61;
  memory.arena_bytes = 80;
  TimeMeter meter;
  StepStats stats;
  stats.by_instruction["Forward"] = {9.0, 1};
  meter.add(stats, 9.0);  // the first step is left out of the mean
  stats.by_instruction["Forward"] = {0.25, 1};
  meter.add(stats, 0.6);
  meter.add(stats, 0.8);
  const std::vector<Comparison> rows = compare(plan, memory, meter.mean());
  const auto row = [&rows](const std::string& what) {
    return *std::find_if(rows.begin(), rows.end(), [&what](const Comparison& r) { return r.what == what; });
  };
  CHECK(row("parameter shard").measured == row("parameter shard").predicted);
  CHECK(row("activation").predicted == 70);
  CHECK(row("activation").measured == 71);
  CHECK(row("step").measured == Approx(0.7));
  CHECK(row("Forward").measured == Approx(0.25));
  CHECK(row("Backward").measured == 0);
  const std::string text = format_comparison(rows);
  CHECK_THAT(text, Catch::Contains("activation                        70 B              71 B  +1 B (+1.4 %)"));
  CHECK_THAT(text, Catch::Contains("parameter shard                  100 B             100 B  equal"));
  CHECK_THAT(text, Catch::Contains("2 of 3 kinds of buffers take the predicted bytes exactly"));
}

TEST_CASE("events: records that TensorBoard reads", "[monitor]") {
  CHECK(crc32c("123456789") == 0xE3069283u);            // the check value of CRC-32C
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AAu);  // RFC 3720, B.4
  const TemporaryDirectory folder;
  {
    EventFile events;
    REQUIRE_FALSE(has_error(events.open(folder.path() + "/tensorboard", 8)));
    REQUIRE_FALSE(has_error(events.write({{"kind", "step"}, {"step", 8}, {"loss", 2.5}, {"rewards/margins", 1}, {"name", "text"}})));
  }
  std::string bytes;
  for (const auto& entry : fs::directory_iterator(folder.path() + "/tensorboard")) {
    CHECK(entry.path().filename().string().starts_with("events.out.tfevents."));
    bytes = *read_file(entry.path().string());
  }
  std::vector<std::string> records;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, 8);
    REQUIRE(at + 16 + length <= bytes.size());
    uint32_t stored = 0;
    std::memcpy(&stored, bytes.data() + at + 12 + length, 4);
    const uint32_t crc = crc32c(std::string_view(bytes).substr(at + 12, length));
    CHECK(stored == ((crc >> 15) | (crc << 17)) + 0xA282EAD8u);
    records.push_back(bytes.substr(at + 12, length));
    at += 16 + length;
  }
  REQUIRE(records.size() == 3);  // version, start of a session, scalars
  CHECK(records[0].find("brain.Event:2") != std::string::npos);
  CHECK(records[1].substr(9, 6) == std::string("\x10\x08\x3A\x02\x08\x01", 6));
  CHECK(records[2].find("step/loss\x15" + std::string("\0\0\x20\x40", 4)) != std::string::npos);
  CHECK(records[2].find("\x0Frewards/margins\x15") != std::string::npos);
  CHECK(records[2].find("name") == std::string::npos);
}
