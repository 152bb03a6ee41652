#include "runtime/comm/nccl_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "runtime/comm/communicator.h"

namespace distsetup::nccl {

Api load(const std::string& library) {
  const char* named = std::getenv("DISTSETUP_NCCL");
  Api api;
  api.path = !library.empty() ? library : named != nullptr && *named != '\0' ? named : "libnccl.so.2";
  void* handle = dlopen(api.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    throw CommunicationError(
        -1, fmt::format("NCCL is not there: {}; install the nvidia-nccl wheel of this torch, or set DISTSETUP_NCCL to libnccl.so.2",
                        why != nullptr ? why : api.path));
  }
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr)
      throw CommunicationError(-1, fmt::format("{} has no function {}, expected NCCL 2.7 or newer", api.path, name));
  };
  find("ncclGetVersion", api.get_version);
  find("ncclGetUniqueId", api.get_unique_id);
  find("ncclCommInitRank", api.comm_init_rank);
  find("ncclCommDestroy", api.comm_destroy);
  find("ncclCommAbort", api.comm_abort);
  find("ncclCommGetAsyncError", api.comm_get_async_error);
  find("ncclGetErrorString", api.get_error_string);
  find("ncclGroupStart", api.group_start);
  find("ncclGroupEnd", api.group_end);
  find("ncclAllGather", api.all_gather);
  find("ncclAllReduce", api.all_reduce);
  find("ncclSend", api.send);
  find("ncclRecv", api.receive);
  if (api.get_version(&api.version) != kSuccess || api.version < kOldestVersion) {
    throw CommunicationError(
        -1, fmt::format("{} is NCCL version code {}, expected {} (2.7) or newer", api.path, api.version, kOldestVersion));
  }
  return api;
}

}  // namespace distsetup::nccl
