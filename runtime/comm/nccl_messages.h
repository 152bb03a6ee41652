// Messages between two ranks of a communicator that NCCL starts together.
#pragma once
#include <cstdint>
#include <vector>

#include "runtime/comm/nccl_api.h"

namespace distsetup::nccl {

struct Message {
  int peer = 0;
  const void* sent = nullptr;  // or
  void* received = nullptr;
  int64_t num_bytes = 0;
};
inline Message send_to(int peer, const void* data, int64_t num_bytes) { return {peer, data, nullptr, num_bytes}; }
inline Message receive_from(int peer, void* data, int64_t num_bytes) { return {peer, nullptr, data, num_bytes}; }

// The first failure; what was begun is ended.
inline Status together(const Api& api, const std::vector<Message>& messages, Comm comm, CudaStream stream) {
  Status result = api.group_start();
  for (const Message& m : messages) {
    if (result != kSuccess) break;
    result = m.sent != nullptr ? api.send(m.sent, size_t(m.num_bytes), kUint8, m.peer, comm, stream)
                               : api.receive(m.received, size_t(m.num_bytes), kUint8, m.peer, comm, stream);
  }
  const Status end = api.group_end();
  return result == kSuccess ? end : result;
}

}  // namespace distsetup::nccl
