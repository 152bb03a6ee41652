// One NVIDIA GPU as a device: memory from libtorch's caching allocator (so that the meter sees it, and what libtorch takes beside it),
// three streams, events for every signal of a schedule. The entry point of the plugin.
// Compiled, linked and loaded without a driver by tests/integration/cuda_plugin_all.sh, run on a GPU by scripts/test --gpu.
#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/huge_pages.h"
#include "runtime/device/meter.h"
#include "runtime/device/plugin.h"
#include "runtime/kernels/cuda/ops.h"

namespace distsetup {
namespace {

namespace Allocator = c10::cuda::CUDACachingAllocator;

void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(fmt::format("CUDA {}: {}", what, cudaGetErrorString(error)));
}

class CudaMeter : public MeterSource {
 public:
  explicit CudaMeter(int index) : index_(c10::DeviceIndex(index)) {}
  MeterReading read() override {
    const auto stats = Allocator::getDeviceStats(index_);
    constexpr size_t kAll = 0;  // StatType::AGGREGATE
    MeterReading r;
    r.live_bytes = stats.requested_bytes[kAll].current;
    r.peak_bytes = stats.requested_bytes[kAll].peak;
    r.num_allocations = stats.allocation[kAll].allocated;
    r.reserved_bytes = stats.reserved_bytes[kAll].current;
    r.live_by_tag = live_by_tag_;
    int64_t declared = 0;
    for (const int64_t bytes : live_by_tag_) declared += bytes;
    r.live_by_tag[Device::kUndeclaredTag] = r.live_bytes - declared;
    return r;
  }
  void reset_peak() override { Allocator::resetPeakStats(index_); }
  void add(int tag, int64_t num_bytes) { live_by_tag_[size_t(tag)] += num_bytes; }

 private:
  c10::DeviceIndex index_;
  std::array<int64_t, Device::kNumTags> live_by_tag_{};
};

class CudaMemory : public DeviceMemory {
 public:
  CudaMemory(CudaMeter& meter, int tag, int64_t num_bytes)
      : meter_(meter), tag_(tag), block_(Allocator::get()->allocate(size_t(num_bytes))) {
    data_ = block_.get();
    num_bytes_ = num_bytes;
    meter_.add(tag_, num_bytes_);
  }
  ~CudaMemory() override { meter_.add(tag_, -num_bytes_); }

 private:
  CudaMeter& meter_;
  int tag_ = 0;
  c10::DataPtr block_;
};

// Pinned, or of the usual kind.
class HostMemory : public DeviceMemory {
 public:
  HostMemory(int64_t num_bytes, bool is_pinned) : is_pinned_(is_pinned) {
    if (num_bytes == 0) return;
    if (is_pinned_)
      check_cuda(cudaHostAlloc(&data_, size_t(num_bytes), cudaHostAllocDefault), "pinned memory of the host");
    else
      data_ = ::operator new(size_t(num_bytes), kAlignment);
    if (!is_pinned_) ask_for_huge_pages(data_, num_bytes);
    num_bytes_ = num_bytes;
  }
  ~HostMemory() override {
    if (data_ == nullptr) return;
    if (is_pinned_)
      cudaFreeHost(data_);
    else
      ::operator delete(data_, kAlignment);
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  bool is_pinned_ = false;
};

// Events that are waited for on the device, reused in any order once they are given back.
class EventPool {
 public:
  explicit EventPool(unsigned flags) : flags_(flags) {}
  cudaEvent_t take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) {
      cudaEvent_t event = nullptr;
      check_cuda(cudaEventCreateWithFlags(&event, flags_), "event");
      return event;
    }
    const cudaEvent_t event = free_.back();
    free_.pop_back();
    return event;
  }
  void give_back(cudaEvent_t event) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(event);
  }

 private:
  unsigned flags_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

class CudaRecording : public Recording {
 public:
  mutable at::cuda::CUDAGraph graph;  // libtorch replays it without changing it, but does not say so
  std::set<int> events;               // that are recorded in it
};

class CudaDevice : public Device {
 public:
  explicit CudaDevice(int index)
      : index_(index),
        meter_(index),
        compute_(c10::cuda::getStreamFromPool(false, c10::DeviceIndex(index))),
        gather_(c10::cuda::getStreamFromPool(true, c10::DeviceIndex(index))),
        reduce_(c10::cuda::getStreamFromPool(true, c10::DeviceIndex(index))),
        transfers_(size_t(kNumStreams) - size_t(Stream::kToNext), compute_),
        kernels_(cuda::make_kernels(index, compute_.stream(), gather_.stream(), reduce_.stream())) {
    for (c10::cuda::CUDAStream& stream : transfers_) stream = c10::cuda::getStreamFromPool(true, c10::DeviceIndex(index));
    c10::cuda::setCurrentCUDAStream(compute_);  // libtorch's operations
    // fp32 means fp32, and a bf16 GEMM sums in fp32.
    at::globalContext().setAllowTF32CuBLAS(false);
    at::globalContext().setAllowBF16ReductionCuBLAS(false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);  // poisoning is the executor's
    set_meter_source(&meter_);
  }
  ~CudaDevice() override {
    cudaDeviceSynchronize();
    set_meter_source(nullptr);
  }

  std::string description() const override {
    const cudaDeviceProp* p = at::cuda::getDeviceProperties(c10::DeviceIndex(index_));
    return fmt::format("cuda:{}, {}, {} multiprocessors", index_, p->name, p->multiProcessorCount);
  }
  Accelerator accelerator() const override { return Accelerator::kCuda; }
  int index() const override { return index_; }
  const Kernels& kernels() const override { return *kernels_; }
  bool host_memory() const override { return false; }

  std::unique_ptr<DeviceMemory> allocate(int64_t num_bytes, int tag) override {
    return std::make_unique<CudaMemory>(meter_, tag, num_bytes);
  }
  std::unique_ptr<DeviceMemory> allocate_host(int64_t num_bytes, Place place) override {
    return std::make_unique<HostMemory>(num_bytes, place == Place::kHostPinned);
  }
  void copy(Stream stream, void* to, const void* from, int64_t num_bytes) override {
    if (num_bytes == 0) return;
    check_cuda(cudaMemcpyAsync(to, from, size_t(num_bytes), cudaMemcpyDefault, handle(stream)), "copy");
  }
  void wait_on_host(int event) override {
    CHECK(!recorded_events_.contains(event), "the host waits for event {} of a recording", event);
    const auto found = signals_.find(event);
    CHECK(found != signals_.end(), "event {} was never recorded", event);
    check_cuda(cudaEventSynchronize(found->second), "event");
  }
  void fill(void* data, int byte, int64_t num_bytes) override {
    if (num_bytes > 0) check_cuda(cudaMemsetAsync(data, byte, size_t(num_bytes), handle(Stream::kCompute)), "memset");
  }
  // From pageable memory: the host's bytes are read before the call returns (CUDA runtime API, "API synchronization behavior").
  void copy_to_device(void* device, const void* host, int64_t num_bytes) override {
    if (num_bytes == 0) return;
    check_cuda(cudaMemcpyAsync(device, host, size_t(num_bytes), cudaMemcpyHostToDevice, handle(Stream::kCompute)), "copy to the GPU");
  }
  void copy_to_host(void* host, const void* device, int64_t num_bytes) override {
    if (num_bytes == 0) return;
    check_cuda(cudaMemcpyAsync(host, device, size_t(num_bytes), cudaMemcpyDeviceToHost, handle(Stream::kCompute)),
               "copy from the GPU");
    check_cuda(cudaStreamSynchronize(handle(Stream::kCompute)), "copy from the GPU");
  }

  void record(Stream stream, int event) override {
    auto [found, is_new] = signals_.try_emplace(event, nullptr);
    if (is_new) found->second = ordering_.take();
    check_cuda(cudaEventRecord(found->second, handle(stream)), "event");
    recorded_events_.erase(event);
    if (recording_ != nullptr) recording_->events.insert(event);
  }
  void wait(Stream stream, int event) override {
    if (recording_ != nullptr ? !recording_->events.contains(event) : recorded_events_.contains(event)) return;  // of the other side
    const auto found = signals_.find(event);
    CHECK(found != signals_.end(), "event {} was never recorded", event);
    check_cuda(cudaStreamWaitEvent(handle(stream), found->second, 0), "event");
  }
  void follow(Stream later, Stream earlier) override {
    const cudaEvent_t event = ordering_.take();
    check_cuda(cudaEventRecord(event, handle(earlier)), "event");
    check_cuda(cudaStreamWaitEvent(handle(later), event, 0), "event");
    ordering_.give_back(event);  // a wait refers to what was recorded when it was issued
  }
  void synchronize() override { check_cuda(cudaDeviceSynchronize(), "synchronize"); }

  // A CUDA graph, never run so far. What libtorch allocates meanwhile comes from a pool of the recordings' own. The other threads of
  // this process, NCCL's watchdog among them, go on asking for events.
  bool can_record() const override { return true; }
  void begin_recording() override {
    CHECK(recording_ == nullptr, "a recording inside a recording");
    if (!recordings_pool_) recordings_pool_ = at::cuda::graph_pool_handle();
    recording_ = std::make_shared<CudaRecording>();
    recording_->graph.capture_begin(*recordings_pool_, cudaStreamCaptureModeThreadLocal);
  }
  std::shared_ptr<const Recording> end_recording() override {
    CHECK(recording_ != nullptr, "the end of a recording that has not begun");
    recording_->graph.capture_end();
    recorded_events_.insert(recording_->events.begin(), recording_->events.end());
    return std::exchange(recording_, nullptr);
  }
  void replay(const Recording& recording) override { dynamic_cast<const CudaRecording&>(recording).graph.replay(); }

  void make_current() override { check_cuda(cudaSetDevice(index_), "set device"); }
  void* native_stream(Stream stream) override { return handle(stream); }
  std::function<bool()> mark(Stream stream) override {
    const std::shared_ptr<CUevent_st> event(ordering_.take(), [this](cudaEvent_t e) { ordering_.give_back(e); });
    check_cuda(cudaEventRecord(event.get(), handle(stream)), "event");
    return [event] { return cudaEventQuery(event.get()) != cudaErrorNotReady; };
  }

  int start_timer(Stream stream) override {
    timers_.push_back({timing_.take(), timing_.take()});
    check_cuda(cudaEventRecord(timers_.back().begin, handle(stream)), "event");
    return int(timers_.size()) - 1;
  }
  void stop_timer(Stream stream, int timer) override {
    check_cuda(cudaEventRecord(timers_[size_t(timer)].end, handle(stream)), "event");
  }
  double timer_s(int timer) override {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, timers_[size_t(timer)].begin, timers_[size_t(timer)].end), "timer");
    return double(milliseconds) / 1000;
  }
  double timer_begin_s(int timer, int since) override {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, timers_[size_t(since)].begin, timers_[size_t(timer)].begin), "timer");
    return double(milliseconds) / 1000;
  }
  void forget_timers() override {
    for (const Timer& t : timers_) {
      timing_.give_back(t.begin);
      timing_.give_back(t.end);
    }
    timers_.clear();
  }

 private:
  struct Timer {
    cudaEvent_t begin = nullptr, end = nullptr;
  };
  cudaStream_t handle(Stream stream) const {
    switch (stream) {
      case Stream::kCompute: return compute_.stream();
      case Stream::kGather: return gather_.stream();
      case Stream::kReduce: return reduce_.stream();
      default: return transfers_[size_t(stream) - size_t(Stream::kToNext)].stream();
    }
  }

  int index_ = 0;
  CudaMeter meter_;
  c10::cuda::CUDAStream compute_, gather_, reduce_;
  std::vector<c10::cuda::CUDAStream> transfers_;  // between stages of a pipeline, from kToNext on
  std::unique_ptr<Kernels> kernels_;
  EventPool ordering_{cudaEventDisableTiming}, timing_{cudaEventDefault};
  std::map<int, cudaEvent_t> signals_;
  std::vector<Timer> timers_;
  std::shared_ptr<CudaRecording> recording_;  // under way
  std::set<int> recorded_events_;             // that were recorded last in a recording, and not on a stream
  std::optional<at::cuda::MempoolId_t> recordings_pool_;
};

std::unique_ptr<Device> make_device(int index) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    throw std::runtime_error(fmt::format("no usable NVIDIA GPU: {}", cudaGetErrorString(error)));
  }
  if (index >= count) throw std::runtime_error(fmt::format("GPU {} is asked for, this host has {}", index, count));
  check_cuda(cudaSetDevice(index), "set device");
  at::globalContext().lazyInitDevice(c10::kCUDA);
  const cudaDeviceProp* p = at::cuda::getDeviceProperties(c10::DeviceIndex(index));
  if (p->major < 8)
    throw std::runtime_error(fmt::format("{} has compute capability {}.{}, expected 8.0 or newer", p->name, p->major, p->minor));
  return std::make_unique<CudaDevice>(index);
}

}  // namespace
}  // namespace distsetup

extern "C" __attribute__((visibility("default"))) const distsetup::DevicePlugin* distsetup_cuda_plugin() {
  static const distsetup::DevicePlugin plugin = {distsetup::kPluginVersion, distsetup::make_device};
  return &plugin;
}
