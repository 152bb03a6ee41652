// Where a rank stands, for whoever looks from another thread: the instruction that it is at. Written by the thread that trains,
// without locks, clocks or fences: a store or two per instruction.
#pragma once
#include <atomic>
#include <cstdint>

#include "plan/schedule.h"

namespace distsetup {

struct Progress {
  std::atomic<int64_t> count = 0;               // grows whenever the rank goes on
  std::atomic<const Schedule*> list = nullptr;  // that runs; null: none does
  std::atomic<int> instruction = -1;            // of that list

  void go_on() { count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  void at(int index) {
    instruction.store(index, std::memory_order_relaxed);
    go_on();
  }
};

}  // namespace distsetup
