// SQLite, as much of it as the stores need: one connection that writes, a few that read beside it (WAL), migrations by user_version.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

struct sqlite3;
struct sqlite3_stmt;

namespace distsetup {

// The store cannot be read or written now: a full disk, a damaged file. Caught once, where requests are answered and in the queue's
// loop.
class StoreFailure : public std::runtime_error {
 public:
  StoreFailure(const std::string& what, bool is_full) : std::runtime_error(what), is_full_(is_full) {}
  bool is_full() const { return is_full_; }

 private:
  bool is_full_;
};

// A prepared statement. Values are bound in order, columns read by number from 0.
class SqlStatement {
 public:
  SqlStatement(sqlite3* connection, const char* text);
  ~SqlStatement();
  SqlStatement(const SqlStatement&) = delete;
  SqlStatement& operator=(const SqlStatement&) = delete;
  SqlStatement& bind(int64_t value);
  SqlStatement& bind(double value);
  SqlStatement& bind(const std::string& text);
  SqlStatement& bind(std::nullptr_t);
  bool step();  // true: there is a row
  void run();   // to its end
  int64_t integer(int column) const;
  double number(int column) const;
  std::string text(int column) const;
  bool is_null(int column) const;

 private:
  sqlite3* connection_;
  sqlite3_stmt* statement_ = nullptr;
  int num_bound_ = 0;
};

class Database {
 public:
  Database() = default;
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  // Creates the file where there is none and brings it to the newest version. A newer one than this program knows is refused.
  Diagnostics open(const std::string& path);
  // In one transaction, the only one that writes; rolled back when `work` throws.
  void write(const std::function<void(sqlite3*)>& work);
  void read(const std::function<void(sqlite3*)>& work);
  int64_t num_changed() const;  // by the last statement of write()'s work

 private:
  sqlite3* writer_ = nullptr;
  std::vector<sqlite3*> readers_;  // that nobody uses now
  std::mutex write_mutex_, read_mutex_;
  std::condition_variable reader_is_free_;
};

}  // namespace distsetup
