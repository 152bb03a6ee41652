// What pages show beside the JSON of the API (src/service/README.md has its shapes). Texts may hold anything: the page escapes them.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace distsetup {

// The end of a job's log. rank -1: every line, of all ranks and of the service.
struct LogView {
  int64_t rank = -1;
  std::vector<std::string> lines;
  int64_t num_lines = 0;  // of all
};

// One line of a refusal: where in the request, what is wrong, what to do.
struct FormProblem {
  std::string where, message, help;
};

struct SubmitView {
  std::map<std::string, std::string> fields;  // by name, as they were typed
  std::vector<std::string> datasets, models;  // what the service knows
  std::vector<FormProblem> problems;
  std::vector<std::string> plan_lines;  // what was planned, a sentence each; none: not asked yet
  std::string verdict;                  // of the plan
};

struct Notice {
  std::string title, message, help;
  bool asks_token = false;  // shows a field for the token
  std::string to;           // where to go after it was right: a path of this service
};

}  // namespace distsetup
