// What the stand-ins of libnccl.so.2 have in common: the part of nccl.h 2.28 that runtime/comm/nccl_api.h names, by its values.
#pragma once
#include <cstdint>

struct ncclUniqueId {
  char internal[128];
};

namespace nccl_stand_in {

enum : int { kSuccess = 0, kUnhandledCudaError = 1, kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6 };

inline constexpr int kVersion = 22809;

inline const char* text_of(int result) {
  switch (result) {
    case kSuccess: return "no error";
    case kUnhandledCudaError: return "unhandled cuda error";
    case kSystemError: return "unhandled system error";
    case kInvalidArgument: return "invalid argument";
    case kInvalidUsage: return "invalid usage";
    case kRemoteError: return "remote process exited or there was a network error";
    default: return "unknown result code";
  }
}

// Bytes of an element of ncclUint8, ncclFloat32 and ncclFloat64; 0: of a type that is not taken.
inline int64_t size_of(int type) { return type == 1 ? 1 : type == 7 ? 4 : type == 8 ? 8 : 0; }

}  // namespace nccl_stand_in
