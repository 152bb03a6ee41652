// `distsetup`, the program beside this one: plans, prepares data and starts ranks for the service.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"

namespace distsetup {

std::string sibling_program();  // "distsetup" in the folder of this program

struct SiblingAnswer {
  bool is_started = false;
  int exit_code = 0;
  std::string text;   // standard output
  Json json() const;  // null: it is none
};
// At most a few run at once; others wait for their turn, and give up after `limit_s`.
SiblingAnswer ask_sibling(const std::vector<std::string>& words, const std::string& folder, double limit_s = 120);

}  // namespace distsetup
