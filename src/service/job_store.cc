#include "service/job_store.h"

#include <fmt/format.h>

#include "base/check.h"

namespace distsetup {
namespace {

constexpr char kJobColumns[] =
    "id, method, model, finetuned_model, dataset_id, state, sequence, priority, attempt, max_retries, num_nodes, ranks_per_node, "
    "devices, "
    "pid, pid_started, is_cancel_asked, reason, created_ms, scheduled_ms, started_ms, completed_ms, not_before_ms, kill_ms";

JobState read_state(const std::string& text) {
  const std::optional<JobState> state = job_state_from(text);
  if (!state) throw StoreFailure(fmt::format("a job has the state '{}'", text), false);
  return *state;
}

JobRecord read_job(const SqlStatement& row) {
  JobRecord job;
  int column = 0;
  job.id = row.text(column++);
  job.method = row.text(column++);
  job.model = row.text(column++);
  job.finetuned_model = row.text(column++);
  job.dataset_id = row.text(column++);
  job.state = read_state(row.text(column++));
  job.sequence = row.integer(column++);
  job.priority = row.integer(column++);
  job.attempt = row.integer(column++);
  job.max_retries = row.integer(column++);
  job.num_nodes = row.integer(column++);
  job.ranks_per_node = row.integer(column++);
  job.devices = row.text(column++);
  job.pid = static_cast<pid_t>(row.integer(column++));
  job.pid_started = row.integer(column++);
  job.is_cancel_asked = row.integer(column++) != 0;
  job.reason = row.text(column++);
  job.created_ms = row.integer(column++);
  job.scheduled_ms = row.integer(column++);
  job.started_ms = row.integer(column++);
  job.completed_ms = row.integer(column++);
  job.not_before_ms = row.integer(column++);
  job.kill_ms = row.integer(column++);
  return job;
}

std::string state_text(JobState state) { return std::string(job_state_name(state)); }

void add_transition(sqlite3* db, const std::string& id, JobState from, JobState to, int64_t attempt, const std::string& reason) {
  SqlStatement(db, "INSERT INTO transitions (job, from_state, to_state, at_ms, attempt, reason) VALUES (?, ?, ?, ?, ?, ?)")
      .bind(id)
      .bind(state_text(from))
      .bind(state_text(to))
      .bind(wall_clock_ms())
      .bind(attempt)
      .bind(reason)
      .run();
}

// Whether a cancel was asked for is never taken back by who works on an older record.
bool write_fields(sqlite3* db, const JobRecord& job, JobState to, int64_t attempt_before, const std::string& reason,
                  int64_t& changed) {
  SqlStatement statement(
      db,
      "UPDATE jobs SET state = ?, attempt = ?, devices = ?, pid = ?, pid_started = ?, reason = ?, scheduled_ms = ?, "
      "started_ms = ?, completed_ms = ?, not_before_ms = ?, kill_ms = ? WHERE id = ? AND state = ? AND attempt = ? RETURNING 1");
  statement.bind(state_text(to))
      .bind(job.attempt)
      .bind(job.devices)
      .bind(int64_t{job.pid})
      .bind(job.pid_started)
      .bind(reason)
      .bind(job.scheduled_ms)
      .bind(job.started_ms)
      .bind(job.completed_ms)
      .bind(job.not_before_ms)
      .bind(job.kill_ms)
      .bind(job.id)
      .bind(state_text(job.state))
      .bind(attempt_before);
  changed = 0;
  while (statement.step()) ++changed;
  return changed == 1;
}

}  // namespace

JobStore::Added JobStore::add(JobRecord job, int64_t most_open) {
  Added added = Added::kYes;
  database_.write([&](sqlite3* db) {
    SqlStatement same(db, "SELECT 1 FROM jobs WHERE id = ?");
    if (same.bind(job.id).step()) {
      added = Added::kDuplicate;
      return;
    }
    SqlStatement open(db, "SELECT count(*) FROM jobs WHERE state IN ('queued', 'scheduled', 'in_progress')");
    if (open.step() && open.integer(0) >= most_open) {
      added = Added::kFull;
      return;
    }
    SqlStatement(
        db,
        "INSERT INTO jobs (id, method, model, finetuned_model, dataset_id, state, priority, attempt, max_retries, num_nodes, "
        "ranks_per_node, devices, pid, pid_started, is_cancel_asked, reason, created_ms, scheduled_ms, started_ms, completed_ms, "
        "not_before_ms, kill_ms) VALUES (?, ?, ?, ?, ?, 'queued', ?, 0, ?, ?, ?, '', 0, 0, 0, '', ?, 0, 0, 0, 0, 0)")
        .bind(job.id)
        .bind(job.method)
        .bind(job.model)
        .bind(job.finetuned_model)
        .bind(job.dataset_id)
        .bind(job.priority)
        .bind(job.max_retries)
        .bind(job.num_nodes)
        .bind(job.ranks_per_node)
        .bind(job.created_ms)
        .run();
    add_transition(db, job.id, JobState::kQueued, JobState::kQueued, 0, "");
  });
  return added;
}

std::optional<JobRecord> JobStore::find(const std::string& id) {
  std::optional<JobRecord> found;
  database_.read([&](sqlite3* db) {
    SqlStatement statement(db, fmt::format("SELECT {} FROM jobs WHERE id = ?", kJobColumns).c_str());
    if (statement.bind(id).step()) found = read_job(statement);
  });
  return found;
}

std::vector<JobRecord> JobStore::all(int64_t most) {
  std::vector<JobRecord> out;
  database_.read([&](sqlite3* db) {
    SqlStatement statement(db, fmt::format("SELECT {} FROM jobs ORDER BY sequence DESC LIMIT ?", kJobColumns).c_str());
    statement.bind(most);
    while (statement.step()) out.push_back(read_job(statement));
  });
  return out;
}

std::vector<JobRecord> JobStore::in_states(const std::vector<JobState>& states) {
  std::string names;
  for (const JobState state : states) names += fmt::format("{}'{}'", names.empty() ? "" : ", ", job_state_name(state));
  std::vector<JobRecord> out;
  database_.read([&](sqlite3* db) {
    SqlStatement statement(
        db, fmt::format("SELECT {} FROM jobs WHERE state IN ({}) ORDER BY priority DESC, sequence", kJobColumns, names).c_str());
    while (statement.step()) out.push_back(read_job(statement));
  });
  return out;
}

std::map<JobState, int64_t> JobStore::count_by_state() {
  std::map<JobState, int64_t> out;
  database_.read([&](sqlite3* db) {
    SqlStatement statement(db, "SELECT state, count(*) FROM jobs GROUP BY state");
    while (statement.step()) out[read_state(statement.text(0))] = statement.integer(1);
  });
  return out;
}

int64_t JobStore::position(const JobRecord& job) {
  int64_t before = 0;
  database_.read([&](sqlite3* db) {
    SqlStatement statement(
        db, "SELECT count(*) FROM jobs WHERE state = 'queued' AND (priority > ?1 OR (priority = ?1 AND sequence < ?2))");
    if (statement.bind(job.priority).bind(job.sequence).step()) before = statement.integer(0);
  });
  return before;
}

bool JobStore::move(const JobRecord& job, JobState to, const std::string& reason) {
  CHECK(may_become(job.state, to), "{} -> {}", job_state_name(job.state), job_state_name(to));
  bool is_moved = false;
  database_.write([&](sqlite3* db) {
    // Starting raises the attempt; everything else is of the attempt that is stored.
    const int64_t before = to == JobState::kScheduled ? job.attempt - 1 : job.attempt;
    int64_t changed = 0;
    is_moved = write_fields(db, job, to, before, reason, changed);
    if (is_moved) add_transition(db, job.id, job.state, to, job.attempt, reason);
  });
  return is_moved;
}

bool JobStore::update(const JobRecord& job) {
  bool is_written = false;
  database_.write([&](sqlite3* db) {
    int64_t changed = 0;
    is_written = write_fields(db, job, job.state, job.attempt, job.reason, changed);
  });
  return is_written;
}

bool JobStore::ask_to_cancel(const std::string& id) {
  bool is_asked = false;
  database_.write([&](sqlite3* db) {
    SqlStatement statement(
        db, "UPDATE jobs SET is_cancel_asked = 1 WHERE id = ? AND state IN ('queued', 'scheduled', 'in_progress') RETURNING 1");
    statement.bind(id);
    while (statement.step()) is_asked = true;
  });
  return is_asked;
}

std::vector<JobTransition> JobStore::transitions(const std::string& id) {
  std::vector<JobTransition> out;
  database_.read([&](sqlite3* db) {
    SqlStatement statement(db, "SELECT from_state, to_state, at_ms, attempt, reason FROM transitions WHERE job = ? ORDER BY id");
    statement.bind(id);
    while (statement.step()) {
      out.push_back({read_state(statement.text(0)), read_state(statement.text(1)), statement.integer(2), statement.integer(3),
                     statement.text(4)});
    }
  });
  return out;
}

void JobStore::put_artifacts(const std::string& id, const std::vector<JobArtifact>& artifacts) {
  database_.write([&](sqlite3* db) {
    SqlStatement(db, "DELETE FROM artifacts WHERE job = ?").bind(id).run();
    for (const JobArtifact& one : artifacts) {
      SqlStatement statement(
          db,
          "INSERT INTO artifacts (job, identifier, path, kind, created_ms, step, epoch, train_loss, validation_loss) "
          "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)");
      statement.bind(id).bind(one.identifier).bind(one.path).bind(one.kind).bind(one.created_ms).bind(one.step).bind(one.epoch);
      for (const std::optional<double>& loss : {one.train_loss, one.validation_loss}) {
        if (loss)
          statement.bind(*loss);
        else
          statement.bind(nullptr);
      }
      statement.run();
    }
  });
}

std::vector<JobArtifact> JobStore::artifacts(const std::string& id) {
  std::vector<JobArtifact> out;
  database_.read([&](sqlite3* db) {
    SqlStatement statement(db,
                           "SELECT identifier, path, kind, created_ms, step, epoch, train_loss, validation_loss FROM artifacts "
                           "WHERE job = ? ORDER BY kind = 'model', step, identifier");
    statement.bind(id);
    while (statement.step()) {
      JobArtifact one;
      one.identifier = statement.text(0);
      one.path = statement.text(1);
      one.kind = statement.text(2);
      one.created_ms = statement.integer(3);
      one.step = statement.integer(4);
      one.epoch = statement.integer(5);
      if (!statement.is_null(6)) one.train_loss = statement.number(6);
      if (!statement.is_null(7)) one.validation_loss = statement.number(7);
      out.push_back(std::move(one));
    }
  });
  return out;
}

std::vector<std::string> JobStore::finished_before(TimeMs at) {
  std::vector<std::string> out;
  database_.read([&](sqlite3* db) {
    SqlStatement statement(
        db, "SELECT id FROM jobs WHERE state IN ('completed', 'failed', 'cancelled') AND completed_ms < ? ORDER BY sequence");
    statement.bind(at);
    while (statement.step()) out.push_back(statement.text(0));
  });
  return out;
}

bool JobStore::remove_finished(const std::string& id) {
  bool is_removed = false;
  database_.write([&](sqlite3* db) {
    SqlStatement statement(db, "DELETE FROM jobs WHERE id = ? AND state IN ('completed', 'failed', 'cancelled') RETURNING 1");
    statement.bind(id);
    while (statement.step()) is_removed = true;
  });
  return is_removed;
}

}  // namespace distsetup
