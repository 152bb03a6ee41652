#include "service/database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <array>
#include <iterator>

#include "base/diagnostic_codes.h"

namespace distsetup {
namespace {

constexpr size_t kReaders = 4;
constexpr int kBusyTimeout_ms = 5000;

// One text for each version, never changed: a file of any version becomes the newest by those that it lacks.
constexpr std::array<const char*, 1> kMigrations = {R"sql(
CREATE TABLE jobs (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  method TEXT NOT NULL, model TEXT NOT NULL, finetuned_model TEXT NOT NULL, dataset_id TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('queued', 'scheduled', 'in_progress', 'completed', 'failed', 'cancelled')),
  priority INTEGER NOT NULL, attempt INTEGER NOT NULL, max_retries INTEGER NOT NULL,
  num_nodes INTEGER NOT NULL, ranks_per_node INTEGER NOT NULL, devices TEXT NOT NULL,
  pid INTEGER NOT NULL, pid_started INTEGER NOT NULL, is_cancel_asked INTEGER NOT NULL, reason TEXT NOT NULL,
  created_ms INTEGER NOT NULL, scheduled_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL, completed_ms INTEGER NOT NULL,
  not_before_ms INTEGER NOT NULL, kill_ms INTEGER NOT NULL
);
CREATE INDEX jobs_by_state ON jobs (state, priority DESC, sequence);
CREATE TABLE transitions (
  id INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  from_state TEXT NOT NULL, to_state TEXT NOT NULL, at_ms INTEGER NOT NULL, attempt INTEGER NOT NULL, reason TEXT NOT NULL
);
CREATE INDEX transitions_by_job ON transitions (job, id);
CREATE TRIGGER final_states_stay BEFORE UPDATE OF state ON jobs
  WHEN OLD.state IN ('completed', 'failed', 'cancelled') AND NEW.state <> OLD.state
  BEGIN SELECT RAISE(ABORT, 'a final state never changes'); END;
CREATE TABLE artifacts (
  job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE, identifier TEXT NOT NULL, path TEXT NOT NULL, kind TEXT NOT NULL,
  created_ms INTEGER NOT NULL, step INTEGER NOT NULL, epoch INTEGER NOT NULL, train_loss REAL, validation_loss REAL,
  PRIMARY KEY (job, identifier)
);
CREATE TABLE datasets (
  id TEXT PRIMARY KEY, purpose TEXT NOT NULL, kind TEXT NOT NULL, source TEXT NOT NULL, metadata TEXT NOT NULL, path TEXT NOT NULL,
  num_rows INTEGER NOT NULL, num_bytes INTEGER NOT NULL, digest TEXT NOT NULL, created_ms INTEGER NOT NULL
);
)sql"};

[[noreturn]] void fail_with(sqlite3* connection) {
  const int code = sqlite3_errcode(connection);
  throw StoreFailure(fmt::format("the store: {}", sqlite3_errmsg(connection)), code == SQLITE_FULL || code == SQLITE_IOERR);
}

void execute(sqlite3* connection, const char* text) {
  if (sqlite3_exec(connection, text, nullptr, nullptr, nullptr) != SQLITE_OK) fail_with(connection);
}

int64_t user_version(sqlite3* connection) {
  SqlStatement statement(connection, "PRAGMA user_version");
  return statement.step() ? statement.integer(0) : 0;
}

sqlite3* connect(const std::string& path, int flags) {
  sqlite3* connection = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &connection, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, nullptr);
  if (code != SQLITE_OK) {
    const std::string why = sqlite3_errmsg(connection);
    sqlite3_close(connection);
    throw StoreFailure(why, false);
  }
  sqlite3_busy_timeout(connection, kBusyTimeout_ms);
  execute(connection, "PRAGMA foreign_keys = ON");
  return connection;
}

void migrate(sqlite3* connection) {
  for (size_t version = static_cast<size_t>(user_version(connection)); version < kMigrations.size(); ++version) {
    execute(connection, "BEGIN IMMEDIATE");
    try {
      execute(connection, kMigrations[version]);
      execute(connection, fmt::format("PRAGMA user_version = {}", version + 1).c_str());
      execute(connection, "COMMIT");
    } catch (const StoreFailure&) {
      sqlite3_exec(connection, "ROLLBACK", nullptr, nullptr, nullptr);
      throw;
    }
  }
}

}  // namespace

SqlStatement::SqlStatement(sqlite3* connection, const char* text) : connection_(connection) {
  if (sqlite3_prepare_v2(connection, text, -1, &statement_, nullptr) != SQLITE_OK) fail_with(connection);
}

SqlStatement::~SqlStatement() { sqlite3_finalize(statement_); }

SqlStatement& SqlStatement::bind(int64_t value) {
  if (sqlite3_bind_int64(statement_, ++num_bound_, value) != SQLITE_OK) fail_with(connection_);
  return *this;
}

SqlStatement& SqlStatement::bind(double value) {
  if (sqlite3_bind_double(statement_, ++num_bound_, value) != SQLITE_OK) fail_with(connection_);
  return *this;
}

SqlStatement& SqlStatement::bind(const std::string& text) {
  if (sqlite3_bind_text64(statement_, ++num_bound_, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8) != SQLITE_OK)
    fail_with(connection_);
  return *this;
}

SqlStatement& SqlStatement::bind(std::nullptr_t) {
  if (sqlite3_bind_null(statement_, ++num_bound_) != SQLITE_OK) fail_with(connection_);
  return *this;
}

bool SqlStatement::step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) fail_with(connection_);
  return false;
}

void SqlStatement::run() {
  while (step()) {
  }
}

int64_t SqlStatement::integer(int column) const { return sqlite3_column_int64(statement_, column); }
double SqlStatement::number(int column) const { return sqlite3_column_double(statement_, column); }
bool SqlStatement::is_null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }

std::string SqlStatement::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return bytes == nullptr ? "" : std::string(bytes, static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
}

Database::~Database() {
  for (sqlite3* reader : readers_) sqlite3_close(reader);
  sqlite3_close(writer_);
}

Diagnostics Database::open(const std::string& path) {
  try {
    writer_ = connect(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    execute(writer_, "PRAGMA journal_mode = WAL");
    execute(writer_, "PRAGMA synchronous = FULL");  // a state that was told is on the disk
    if (const int64_t version = user_version(writer_); version > static_cast<int64_t>(std::size(kMigrations))) {
      return {error(code::kUnknownVersion, {path},
                    fmt::format("the store has version {}, this program knows {}", version, std::size(kMigrations)),
                    "start the newer program that wrote it, or name another folder with --data")};
    }
    migrate(writer_);
    for (size_t i = 0; i < kReaders; ++i) readers_.push_back(connect(path, SQLITE_OPEN_READONLY));
  } catch (const StoreFailure& failure) {
    return {error(code::kUnwritableFile, {path}, fmt::format("cannot be used as the store: {}", failure.what()))};
  }
  return {};
}

void Database::write(const std::function<void(sqlite3*)>& work) {
  const std::lock_guard lock(write_mutex_);
  execute(writer_, "BEGIN IMMEDIATE");
  try {
    work(writer_);
    execute(writer_, "COMMIT");
  } catch (...) {
    sqlite3_exec(writer_, "ROLLBACK", nullptr, nullptr, nullptr);
    throw;
  }
}

void Database::read(const std::function<void(sqlite3*)>& work) {
  sqlite3* reader = nullptr;
  {
    std::unique_lock lock(read_mutex_);
    reader_is_free_.wait(lock, [this] { return !readers_.empty(); });
    reader = readers_.back();
    readers_.pop_back();
  }
  const auto give_back = [this, reader] {
    const std::lock_guard lock(read_mutex_);
    readers_.push_back(reader);
    reader_is_free_.notify_one();
  };
  try {
    work(reader);
  } catch (...) {
    give_back();
    throw;
  }
  give_back();
}

int64_t Database::num_changed() const { return sqlite3_changes64(writer_); }

}  // namespace distsetup
