// The tensors of a tape: who still holds each, and the gradient that came to it. What is made and what is freed goes to a list of
// events.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/replay/tape.h"

namespace distsetup::replay {

struct TapeTensor {
  int64_t bytes = 0;
  int32_t references = 1;
  int32_t gradient = -1;  // tensor
  int32_t below = -1;     // the one before under the same name of its kernel (loops)
  int32_t rebuilt = -1;   // what a compiled backward made of it
  int16_t rebuild_users = 0;
  int16_t slot = -1;  // -1: takes no memory
};

struct TensorTable {
  std::vector<TapeTensor> tensors;
  std::vector<Event>* events = nullptr;
  int16_t* num_slots = nullptr;
  bool phantom = false;  // what is made takes no memory

  TapeTensor& at(int32_t tensor) { return tensors[static_cast<size_t>(tensor)]; }

  int32_t external(int16_t slot, int64_t bytes) {
    TapeTensor tensor;
    tensor.slot = slot;
    tensor.bytes = bytes;
    tensors.push_back(tensor);
    return static_cast<int32_t>(tensors.size() - 1);
  }

  int32_t create(int64_t bytes, MemoryClass memory_class) {
    TapeTensor tensor;
    tensor.bytes = bytes;
    if (!phantom) {
      tensor.slot = (*num_slots)++;
      events->push_back({Event::Kind::kAllocate, memory_class, tensor.slot, bytes});
    }
    tensors.push_back(tensor);
    return static_cast<int32_t>(tensors.size() - 1);
  }

  void reference(int32_t tensor) { ++at(tensor).references; }

  void unreference(int32_t index) {
    if (index < 0) return;
    TapeTensor& tensor = at(index);
    if (--tensor.references == 0 && tensor.slot >= 0) {
      events->push_back({Event::Kind::kFree, MemoryClass::kActivation, tensor.slot, tensor.bytes});
    }
  }

  // Ownership of `gradient` passes in.
  void accumulate(int32_t tensor, int32_t gradient) {
    const int32_t held = at(tensor).gradient;
    if (held < 0) {
      at(tensor).gradient = gradient;
    } else if (at(held).references == 1) {
      unreference(gradient);
    } else if (at(gradient).references == 1) {
      unreference(held);
      at(tensor).gradient = gradient;
    } else {
      const int32_t sum = create(at(gradient).bytes, MemoryClass::kActivation);
      unreference(held);
      unreference(gradient);
      at(tensor).gradient = sum;
    }
  }
};

}  // namespace distsetup::replay
