#include "service/dataset_store.h"

#include "base/json_text.h"

namespace distsetup {
namespace {

constexpr char kDatasetColumns[] = "id, purpose, kind, source, metadata, path, num_rows, num_bytes, digest, created_ms";

DatasetRecord read_dataset(const SqlStatement& row) {
  DatasetRecord out;
  out.id = row.text(0);
  out.purpose = row.text(1);
  out.kind = row.text(2);
  out.source = json_from_text(row.text(3));
  out.metadata = json_from_text(row.text(4));
  out.path = row.text(5);
  out.num_rows = row.integer(6);
  out.num_bytes = row.integer(7);
  out.digest = row.text(8);
  out.created_ms = row.integer(9);
  return out;
}

}  // namespace

DatasetStore::Added DatasetStore::add(const DatasetRecord& dataset, int64_t most) {
  Added added = Added::kYes;
  database_.write([&](sqlite3* db) {
    SqlStatement same(db, "SELECT 1 FROM datasets WHERE id = ?");
    if (same.bind(dataset.id).step()) {
      added = Added::kDuplicate;
      return;
    }
    SqlStatement count(db, "SELECT count(*) FROM datasets");
    if (count.step() && count.integer(0) >= most) {
      added = Added::kFull;
      return;
    }
    SqlStatement(db,
                 "INSERT INTO datasets (id, purpose, kind, source, metadata, path, num_rows, num_bytes, digest, created_ms) "
                 "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
        .bind(dataset.id)
        .bind(dataset.purpose)
        .bind(dataset.kind)
        .bind(dataset.source.dump())
        .bind(dataset.metadata.dump())
        .bind(dataset.path)
        .bind(dataset.num_rows)
        .bind(dataset.num_bytes)
        .bind(dataset.digest)
        .bind(dataset.created_ms)
        .run();
  });
  return added;
}

bool DatasetStore::replace(const DatasetRecord& dataset, const std::string& digest_before) {
  bool is_replaced = false;
  database_.write([&](sqlite3* db) {
    SqlStatement statement(
        db, "UPDATE datasets SET path = ?, num_rows = ?, num_bytes = ?, digest = ? WHERE id = ? AND digest = ? RETURNING 1");
    statement.bind(dataset.path)
        .bind(dataset.num_rows)
        .bind(dataset.num_bytes)
        .bind(dataset.digest)
        .bind(dataset.id)
        .bind(digest_before);
    while (statement.step()) is_replaced = true;
  });
  return is_replaced;
}

std::optional<DatasetRecord> DatasetStore::find(const std::string& id) {
  std::optional<DatasetRecord> found;
  database_.read([&](sqlite3* db) {
    SqlStatement statement(db, (std::string("SELECT ") + kDatasetColumns + " FROM datasets WHERE id = ?").c_str());
    if (statement.bind(id).step()) found = read_dataset(statement);
  });
  return found;
}

std::vector<DatasetRecord> DatasetStore::all() {
  std::vector<DatasetRecord> out;
  database_.read([&](sqlite3* db) {
    SqlStatement statement(db, (std::string("SELECT ") + kDatasetColumns + " FROM datasets ORDER BY id").c_str());
    while (statement.step()) out.push_back(read_dataset(statement));
  });
  return out;
}

bool DatasetStore::remove(const std::string& id) {
  bool is_removed = false;
  database_.write([&](sqlite3* db) {
    SqlStatement statement(db, "DELETE FROM datasets WHERE id = ? RETURNING 1");
    statement.bind(id);
    while (statement.step()) is_removed = true;
  });
  return is_removed;
}

}  // namespace distsetup
