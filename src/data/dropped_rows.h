// Rows that are of no use, counted by reason. Reasons that differ in numbers and in what they quote alone are counted as one, the
// first of them.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "base/diagnostic.h"

namespace distsetup {

class DroppedRows {
 public:
  void add(const std::string& reason, const Location& at);

  std::map<std::string, int64_t> by_reason;
  std::map<std::string, Location> first;  // of each reason

 private:
  std::map<std::string, std::string> said_;  // reasons as first said, by what they say without details
};

}  // namespace distsetup
