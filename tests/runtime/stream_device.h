// A device for tests that pretends to have memory and streams of its own: host memory underneath, the CPU's kernels, everything done
// on return; it writes down how streams were ordered. The executor and the communicator then take the paths that they take on a GPU.
#pragma once
#include <fmt/format.h>

#include <atomic>
#include <string>
#include <vector>

#include "runtime/device/cpu_device.h"
#include "runtime/device/device.h"
#include "runtime/engine/ops.h"

namespace distsetup {

class StreamDevice : public Device {
 public:
  std::string description() const override { return "streams of a test"; }
  Accelerator accelerator() const override { return Accelerator::kCpu; }
  const Kernels& kernels() const override { return cpu_->kernels(); }
  bool host_memory() const override { return false; }
  std::unique_ptr<DeviceMemory> allocate(int64_t num_bytes, int tag) override { return cpu_->allocate(num_bytes, tag); }
  std::unique_ptr<DeviceMemory> allocate_host(int64_t num_bytes, Place place) override {
    return cpu_->allocate_host(num_bytes, place);
  }
  void copy(Stream stream, void* to, const void* from, int64_t num_bytes) override {
    calls.push_back(fmt::format("copy {}", name(stream)));
    cpu_->copy(stream, to, from, num_bytes);
  }
  void wait_on_host(int event) override { calls.push_back(fmt::format("wait host e{}", event)); }
  void fill(void* data, int byte, int64_t num_bytes) override { cpu_->fill(data, byte, num_bytes); }
  void copy_to_device(void* device, const void* host, int64_t num_bytes) override { cpu_->copy_to_device(device, host, num_bytes); }
  void copy_to_host(void* host, const void* device, int64_t num_bytes) override { cpu_->copy_to_host(host, device, num_bytes); }
  void record(Stream stream, int event) override { calls.push_back(fmt::format("record {} e{}", name(stream), event)); }
  void wait(Stream stream, int event) override { calls.push_back(fmt::format("wait {} e{}", name(stream), event)); }
  void follow(Stream later, Stream earlier) override { calls.push_back(fmt::format("follow {} {}", name(later), name(earlier))); }
  void synchronize() override { ++num_synchronized; }
  void* native_stream(Stream stream) override { return reinterpret_cast<void*>(uintptr_t(0x100 + int(stream))); }
  std::function<bool()> mark(Stream) override {
    return [this] { return !stuck; };
  }
  int start_timer(Stream) override { return num_timers++; }
  void stop_timer(Stream, int timer) override { stopped.push_back(timer); }
  double timer_s(int) override { return 1.0; }
  void forget_timers() override { num_timers = 0, stopped.clear(); }

  std::vector<std::string> calls;
  std::atomic<bool> stuck = false;  // operations never finish
  std::atomic<int> num_synchronized = 0;
  int num_timers = 0;
  std::vector<int> stopped;

 private:
  std::unique_ptr<Device> cpu_ = make_cpu_device();
};

}  // namespace distsetup
