// `--trace FILE`: the collectives of every step as the communicator saw them, a JSON line per step, a file per rank:
//   {"step", "records": [{"op", "group", "channel", "bytes", "event", "waited"}]}
// Between steps (agreement on signals, evaluation, checkpoints) nothing is written.
#pragma once
#include <memory>
#include <string>

#include "runtime/comm/tracing.h"

namespace distsetup {

class TraceFile {
 public:
  // Records what goes through `inner`. Rank 0 writes to `path`, rank r to `path`.rank<r>; an existing file is replaced.
  TraceFile(Communicator& inner, const std::string& path);
  Communicator& communicator() { return tracer_; }
  void begin_step() { tracer_.clear(); }
  void end_step(int64_t step);  // throws Failure when the file cannot be written

 private:
  TracingCommunicator tracer_;
  std::string path_;
  bool is_new_ = true;
};

}  // namespace distsetup
