// The CPU as a device: memory from libtorch's CPU allocator (so that the meter sees it), no streams. Every call is done on return.
#include "runtime/device/cpu_device.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>

#include <cstring>

#include "base/huge_pages.h"
#include "runtime/device/meter.h"
#include "runtime/engine/cpu_kernels.h"

namespace distsetup {
namespace {

class CpuMemory : public DeviceMemory {
 public:
  explicit CpuMemory(int64_t num_bytes) : block_(c10::GetCPUAllocator()->allocate(size_t(num_bytes))) {
    data_ = block_.get();
    num_bytes_ = num_bytes;
    ask_for_huge_pages(data_, num_bytes_);
  }

 private:
  c10::DataPtr block_;
};

class CpuDevice : public Device {
 public:
  std::string description() const override {
    return fmt::format("cpu, {} thread{}", at::get_num_threads(), at::get_num_threads() == 1 ? "" : "s");
  }
  Accelerator accelerator() const override { return Accelerator::kCpu; }
  const Kernels& kernels() const override { return cpu_kernels(); }
  std::unique_ptr<DeviceMemory> allocate(int64_t num_bytes, int tag) override {
    const MeterTag scope(tag);
    return std::make_unique<CpuMemory>(num_bytes);
  }
  std::unique_ptr<DeviceMemory> allocate_host(int64_t num_bytes, Place) override { return allocate(num_bytes, kHostTag); }
  void copy(Stream stream, void* to, const void* from, int64_t num_bytes) override { cpu_kernels().copy(stream, to, from, num_bytes); }
  void wait_on_host(int) override {}
  void fill(void* data, int byte, int64_t num_bytes) override {
    if (num_bytes > 0) std::memset(data, byte, size_t(num_bytes));
  }
  void copy_to_device(void* device, const void* host, int64_t num_bytes) override {
    if (num_bytes > 0) std::memcpy(device, host, size_t(num_bytes));
  }
  void copy_to_host(void* host, const void* device, int64_t num_bytes) override {
    if (num_bytes > 0) std::memcpy(host, device, size_t(num_bytes));
  }
  void record(Stream, int) override {}
  void wait(Stream, int) override {}
  void follow(Stream, Stream) override {}
  void synchronize() override {}
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace distsetup
