// A stand-in of libnccl.so.2 for ranks that are processes on ONE GPU, which NCCL refuses ("Duplicate GPU detected"): the functions
// that runtime/comm/nccl_api.h names, asynchronous on the caller's streams as NCCL's are. What it shows that no CPU can: the trainer's
// own order of streams, kernels and messages on a real device with several ranks. It says nothing of NCCL's speed.
//
// The first rank of a communicator takes memory that the others open (cudaIpc): for each ordered pair of ranks a ring of kSlots slots,
// and two counters, what was written into it and what was read out of it. A message is cut into slots. On its stream a sender waits
// for a free slot, copies and counts; a receiver waits for the count, copies and counts. Everything else is made of messages; a sum
// adds in the order of the ranks. Waits are the GPU's own (cuStreamWaitValue32), so that a rank that waits leaves the GPU to the
// others.
#include <cuda.h>
#include <cuda_runtime.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/nccl_stand_in.h"

using namespace nccl_stand_in;

namespace {

constexpr int64_t kSlots = 4, kSlotBytes = 1 << 20, kCounterBytes = 256;
constexpr int64_t kPairBytes = kCounterBytes + kSlots * kSlotBytes;

using StreamValue = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned int);
StreamValue wait_value = nullptr, write_value = nullptr;

bool is_ok(cudaError_t e) {
  if (e != cudaSuccess) std::fprintf(stderr, "one_gpu_nccl: %s\n", cudaGetErrorString(e));
  return e == cudaSuccess;
}
bool is_ok(CUresult e) {
  if (e != CUDA_SUCCESS) std::fprintf(stderr, "one_gpu_nccl: driver error %d\n", int(e));
  return e == CUDA_SUCCESS;
}
bool find_driver_functions() {
  if (write_value != nullptr) return true;
  cudaDriverEntryPointQueryResult found;
  constexpr unsigned kVersion = 12000;  // of the second version of both
  void *wait = nullptr, *write = nullptr;
  if (!is_ok(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &wait, kVersion, cudaEnableDefault, &found))) return false;
  if (!is_ok(cudaGetDriverEntryPointByVersion("cuStreamWriteValue32", &write, kVersion, cudaEnableDefault, &found))) return false;
  wait_value = reinterpret_cast<StreamValue>(wait);
  write_value = reinterpret_cast<StreamValue>(write);
  return wait_value != nullptr && write_value != nullptr;
}

}  // namespace

// Not of the namespace above: C functions that take one would be of this file alone.
struct Communicator {
  int rank = 0, num_ranks = 0;
  char* memory = nullptr;
  std::string file;
  std::vector<uint32_t> sent, received;  // slots so far, by peer

  char* pair(int from, int to) const { return memory + (from * num_ranks + to) * kPairBytes; }
  char* slot(int from, int to, uint32_t n) const { return pair(from, to) + kCounterBytes + n % kSlots * kSlotBytes; }
  CUdeviceptr written(int from, int to) const { return CUdeviceptr(pair(from, to)); }
  CUdeviceptr read(int from, int to) const { return CUdeviceptr(pair(from, to)) + sizeof(uint32_t); }

  bool send_slot(int peer, const void* data, int64_t num_bytes, CUstream stream) {
    const uint32_t n = sent[size_t(peer)]++;
    if (n >= kSlots && !is_ok(wait_value(stream, read(rank, peer), n - uint32_t(kSlots) + 1, CU_STREAM_WAIT_VALUE_GEQ))) return false;
    if (!is_ok(cudaMemcpyAsync(slot(rank, peer, n), data, size_t(num_bytes), cudaMemcpyDeviceToDevice, stream))) return false;
    return is_ok(write_value(stream, written(rank, peer), n + 1, CU_STREAM_WRITE_VALUE_DEFAULT));
  }
  // What a peer sent next, there once the stream is.
  const char* await_slot(int peer, CUstream stream) {
    const uint32_t n = received[size_t(peer)];
    if (!is_ok(wait_value(stream, written(peer, rank), n + 1, CU_STREAM_WAIT_VALUE_GEQ))) return nullptr;
    return slot(peer, rank, n);
  }
  bool free_slot(int peer, CUstream stream) {
    return is_ok(write_value(stream, read(peer, rank), ++received[size_t(peer)], CU_STREAM_WRITE_VALUE_DEFAULT));
  }
  bool receive_slot(int peer, void* data, int64_t num_bytes, CUstream stream) {
    const char* const from = await_slot(peer, stream);
    return from != nullptr && is_ok(cudaMemcpyAsync(data, from, size_t(num_bytes), cudaMemcpyDeviceToDevice, stream)) &&
           free_slot(peer, stream);
  }
};

namespace {

struct Message {
  Communicator* comm = nullptr;
  int peer = 0;
  const char* send = nullptr;  // null: a receive
  char* receive = nullptr;
  int64_t num_bytes = 0;
  CUstream stream = nullptr;
};
thread_local int group_depth = 0;
thread_local std::vector<Message> queued;

// A slot of each message at a time, so that no rank fills a ring that nobody empties.
int deliver(const std::vector<Message>& messages) {
  int64_t longest = 0;
  for (const Message& m : messages) longest = longest < m.num_bytes ? m.num_bytes : longest;
  for (int64_t at = 0; at < longest; at += kSlotBytes) {
    for (const bool sends : {true, false}) {
      for (const Message& m : messages) {
        if ((m.send != nullptr) != sends || at >= m.num_bytes) continue;
        const int64_t n = m.num_bytes - at < kSlotBytes ? m.num_bytes - at : kSlotBytes;
        const bool done =
            sends ? m.comm->send_slot(m.peer, m.send + at, n, m.stream) : m.comm->receive_slot(m.peer, m.receive + at, n, m.stream);
        if (!done) return kUnhandledCudaError;
      }
    }
  }
  return kSuccess;
}
int queue(Message m) {
  queued.push_back(m);
  return group_depth > 0 ? kSuccess : deliver(std::exchange(queued, {}));
}

constexpr int kMostRanks = 8;
struct Addends {
  const void* of[kMostRanks];
  int num = 0;
};
template <class T>
__global__ void sum_kernel(Addends addends, T* sum, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  T total = 0;
  for (int r = 0; r < addends.num; ++r) total += static_cast<const T*>(addends.of[r])[i];
  sum[i] = total;
}

template <class T>
int all_reduce(const T* send, T* receive, int64_t count, Communicator& c, CUstream stream) {
  if (c.num_ranks > kMostRanks) return kInvalidArgument;
  constexpr int64_t kAtOnce = kSlotBytes / int64_t(sizeof(T));
  for (int64_t at = 0; at < count; at += kAtOnce) {
    const int64_t n = count - at < kAtOnce ? count - at : kAtOnce;
    Addends addends;
    addends.num = c.num_ranks;
    for (int peer = 0; peer < c.num_ranks; ++peer)
      if (peer != c.rank && !c.send_slot(peer, send + at, n * int64_t(sizeof(T)), stream)) return kUnhandledCudaError;
    for (int r = 0; r < c.num_ranks; ++r) {
      addends.of[r] = r == c.rank ? reinterpret_cast<const char*>(send + at) : c.await_slot(r, stream);
      if (addends.of[r] == nullptr) return kUnhandledCudaError;
    }
    constexpr int kBlock = 256;
    sum_kernel<T><<<unsigned((n + kBlock - 1) / kBlock), kBlock, 0, stream>>>(addends, receive + at, n);
    if (!is_ok(cudaGetLastError())) return kUnhandledCudaError;
    for (int peer = 0; peer < c.num_ranks; ++peer)
      if (peer != c.rank && !c.free_slot(peer, stream)) return kUnhandledCudaError;
  }
  return kSuccess;
}

bool write_whole(const std::string& file, const void* data, size_t n) {
  const std::string partial = file + ".partial";
  std::FILE* f = std::fopen(partial.c_str(), "wb");
  if (f == nullptr) return false;
  const bool done = std::fwrite(data, 1, n, f) == n;
  return std::fclose(f) == 0 && done && std::rename(partial.c_str(), file.c_str()) == 0;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}
const char* ncclGetErrorString(int result) { return text_of(result); }
int ncclGetUniqueId(ncclUniqueId* id) {
  std::random_device random;
  std::memset(id->internal, 0, sizeof(id->internal));
  std::snprintf(id->internal, sizeof(id->internal), "/dev/shm/one_gpu_nccl.%08x%08x", random(), random());
  return kSuccess;
}
int ncclCommInitRank(Communicator** out, int num_ranks, ncclUniqueId id, int rank) {
  if (rank < 0 || rank >= num_ranks || std::strncmp(id.internal, "/dev/shm/", 9) != 0) return kInvalidArgument;
  if (!find_driver_functions()) return kSystemError;
  auto* c = new Communicator;
  c->rank = rank, c->num_ranks = num_ranks, c->file = id.internal;
  c->sent.resize(size_t(num_ranks)), c->received.resize(size_t(num_ranks));
  cudaIpcMemHandle_t handle;
  if (rank == 0) {
    const size_t num_bytes = size_t(num_ranks) * size_t(num_ranks) * size_t(kPairBytes);
    void* memory = nullptr;
    if (!is_ok(cudaMalloc(&memory, num_bytes)) || !is_ok(cudaMemset(memory, 0, num_bytes)) || !is_ok(cudaDeviceSynchronize()) ||
        !is_ok(cudaIpcGetMemHandle(&handle, memory)))
      return kUnhandledCudaError;
    c->memory = static_cast<char*>(memory);
    if (!write_whole(c->file, &handle, sizeof(handle))) return kSystemError;
  } else {
    while (access(c->file.c_str(), R_OK) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::FILE* f = std::fopen(c->file.c_str(), "rb");
    if (f == nullptr || std::fread(&handle, sizeof(handle), 1, f) != 1) return kSystemError;
    std::fclose(f);
    void* memory = nullptr;
    if (!is_ok(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess))) return kUnhandledCudaError;
    c->memory = static_cast<char*>(memory);
  }
  *out = c;
  return kSuccess;
}
int ncclCommDestroy(Communicator* c) {
  if (c->rank == 0) unlink(c->file.c_str());
  return kSuccess;  // the memory ends with the process: another rank may still read its last message
}
int ncclCommAbort(Communicator*) { return kSuccess; }
int ncclCommGetAsyncError(Communicator*, int* error) {
  *error = kSuccess;
  return kSuccess;
}
int ncclGroupStart() {
  ++group_depth;
  return kSuccess;
}
int ncclGroupEnd() {
  if (group_depth == 0) return kInvalidUsage;
  return --group_depth > 0 ? kSuccess : deliver(std::exchange(queued, {}));
}
int ncclSend(const void* data, size_t count, int type, int peer, Communicator* c, CUstream stream) {
  if (peer < 0 || peer >= c->num_ranks || peer == c->rank || size_of(type) == 0) return kInvalidArgument;
  return queue({c, peer, static_cast<const char*>(data), nullptr, int64_t(count) * size_of(type), stream});
}
int ncclRecv(void* data, size_t count, int type, int peer, Communicator* c, CUstream stream) {
  if (peer < 0 || peer >= c->num_ranks || peer == c->rank || size_of(type) == 0) return kInvalidArgument;
  return queue({c, peer, nullptr, static_cast<char*>(data), int64_t(count) * size_of(type), stream});
}
int ncclAllGather(const void* send, void* receive, size_t count, int type, Communicator* c, CUstream stream) {
  const int64_t n = int64_t(count) * size_of(type);
  if (n == 0 || group_depth > 0) return kInvalidArgument;
  char* const to = static_cast<char*>(receive);
  std::vector<Message> messages;
  for (int peer = 0; peer < c->num_ranks; ++peer) {
    if (peer == c->rank) continue;
    messages.push_back({c, peer, static_cast<const char*>(send), nullptr, n, stream});
    messages.push_back({c, peer, nullptr, to + peer * n, n, stream});
  }
  char* const own = to + c->rank * n;
  if (own != send && !is_ok(cudaMemcpyAsync(own, send, size_t(n), cudaMemcpyDeviceToDevice, stream))) return kUnhandledCudaError;
  return deliver(messages);
}
int ncclAllReduce(const void* send, void* receive, size_t count, int type, int op, Communicator* c, CUstream stream) {
  if (op != 0 || group_depth > 0) return kInvalidArgument;
  if (type == 7) return all_reduce(static_cast<const float*>(send), static_cast<float*>(receive), int64_t(count), *c, stream);
  if (type == 8) return all_reduce(static_cast<const double*>(send), static_cast<double*>(receive), int64_t(count), *c, stream);
  return kInvalidArgument;
}

}  // extern "C"
