// Where events are booked. Without an allocator: live bytes by class and their peak by phase (simulate). With one: the same from the
// sizes of its blocks, and what it reserves (replay).
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

#include "planner/replay/allocator.h"
#include "planner/replay/tape.h"

namespace distsetup::replay {

// In the order of the memory timeline.
enum class MemoryPhase : uint8_t { kLoad, kForward, kLoss, kBackward, kOptimizer, kEvaluate, kSave, kCount };
inline constexpr size_t kNumClasses = static_cast<size_t>(MemoryClass::kCount), kNumPhases = static_cast<size_t>(MemoryPhase::kCount);
inline constexpr std::array<const char*, kNumPhases> kPhaseNames = {"load",      "forward",  "loss", "backward",
                                                                    "optimizer", "evaluate", "save"};
using ClassBytes = std::array<int64_t, kNumClasses>;

// An allocation: a block of the allocator, or (without one) its rounded size; 0 = nothing. The class rides in the low bits: blocks are
// aligned, sizes are multiples of 512.
struct Handle {
  uint64_t bits = 0;
  explicit operator bool() const { return bits != 0; }
};

class Ledger {
 public:
  explicit Ledger(Allocator* allocator) : allocator_(allocator) {}

  Handle allocate(int64_t bytes, MemoryClass memory_class, AllocatorStream stream = AllocatorStream::kCompute) {
    if (bytes <= 0) return {};
    const auto index = static_cast<size_t>(memory_class);
    if (allocator_ == nullptr) {
      const int64_t size = rounded_size(bytes);
      add(index, size);
      return {static_cast<uint64_t>(size) | index};
    }
    Block* block = allocator_->allocate(bytes, stream);
    if (block == nullptr) {
      ran_out_ = true;
      return {};
    }
    add(index, block->size);
    return {reinterpret_cast<uint64_t>(block) | index};
  }

  void free(Handle& handle) {
    if (!handle) return;
    retire(handle);
    free_retired(handle);
  }
  // As Allocator's: the bytes stop counting now, the block comes back later.
  void retire(Handle handle) {
    if (!handle) return;
    const auto index = static_cast<size_t>(handle.bits & kMask);
    if (allocator_ == nullptr) {
      add(index, -static_cast<int64_t>(handle.bits & ~kMask));
      return;
    }
    Block* block = block_of(handle);
    add(index, -block->size);
    allocator_->retire(block);
  }
  void free_retired(Handle& handle) {
    if (allocator_ != nullptr && handle) allocator_->free_retired(block_of(handle));
    handle = {};
  }

  void enter(MemoryPhase phase) {
    phase_ = static_cast<size_t>(phase);
    note_peak();
  }
  // Without an allocator: `times` more of a change that was seen once (identical blocks).
  void repeat(const ClassBytes& change, int64_t times) {
    for (size_t i = 0; i < kNumClasses; ++i) add_silently(i, change[i] * times);
    note_peak();
  }
  // The change since `before` that many times more.
  void repeat_change_since(const ClassBytes& before, int64_t times) {
    ClassBytes change = live_;
    for (size_t i = 0; i < kNumClasses; ++i) change[i] -= before[i];
    repeat(change, times);
  }
  // Blocks that were left out, `times` of them, each moving the live bytes by `change`: the last of them peaks that much higher.
  void note_repeated_peak(const ClassBytes& live_at_peak, const ClassBytes& change, int64_t times);
  void start_segment() { segment_peak_ = 0; }
  void forget(MemoryClass memory_class) { add_silently(static_cast<size_t>(memory_class), -live_[static_cast<size_t>(memory_class)]); }
  const ClassBytes& segment_live() const { return segment_live_; }

  const ClassBytes& live() const { return live_; }
  int64_t total() const { return total_; }
  int64_t phase_peak(MemoryPhase phase) const { return phase_peak_[static_cast<size_t>(phase)]; }
  const ClassBytes& phase_live(MemoryPhase phase) const { return phase_live_[static_cast<size_t>(phase)]; }
  int64_t class_peak(size_t memory_class) const { return class_peak_[memory_class]; }
  MemoryPhase class_peak_phase(size_t memory_class) const { return static_cast<MemoryPhase>(class_phase_[memory_class]); }
  bool counts_only() const { return allocator_ == nullptr; }
  bool ran_out() const { return ran_out_; }

 private:
  static constexpr uint64_t kMask = 7;
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  static Block* block_of(Handle handle) { return reinterpret_cast<Block*>(handle.bits & ~kMask); }
  static_assert(kNumClasses <= 8 && alignof(Block) >= 8);

  void add_silently(size_t index, int64_t bytes) {
    live_[index] += bytes;
    total_ += bytes;
    if (live_[index] > class_peak_[index]) {
      class_peak_[index] = live_[index];
      class_phase_[index] = static_cast<uint8_t>(phase_);
    }
  }
  void add(size_t index, int64_t bytes) {
    add_silently(index, bytes);
    if (total_ > segment_peak_) {
      segment_peak_ = total_;
      segment_live_ = live_;
    }
    note_peak();
  }
  void note_peak() {
    if (total_ <= phase_peak_[phase_]) return;
    phase_peak_[phase_] = total_;
    phase_live_[phase_] = live_;
  }

  Allocator* allocator_;
  bool ran_out_ = false;
  size_t phase_ = 0;
  int64_t total_ = 0, segment_peak_ = 0;
  ClassBytes live_{}, segment_live_{}, class_peak_{};
  std::array<uint8_t, kNumClasses> class_phase_{};
  std::array<int64_t, kNumPhases> phase_peak_{};
  std::array<ClassBytes, kNumPhases> phase_live_{};
};

inline void Ledger::note_repeated_peak(const ClassBytes& live_at_peak, const ClassBytes& change, int64_t times) {
  ClassBytes last{};
  int64_t total = 0;
  for (size_t i = 0; i < kNumClasses; ++i) {
    last[i] = live_at_peak[i] + change[i] * times;
    total += last[i];
    if (last[i] > class_peak_[i]) {
      class_peak_[i] = last[i];
      class_phase_[i] = static_cast<uint8_t>(phase_);
    }
  }
  if (total <= phase_peak_[phase_]) return;
  phase_peak_[phase_] = total;
  phase_live_[phase_] = last;
}

}  // namespace distsetup::replay
