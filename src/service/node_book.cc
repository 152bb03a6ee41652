#include "service/node_book.h"

#include <fmt/format.h>

#include <random>

#include "base/file.h"

namespace distsetup {

Diagnostics NodeBook::open(const std::string& data_folder) {
  std::random_device chance;
  for (int i = 0; i < 4; ++i) word_ += fmt::format("{:08x}", chance());
  return write_file_atomic(data_folder + "/" + kNodeWordFile, word_, Overwrite::kForce).diagnostics;
}

void NodeBook::saw(int64_t rank, double at_s) {
  const std::lock_guard lock(mutex_);
  seen_s_[rank] = at_s;
}

bool NodeBook::are_all_here(int64_t nodes, double at_s, double within_s) {
  const std::lock_guard lock(mutex_);
  for (int64_t rank = 1; rank < nodes; ++rank) {
    const auto found = seen_s_.find(rank);
    if (found == seen_s_.end() || at_s - found->second > within_s) return false;
  }
  return true;
}

int64_t NodeBook::num_here(double at_s, double within_s) {
  const std::lock_guard lock(mutex_);
  int64_t out = 0;
  for (const auto& [_, seen] : seen_s_) out += at_s - seen <= within_s ? 1 : 0;
  return out;
}

}  // namespace distsetup
