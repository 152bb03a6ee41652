// The memory meter: every byte that a CPU tensor takes is counted, with what it is for. A wrapper around libtorch's CPU allocator;
// measured numbers of the trainer's report and of the tests come from here, never from the plan.
// It counts requested bytes (no malloc rounding). It misses what does not come from that allocator: MKL's packing buffers, Gloo's
// own buffers, mapped files.
#pragma once
#include <array>
#include <cstdint>

#include "runtime/device/device.h"

namespace distsetup {

// Before the first tensor; a second call does nothing. Process-wide, because the allocator is.
void install_meter();
bool meter_installed();

struct MeterReading {
  int64_t live_bytes = 0;
  int64_t peak_bytes = 0;       // since the last reset_meter_peak()
  int64_t num_allocations = 0;  // since install
  std::array<int64_t, Device::kNumTags> live_by_tag{};
  int64_t reserved_bytes = 0;  // taken from the device, in use or kept for later
};
MeterReading read_meter();
void reset_meter_peak();

// Another device's memory instead of the CPU's: what read_meter() and reset_meter_peak() then ask. Not owned; null: the CPU's again.
class MeterSource {
 public:
  virtual ~MeterSource() = default;
  virtual MeterReading read() = 0;
  virtual void reset_peak() = 0;
};
void set_meter_source(MeterSource* source);

// Allocations of the enclosing scope carry `tag` (threads included: the tag is the process's, one executor thread sets it).
class MeterTag {
 public:
  explicit MeterTag(int tag);
  ~MeterTag();
  MeterTag(const MeterTag&) = delete;
  MeterTag& operator=(const MeterTag&) = delete;

 private:
  int previous_ = 0;
};

}  // namespace distsetup
