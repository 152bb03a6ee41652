// A communicator that passes on what no message of a step is in: who is who, failures, the store. Those that look at the messages on
// their way (tracing.h, watched.h) add the rest.
#pragma once
#include <string>

#include "runtime/comm/communicator.h"

namespace distsetup {

class PassingCommunicator : public Communicator {
 public:
  explicit PassingCommunicator(Communicator& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int world() const override { return inner_.world(); }
  int size(Group group) const override { return inner_.size(group); }
  int index(Group group) const override { return inner_.index(group); }
  void begin_recording() override { inner_.begin_recording(); }
  void end_recording() override { inner_.end_recording(); }
  void replayed() override { inner_.replayed(); }
  void check() override { inner_.check(); }
  void store_set(const std::string& name, const std::string& value) override { inner_.store_set(name, value); }
  std::string store_get(const std::string& name) override { return inner_.store_get(name); }
  std::string reported_failure() override { return inner_.reported_failure(); }
  std::string report_failure(const std::string& report) override { return inner_.report_failure(report); }
  void outlast_readers() override { inner_.outlast_readers(); }

 protected:
  Communicator& inner_;
};

}  // namespace distsetup
