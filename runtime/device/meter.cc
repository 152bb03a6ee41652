// A c10 allocator around the one that was there. Each block carries a 64-byte header: its size, its tag, and how to free it; the
// header keeps the 64-byte alignment of tensor data. Counters are atomics: libtorch's worker threads allocate too.
#include "runtime/device/meter.h"

#include <ATen/Context.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstring>
#include <new>

namespace distsetup {
namespace {

struct Counters {
  std::atomic<int64_t> live{0}, peak{0}, num_allocations{0};
  std::array<std::atomic<int64_t>, Device::kNumTags> live_by_tag{};
  std::atomic<int> tag{Device::kUndeclaredTag};
  std::atomic<bool> installed{false};
};
Counters& counters() {
  static Counters instance;  // the allocator it belongs to is one per process
  return instance;
}

std::atomic<MeterSource*> meter_source{nullptr};

struct alignas(64) Header {
  int64_t num_bytes;
  int tag;
  void* inner_context;
  c10::DeleterFnPtr inner_deleter;
};
static_assert(sizeof(Header) == 64);

void release(void* data) {
  if (data == nullptr) return;
  Header* header = reinterpret_cast<Header*>(static_cast<char*>(data) - sizeof(Header));
  Counters& c = counters();
  c.live.fetch_sub(header->num_bytes, std::memory_order_relaxed);
  c.live_by_tag[size_t(header->tag)].fetch_sub(header->num_bytes, std::memory_order_relaxed);
  header->inner_deleter(header->inner_context);
}

class MeteredAllocator final : public c10::Allocator {
 public:
  explicit MeteredAllocator(c10::Allocator* inner) : inner_(inner) {}
  c10::DataPtr allocate(size_t num_bytes) override {
    if (num_bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    c10::DataPtr block = inner_->allocate(num_bytes + sizeof(Header));
    char* base = static_cast<char*>(block.get());
    Counters& c = counters();
    const int tag = c.tag.load(std::memory_order_relaxed);
    new (base) Header{int64_t(num_bytes), tag, block.get_context(), block.get_deleter()};
    block.release_context();
    const int64_t live = c.live.fetch_add(int64_t(num_bytes), std::memory_order_relaxed) + int64_t(num_bytes);
    c.live_by_tag[size_t(tag)].fetch_add(int64_t(num_bytes), std::memory_order_relaxed);
    c.num_allocations.fetch_add(1, std::memory_order_relaxed);
    int64_t peak = c.peak.load(std::memory_order_relaxed);
    while (live > peak && !c.peak.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
    }
    void* data = base + sizeof(Header);
    return {data, data, &release, c10::Device(c10::kCPU)};  // context == data: raw_allocate keeps working
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t num_bytes) const override { std::memcpy(to, from, num_bytes); }

 private:
  c10::Allocator* inner_;
};

}  // namespace

void install_meter() {
  static MeteredAllocator allocator(c10::GetCPUAllocator());
  if (counters().installed.exchange(true)) return;
  c10::SetCPUAllocator(&allocator, /*priority=*/1);
}
bool meter_installed() { return counters().installed || meter_source != nullptr; }

void set_meter_source(MeterSource* source) { meter_source = source; }

MeterReading read_meter() {
  if (MeterSource* source = meter_source) return source->read();
  const Counters& c = counters();
  MeterReading r{c.live, c.peak, c.num_allocations, {}, c.live};  // the CPU's allocator keeps nothing
  for (size_t i = 0; i < r.live_by_tag.size(); ++i) r.live_by_tag[i] = c.live_by_tag[i];
  return r;
}

void reset_meter_peak() {
  if (MeterSource* source = meter_source) return source->reset_peak();
  counters().peak.store(counters().live.load());
}

MeterTag::MeterTag(int tag) : previous_(counters().tag.exchange(tag)) {}
MeterTag::~MeterTag() { counters().tag = previous_; }

}  // namespace distsetup
