// Compares runtime/comm/nccl_api.h, which the communicator calls NCCL through, with NCCL's own header. No code comes of it.
#if __has_include(<nccl.h>)
#include <nccl.h>

#include <type_traits>

#include "runtime/comm/nccl_api.h"

namespace distsetup::nccl {
namespace {

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId) && std::is_trivially_copyable_v<ncclUniqueId>);
static_assert(sizeof(Comm) == sizeof(ncclComm_t) && sizeof(CudaStream) == sizeof(cudaStream_t));
static_assert(sizeof(Status) == sizeof(ncclResult_t) && sizeof(DataType) == sizeof(ncclDataType_t) &&
              sizeof(RedOp) == sizeof(ncclRedOp_t));
static_assert(int(kSuccess) == int(ncclSuccess) && int(kRemoteError) == int(ncclRemoteError) &&
              int(kInProgress) == int(ncclInProgress));
static_assert(int(kUint8) == int(ncclUint8) && int(kFloat32) == int(ncclFloat32) && int(kFloat64) == int(ncclFloat64));
static_assert(int(kSum) == int(ncclSum));

// Same number of arguments, each of the same size and kind: pointers, integers, enumerations, the id by value.
template <class Ours, class Theirs>
constexpr bool same_argument() {
  return sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
         std::is_class_v<Ours> == std::is_class_v<Theirs>;
}
template <class R, class... A, class S, class... B>
constexpr bool same_function(R (*)(A...), S (*)(B...)) {
  if constexpr (sizeof...(A) != sizeof...(B))
    return false;
  else
    return same_argument<R, S>() && (same_argument<A, B>() && ...);
}
#define DISTSETUP_SAME(member, function) static_assert(same_function(decltype(Api::member){}, decltype(&function){}))
DISTSETUP_SAME(get_version, ncclGetVersion);
DISTSETUP_SAME(get_unique_id, ncclGetUniqueId);
DISTSETUP_SAME(comm_init_rank, ncclCommInitRank);
DISTSETUP_SAME(comm_destroy, ncclCommDestroy);
DISTSETUP_SAME(comm_abort, ncclCommAbort);
DISTSETUP_SAME(comm_get_async_error, ncclCommGetAsyncError);
DISTSETUP_SAME(get_error_string, ncclGetErrorString);
DISTSETUP_SAME(group_start, ncclGroupStart);
DISTSETUP_SAME(group_end, ncclGroupEnd);
DISTSETUP_SAME(all_gather, ncclAllGather);
DISTSETUP_SAME(all_reduce, ncclAllReduce);
DISTSETUP_SAME(send, ncclSend);
DISTSETUP_SAME(receive, ncclRecv);
#undef DISTSETUP_SAME

}  // namespace
}  // namespace distsetup::nccl
#endif
