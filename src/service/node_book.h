// Which nodes beside this one are there: an agent on each asks for work again and again, and proves that it sees the data folder by
// the word that this service wrote into it.
#pragma once
#include <map>
#include <mutex>
#include <string>

#include "base/diagnostic.h"

namespace distsetup {

inline constexpr char kNodeWordFile[] = "node_word";  // below the data folder

class NodeBook {
 public:
  // Writes a word that nobody can guess. Errors: the folder cannot be written.
  Diagnostics open(const std::string& data_folder);
  const std::string& word() const { return word_; }
  void saw(int64_t rank, double at_s);
  // Nodes 1 … nodes - 1 asked in the last `within_s` seconds.
  bool are_all_here(int64_t nodes, double at_s, double within_s);
  int64_t num_here(double at_s, double within_s);

 private:
  std::string word_;
  std::mutex mutex_;
  std::map<int64_t, double> seen_s_;
};

}  // namespace distsetup
