#include <catch2/catch.hpp>
#include <filesystem>
#include <thread>

#include "service/job_store.h"
#include "support/temporary_directory.h"

using namespace distsetup;

namespace {

struct OpenStore {
  TemporaryDirectory folder;
  Database database;
  JobStore jobs{database};
  OpenStore() { REQUIRE(!has_error(database.open(folder.path("store.sqlite")))); }
};

JobRecord job_named(const std::string& id, int64_t priority = 0) {
  JobRecord job;
  job.id = id;
  job.method = "dpo";
  job.model = "m";
  job.priority = priority;
  job.created_ms = wall_clock_ms();
  return job;
}

// A job that has begun its first attempt.
JobRecord begun(JobStore& jobs, const std::string& id) {
  REQUIRE(jobs.add(job_named(id), 100) == JobStore::Added::kYes);
  JobRecord job = *jobs.find(id);
  job.attempt = 1;
  REQUIRE(jobs.move(job, JobState::kScheduled));
  return *jobs.find(id);
}

}  // namespace

TEST_CASE("service store: a job is kept once, and comes back as it was") {
  OpenStore store;
  JobRecord job = job_named("a");
  job.finetuned_model = "o/f";
  job.max_retries = 3;
  CHECK(store.jobs.add(job, 2) == JobStore::Added::kYes);
  CHECK(store.jobs.add(job, 2) == JobStore::Added::kDuplicate);
  CHECK(store.jobs.add(job_named("b"), 2) == JobStore::Added::kYes);
  CHECK(store.jobs.add(job_named("c"), 2) == JobStore::Added::kFull);
  const std::optional<JobRecord> found = store.jobs.find("a");
  REQUIRE(found);
  job.sequence = found->sequence;
  CHECK(*found == job);
  CHECK(!store.jobs.find("c"));
}

TEST_CASE("service store: the order is priority, then arrival") {
  OpenStore store;
  for (const auto& [id, priority] : {std::pair{"first", 0}, {"second", 0}, {"urgent", 5}, {"late", -1}})
    store.jobs.add(job_named(id, priority), 100);
  std::vector<std::string> ids;
  for (const JobRecord& job : store.jobs.in_states({JobState::kQueued})) ids.push_back(job.id);
  CHECK(ids == std::vector<std::string>{"urgent", "first", "second", "late"});
  CHECK(store.jobs.position(*store.jobs.find("second")) == 2);
}

TEST_CASE("service store: a state changes only from the one that was seen") {
  OpenStore store;
  const JobRecord job = begun(store.jobs, "a");
  CHECK(store.jobs.move(job, JobState::kInProgress));
  CHECK(!store.jobs.move(job, JobState::kInProgress));  // it is not scheduled any more
  JobRecord other = *store.jobs.find("a");
  other.attempt = 7;
  CHECK(!store.jobs.move(other, JobState::kCompleted));  // another attempt
  CHECK(store.jobs.find("a")->state == JobState::kInProgress);
}

TEST_CASE("service store: a final state never changes, not even by the database's own language") {
  OpenStore store;
  CHECK(store.jobs.move(begun(store.jobs, "a"), JobState::kFailed, "why"));
  const JobRecord ended = *store.jobs.find("a");
  CHECK(ended.reason == "why");
  for (const JobState to :
       {JobState::kQueued, JobState::kScheduled, JobState::kInProgress, JobState::kCompleted, JobState::kCancelled})
    CHECK(!may_become(ended.state, to));
  CHECK_THROWS_AS(store.database.write([](sqlite3* db) { SqlStatement(db, "UPDATE jobs SET state = 'queued'").run(); }), StoreFailure);
  CHECK(store.jobs.find("a")->state == JobState::kFailed);
  CHECK(!store.jobs.ask_to_cancel("a"));
}

TEST_CASE("service store: every transition has its time and its reason") {
  OpenStore store;
  CHECK(store.jobs.move(begun(store.jobs, "a"), JobState::kQueued, "again"));
  const std::vector<JobTransition> all = store.jobs.transitions("a");
  REQUIRE(all.size() == 3);
  CHECK(all[1].to == JobState::kScheduled);
  CHECK(all[2].from == JobState::kScheduled);
  CHECK(all[2].to == JobState::kQueued);
  CHECK(all[2].reason == "again");
  CHECK(all[2].at_ms >= all[0].at_ms);
}

TEST_CASE("service store: of many that start the same job one succeeds") {
  OpenStore store;
  store.jobs.add(job_named("a"), 10);
  JobRecord job = *store.jobs.find("a");
  job.attempt = 1;
  std::atomic<int> num_started{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { num_started += store.jobs.move(job, JobState::kScheduled) ? 1 : 0; });
  for (std::thread& thread : threads) thread.join();
  CHECK(num_started == 1);
}

TEST_CASE("service store: it is there after the program ends, and one of a newer program is refused") {
  TemporaryDirectory folder;
  {
    Database database;
    REQUIRE(!has_error(database.open(folder.path("s"))));
    JobStore(database).add(job_named("a"), 10);
  }
  {
    Database database;
    REQUIRE(!has_error(database.open(folder.path("s"))));
    CHECK(JobStore(database).find("a"));
    database.write([](sqlite3* db) { SqlStatement(db, "PRAGMA user_version = 99").run(); });
  }
  Database database;
  CHECK(has_error(database.open(folder.path("s"))));
}

TEST_CASE("service store: artifacts of a job go with it") {
  OpenStore store;
  const JobRecord job = begun(store.jobs, "a");
  JobArtifact one;
  one.identifier = "x";
  one.path = "/p";
  one.kind = "checkpoint";
  one.step = 3;
  one.train_loss = 0.5;
  store.jobs.put_artifacts("a", {one});
  REQUIRE(store.jobs.artifacts("a").size() == 1);
  CHECK(store.jobs.artifacts("a")[0].train_loss == 0.5);
  CHECK(!store.jobs.artifacts("a")[0].validation_loss);
  // The model comes last, whatever step it is of.
  JobArtifact model = one, later = one;
  model.identifier = "m";
  model.kind = "model";
  later.identifier = "a";
  later.step = 5;
  store.jobs.put_artifacts("a", {one, later, model});
  std::string names;
  for (const JobArtifact& each : store.jobs.artifacts("a")) names += each.identifier + " ";
  CHECK(names == "x a m ");
  CHECK(!store.jobs.remove_finished("a"));
  CHECK(store.jobs.move(job, JobState::kCancelled));
  CHECK(store.jobs.remove_finished("a"));
  CHECK(store.jobs.artifacts("a").empty());
}
