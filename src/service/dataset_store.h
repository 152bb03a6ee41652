// Data sets that clients gave: their record in the store, their rows in a file, an object a line. Throws StoreFailure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "service/database.h"
#include "service/job_record.h"

namespace distsetup {

struct DatasetRecord {
  std::string id, purpose;
  std::string kind;  // "preference", "instruct", "messages", "text": what its first row has
  Json source, metadata;
  std::string path;  // of its rows; outside the data folder where it was registered from a file
  int64_t num_rows = 0, num_bytes = 0;
  std::string digest;  // sha256 of the rows
  TimeMs created_ms = 0;
};

class DatasetStore {
 public:
  explicit DatasetStore(Database& database) : database_(database) {}
  enum class Added { kYes, kDuplicate, kFull };
  Added add(const DatasetRecord& dataset, int64_t most);
  // After rows were appended: only if its digest still is `digest_before`.
  bool replace(const DatasetRecord& dataset, const std::string& digest_before);
  std::optional<DatasetRecord> find(const std::string& id);
  std::vector<DatasetRecord> all();
  bool remove(const std::string& id);

 private:
  Database& database_;
};

}  // namespace distsetup
