// metrics.jsonl of a job as the curve that the page shows: read on as it grows, thinned to a few hundred steps.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/json.h"

namespace distsetup {

struct RunCurve {
  Json steps = Json::array();        // lines of kind "step", at most kMostPoints
  Json evaluations = Json::array();  // lines of kind "evaluation", the same
  Json last_step;                    // null: no step yet
  Json memory;                       // of the last step that was metered op by op: bytes by class and by phase; null: none yet
  int64_t num_steps = 0;
  double mean_step_s = 0, mean_tokens_per_s = 0;  // without the first, which pays for first touches, where there are others
};
inline constexpr size_t kMostPoints = 400;

// Every `n`th, so that at most `most` are left; the last stays.
Json thinned(const Json& points, size_t most);

// kNumbers: neither steps nor evaluations, of which a list of jobs shows none.
enum class CurveParts { kNumbers, kAll };

class RunCurves {
 public:
  RunCurve read(const std::string& path, CurveParts parts);

 private:
  struct Known {
    int64_t offset = 0;
    Json steps = Json::array(), evaluations = Json::array();
    int64_t num_steps = 0;
    double sum_step_s = 0, sum_tokens_per_s = 0, first_step_s = 0, first_tokens_per_s = 0;
    int64_t keep_every = 1;  // of the steps, so that a long run does not fill the memory
    Json last_step, memory;
  };
  void read_on(const std::string& path, Known& known);
  std::mutex mutex_;
  std::map<std::string, Known> known_;
};

}  // namespace distsetup
