// Device: memory, copies, streams and events of the accelerator a rank computes on. On CPU, streams and events do nothing: every call
// has finished when it returns. CUDA is a plugin that implements the same seam (runtime/device/plugin.h). Left out: what kernels
// compute (Kernels, runtime/engine/ops.h), collectives (runtime/comm).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
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

class Kernels;  // runtime/engine/ops.h

// Work that was put on the streams of a device, to be done again and again.
class Recording {
 public:
  virtual ~Recording() = default;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string description() const = 0;  // "cpu, 2 threads"
  virtual Accelerator accelerator() const = 0;
  virtual int index() const { return 0; }  // among the devices of this host
  virtual const Kernels& kernels() const = 0;
  // True: the host reads and writes device memory, and every call has finished when it returns. False: calls are put on a stream.
  virtual bool host_memory() const { return true; }

  // What a block of memory is for, as the meter counts it: a buffer class, or the arena that holds all span buffers.
  static constexpr int kArenaTag = kNumBufferClasses;
  static constexpr int kUndeclaredTag = kNumBufferClasses + 1;  // what nobody declared: workspace of library operations
  static constexpr int kHostTag = kNumBufferClasses + 2;        // what allocate_host() has given, where the host is metered
  static constexpr int kNumTags = kNumBufferClasses + 3;
  virtual std::unique_ptr<DeviceMemory> allocate(int64_t num_bytes, int tag) = 0;  // not initialised
  // Of the host, not initialised. Copies to and from kHostPinned run beside everything else.
  virtual std::unique_ptr<DeviceMemory> allocate_host(int64_t num_bytes, Place place) = 0;

  virtual void fill(void* data, int byte, int64_t num_bytes) = 0;
  virtual void copy_to_device(void* device, const void* host, int64_t num_bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, int64_t num_bytes) = 0;
  // On a stream, between memory of the device and of the host. The host's must stay as it is until the stream has come so far.
  virtual void copy(Stream stream, void* to, const void* from, int64_t num_bytes) = 0;
  virtual void wait_on_host(int event) = 0;           // returns once `event` of a schedule is reached
  virtual void record(Stream stream, int event) = 0;  // `event` of a schedule is reached when the stream gets here
  virtual void wait(Stream stream, int event) = 0;    // the stream goes on after `event`
  // What is put on `later` from now on starts after everything that is on `earlier` by now.
  virtual void follow(Stream later, Stream earlier) = 0;
  virtual void synchronize() = 0;

  // Between the two, what is put on streams is kept instead of done: with the addresses and numbers of these calls, and the order that
  // events and follow() say. Nothing may be copied between host and device by copy_to_device() or copy_to_host(), and no timer
  // started. It begins and ends on the compute stream: every other stream that has a part follows that one before, and the compute
  // stream follows it at the end. A wait for an event that was recorded outside means nothing inside, and the other way round.
  virtual bool can_record() const { return false; }
  virtual void begin_recording() { throw std::logic_error("a device that cannot record"); }
  virtual std::shared_ptr<const Recording> end_recording() { throw std::logic_error("a device that cannot record"); }
  virtual void replay(const Recording&) { throw std::logic_error("a device that cannot record"); }  // on the compute stream

  // Library calls of this thread go to this device.
  virtual void make_current() {}
  // For libraries that put work on a stream by themselves: its native handle (cudaStream_t), null where there are no streams.
  virtual void* native_stream(Stream) { return nullptr; }
  // A question that any thread may ask later: has the stream reached the point where it is now?
  virtual std::function<bool()> mark(Stream) {
    return [] { return true; };
  }
  // Time a stream spends between two calls; timer_s() only after synchronize(), which does not forget the timers.
  virtual int start_timer(Stream) { return -1; }
  virtual void stop_timer(Stream, int /*timer*/) {}
  virtual double timer_s(int /*timer*/) { return 0; }
  virtual double timer_begin_s(int /*timer*/, int /*since*/) { return 0; }  // from the start of timer `since` to the start of `timer`
  virtual void forget_timers() {}
};

}  // namespace distsetup
