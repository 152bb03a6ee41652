// `--profile FIRST:LAST`: when each instruction of these steps ran, with its ops and bytes, in Chrome's trace format, a file per rank:
// profile.json, or for rank r > 0 profile.rank<r>.json. Where `distsetup launch` has left a prediction of the same plan in that folder
// (plan/step_track.h), it is put beside every step. Written again after each of the steps: a run that is killed leaves those before.
#pragma once
#include <string>

#include "base/json.h"
#include "plan/step_track.h"

namespace distsetup {

class ProfileFile {
 public:
  // Finds the prediction. Where there is none, rank 0 says how to get it.
  void open(const std::string& directory, int rank, int stage, const std::string& plan_digest);
  // The file now has this step behind those before; an empty track: nothing happens. Throws Failure.
  void add(int64_t step, const StepTrack& track);

 private:
  double add_prediction(int64_t step);  // returns its seconds

  std::string path_;
  int rank_ = 0;
  Json prediction_;  // the launcher's file; null: there is none
  Json events_ = Json::array();
  double begin_s_ = 0;  // of the next step: each lies behind the one before
};

}  // namespace distsetup
