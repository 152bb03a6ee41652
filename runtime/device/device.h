// Device: memory, copies, streams and events of the accelerator a rank computes on. On CPU, streams and events do nothing: every call
// has finished when it returns. CUDA is a plugin that implements the same seam. Left out: kernels (runtime/kernels), collectives
// (runtime/comm).
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "plan/schedule.h"

namespace distsetup {

// Bytes on a device; freed with the object. data() is 64-byte aligned.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  void* data() const { return data_; }
  int64_t num_bytes() const { return num_bytes_; }

 protected:
  void* data_ = nullptr;
  int64_t num_bytes_ = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string description() const = 0;  // "cpu, 2 threads"
  virtual Accelerator accelerator() const = 0;

  // What a block of memory is for, as the meter counts it: a buffer class, or the arena that holds all span buffers.
  static constexpr int kArenaTag = kNumBufferClasses;
  static constexpr int kUndeclaredTag = kNumBufferClasses + 1;  // what nobody declared: workspace of library operations
  static constexpr int kNumTags = kNumBufferClasses + 2;
  virtual std::unique_ptr<DeviceMemory> allocate(int64_t num_bytes, int tag) = 0;  // not initialised

  virtual void fill(void* data, int byte, int64_t num_bytes) = 0;
  virtual void copy_to_device(void* device, const void* host, int64_t num_bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, int64_t num_bytes) = 0;
  virtual void record(Stream stream, int event) = 0;  // `event` of a schedule is reached when the stream gets here
  virtual void wait(Stream stream, int event) = 0;    // the stream goes on after `event`
  virtual void synchronize() = 0;
};

std::unique_ptr<Device> make_cpu_device();

}  // namespace distsetup
