// The part of NCCL's C interface that the trainer calls, declared here so that neither its header nor CUDA is needed to build or to
// test the communicator. Source: nccl.h of NCCL 2.28 (github.com/NVIDIA/nccl, src/nccl.h.in); these declarations are unchanged
// since 2.7. runtime/device/cuda_nccl_abi.cc compares every line with the real header wherever the CUDA plugin is built.
#pragma once
#include <cstddef>
#include <string>

namespace distsetup::nccl {

struct UniqueId {
  char internal[128];
};
struct OpaqueComm;
using Comm = OpaqueComm*;  // ncclComm_t
using CudaStream = void*;  // cudaStream_t

// ncclResult_t
enum Status : int { kSuccess = 0, kRemoteError = 6, kInProgress = 7 };
enum DataType : int { kUint8 = 1, kFloat32 = 7, kFloat64 = 8 };
enum RedOp : int { kSum = 0 };

inline constexpr int kOldestVersion = 20700;  // 2.7.0: ncclSend and ncclRecv

// Function pointers of one loaded library, which stays loaded for the rest of the process.
struct Api {
  Status (*get_version)(int* version) = nullptr;
  Status (*get_unique_id)(UniqueId* id) = nullptr;
  Status (*comm_init_rank)(Comm* comm, int num_ranks, UniqueId id, int rank) = nullptr;
  Status (*comm_destroy)(Comm comm) = nullptr;
  Status (*comm_abort)(Comm comm) = nullptr;
  Status (*comm_get_async_error)(Comm comm, Status* error) = nullptr;
  const char* (*get_error_string)(Status result) = nullptr;
  Status (*group_start)() = nullptr;
  Status (*group_end)() = nullptr;
  Status (*all_gather)(const void* send, void* receive, size_t send_count, DataType type, Comm comm, CudaStream stream) = nullptr;
  Status (*all_reduce)(const void* send, void* receive, size_t count, DataType type, RedOp op, Comm comm, CudaStream stream) = nullptr;
  Status (*send)(const void* data, size_t count, DataType type, int peer, Comm comm, CudaStream stream) = nullptr;
  Status (*receive)(void* data, size_t count, DataType type, int peer, Comm comm, CudaStream stream) = nullptr;
  int version = 0;   // 22809: 2.28.9
  std::string path;  // as it was asked for
};

// `library` empty: environment variable DISTSETUP_NCCL, else libnccl.so.2. Throws CommunicationError: not found, a function missing,
// too old.
Api load(const std::string& library);

}  // namespace distsetup::nccl
