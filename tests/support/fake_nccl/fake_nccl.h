// A stand-in of libnccl.so.2 for tests without a GPU: the functions that runtime/comm/nccl_api.h names, between threads of one
// process, on host memory, done when they return. Every call is written down; ranks that disagree on an operation get
// ncclInvalidUsage. Streams are opaque numbers. What it does not do: run asynchronously, inside groups anything but sends and
// receives.
#pragma once
#include <cstddef>

struct FakeNcclCall {
  char op[16];    // "AllGather", "AllReduce", "Send", "Recv", "InitRank", "Destroy", "Abort"
  int group = 0;  // number of the unique id, from 1
  int rank = 0, num_ranks = 0;
  size_t count = 0;
  int type = -1;  // ncclDataType_t
  int peer = -1;
  const void* send = nullptr;
  void* receive = nullptr;
  void* stream = nullptr;
  int in_group = 0;  // between ncclGroupStart and ncclGroupEnd: number of that group call of the thread, from 1
};

extern "C" {
void fake_nccl_reset();  // forgets calls and unique ids
int fake_nccl_num_calls();
void fake_nccl_call(int index, FakeNcclCall* call);
// From now on ncclCommGetAsyncError of that rank's communicators says `result`; rank -1: nobody.
void fake_nccl_break(int rank, int result);
}
