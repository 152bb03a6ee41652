// Which nodes beside this one are there: an agent on each asks for work again and again.
#pragma once
#include <map>
#include <mutex>
#include <string>

namespace distsetup {

class NodeBook {
 public:
  void saw(int64_t rank, double at_s);
  // Nodes 1 … nodes - 1 asked in the last `within_s` seconds.
  bool are_all_here(int64_t nodes, double at_s, double within_s);
  int64_t num_here(double at_s, double within_s);

 private:
  std::mutex mutex_;
  std::map<int64_t, double> seen_s_;
};

}  // namespace distsetup
