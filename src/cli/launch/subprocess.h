// Running another program and reading what it says, without a shell between.
#pragma once
#include <string>
#include <vector>

namespace distsetup {

struct Said {
  bool started = false;  // false: no such program
  int code = 0;          // 128 + signal when it was killed
  std::string text;      // standard output, then standard error, as it came
};

// Looks the program up on PATH; standard input is /dev/null. `directory` "" = here. Killed after `limit_s`.
Said run_program(const std::vector<std::string>& words, double limit_s = 30, const std::string& directory = "");

// Of a clock that never goes back.
double now_s();

}  // namespace distsetup
