#include "support/fake_nccl/fake_nccl.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "support/nccl_stand_in.h"

using namespace nccl_stand_in;

namespace {

struct Operation {  // one collective, met by all ranks
  int kind = 0, type = 0;
  size_t count = 0;
  std::vector<const void*> sends;
  int num_arrived = 0, num_read = 0, num_left = 0;
  bool differs = false;
};
struct Group {
  int id = 0, num_ranks = 0, num_arrived = 0;
  bool aborted = false;
  std::map<int64_t, Operation> operations;
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> mail;  // from, to
};
struct Communicator {
  std::shared_ptr<Group> group;
  int rank = 0;
  int64_t num_operations = 0;
};
struct Message {
  Communicator* comm = nullptr;
  int peer = 0;
  const void* send = nullptr;  // null: a receive
  void* receive = nullptr;
  size_t num_bytes = 0;
};

// Never destroyed: a test may leave a thread behind in ncclCommInitRank.
std::mutex& mutex = *new std::mutex;
std::condition_variable& changed = *new std::condition_variable;
std::vector<FakeNcclCall>& calls = *new std::vector<FakeNcclCall>;
std::map<int, std::shared_ptr<Group>>& groups = *new std::map<int, std::shared_ptr<Group>>;
int num_ids = 0, broken_rank = -1, broken_result = 0;
thread_local int group_depth = 0, num_group_calls = 0;
thread_local std::vector<Message> queued;

void write_down(const char* op, const Communicator& c, size_t count, int type, int peer, const void* send, void* receive,
                void* stream) {
  FakeNcclCall call;
  std::snprintf(call.op, sizeof(call.op), "%s", op);
  call.group = c.group->id;
  call.rank = c.rank;
  call.num_ranks = c.group->num_ranks;
  call.count = count;
  call.type = type;
  call.peer = peer;
  call.send = send;
  call.receive = receive;
  call.stream = stream;
  call.in_group = group_depth > 0 ? num_group_calls : 0;
  calls.push_back(call);
}

// Waits until `ready`; false when the communicator was aborted meanwhile.
template <class Ready>
bool wait_for(std::unique_lock<std::mutex>& lock, Group& group, const Ready& ready) {
  changed.wait(lock, [&] { return group.aborted || ready(); });
  return !group.aborted;
}

template <class T>
void add(std::vector<char>& sum, const void* data, size_t count) {
  T* to = reinterpret_cast<T*>(sum.data());
  for (size_t i = 0; i < count; ++i) to[i] += static_cast<const T*>(data)[i];
}

// kind 0: gather, 1: sum.
int collective(int kind, const char* op, const void* send, void* receive, size_t count, int type, Communicator* c, void* stream) {
  std::unique_lock<std::mutex> lock(mutex);
  write_down(op, *c, count, type, -1, send, receive, stream);
  if (group_depth > 0 || size_of(type) == 0) return kInvalidArgument;
  Group& group = *c->group;
  Operation& o = group.operations[c->num_operations++];
  if (o.num_arrived == 0) {
    o.kind = kind;
    o.type = type;
    o.count = count;
    o.sends.resize(size_t(group.num_ranks));
  }
  o.differs = o.differs || o.kind != kind || o.type != type || o.count != count;
  o.sends[size_t(c->rank)] = send;
  ++o.num_arrived;
  changed.notify_all();
  if (!wait_for(lock, group, [&] { return o.num_arrived == group.num_ranks; })) return kRemoteError;
  const size_t num_bytes = count * size_of(type);
  std::vector<char> result(kind == 0 ? num_bytes * o.sends.size() : num_bytes, 0);
  if (!o.differs) {
    for (size_t r = 0; r < o.sends.size(); ++r) {
      if (kind == 0)
        std::memcpy(result.data() + r * num_bytes, o.sends[r], num_bytes);
      else if (type == 7)
        add<float>(result, o.sends[r], count);
      else
        add<double>(result, o.sends[r], count);
    }
  }
  const bool differs = o.differs;
  ++o.num_read;
  changed.notify_all();
  if (!wait_for(lock, group, [&] { return o.num_read == group.num_ranks; })) return kRemoteError;
  if (!differs) std::memcpy(receive, result.data(), result.size());
  if (++o.num_left == group.num_ranks) group.operations.erase(c->num_operations - 1);
  return differs ? kInvalidUsage : kSuccess;
}

int deliver(std::vector<Message> messages) {
  std::unique_lock<std::mutex> lock(mutex);
  for (const Message& m : messages) {
    if (m.send == nullptr) continue;
    const char* data = static_cast<const char*>(m.send);
    m.comm->group->mail[{m.comm->rank, m.peer}].emplace_back(data, data + m.num_bytes);
  }
  changed.notify_all();
  for (const Message& m : messages) {
    if (m.send != nullptr) continue;
    auto& box = m.comm->group->mail[{m.peer, m.comm->rank}];
    if (!wait_for(lock, *m.comm->group, [&] { return !box.empty(); })) return kRemoteError;
    if (box.front().size() != m.num_bytes) return kInvalidUsage;
    std::memcpy(m.receive, box.front().data(), m.num_bytes);
    box.pop_front();
  }
  return kSuccess;
}

int message(const char* op, const void* send, void* receive, size_t count, int type, int peer, Communicator* c, void* stream) {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    write_down(op, *c, count, type, peer, send, receive, stream);
  }
  if (peer < 0 || peer >= c->group->num_ranks || size_of(type) == 0) return kInvalidArgument;
  queued.push_back({c, peer, send, receive, count * size_of(type)});
  if (group_depth > 0) return kSuccess;
  return deliver(std::exchange(queued, {}));
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}
const char* ncclGetErrorString(int result) { return text_of(result); }
int ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard<std::mutex> lock(mutex);
  std::memset(id->internal, 0, sizeof(id->internal));
  ++num_ids;
  std::memcpy(id->internal, &num_ids, sizeof(num_ids));
  id->internal[127] = 'x';  // travels whole or not at all
  return kSuccess;
}
int ncclCommInitRank(Communicator** out, int num_ranks, ncclUniqueId id, int rank) {
  int number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  if (number < 1 || id.internal[127] != 'x' || rank < 0 || rank >= num_ranks) return kInvalidArgument;
  std::unique_lock<std::mutex> lock(mutex);
  auto& group = groups[number];
  if (group == nullptr) {
    group = std::make_shared<Group>();
    group->id = number;
    group->num_ranks = num_ranks;
  }
  if (group->num_ranks != num_ranks) return kInvalidArgument;
  const std::shared_ptr<Group> mine = group;
  auto* c = new Communicator{mine, rank, 0};
  write_down("InitRank", *c, 0, -1, -1, nullptr, nullptr, nullptr);
  ++mine->num_arrived;
  changed.notify_all();
  wait_for(lock, *mine, [&] { return mine->num_arrived >= num_ranks; });
  *out = c;
  return kSuccess;
}
int ncclCommDestroy(Communicator* c) {
  const std::lock_guard<std::mutex> lock(mutex);
  write_down("Destroy", *c, 0, -1, -1, nullptr, nullptr, nullptr);
  delete c;
  return kSuccess;
}
int ncclCommAbort(Communicator* c) {
  const std::lock_guard<std::mutex> lock(mutex);
  write_down("Abort", *c, 0, -1, -1, nullptr, nullptr, nullptr);
  c->group->aborted = true;
  static auto& kept = *new std::vector<Communicator*>;  // not deleted: a thread of this rank may be inside
  kept.push_back(c);
  changed.notify_all();
  return kSuccess;
}
int ncclCommGetAsyncError(Communicator* c, int* error) {
  const std::lock_guard<std::mutex> lock(mutex);
  *error = c->rank == broken_rank ? broken_result : kSuccess;
  return kSuccess;
}
int ncclGroupStart() {
  if (group_depth++ == 0) ++num_group_calls;
  return kSuccess;
}
int ncclGroupEnd() {
  if (group_depth == 0) return kInvalidUsage;
  return --group_depth > 0 ? kSuccess : deliver(std::exchange(queued, {}));
}
int ncclAllGather(const void* send, void* receive, size_t count, int type, Communicator* c, void* stream) {
  return collective(0, "AllGather", send, receive, count, type, c, stream);
}
int ncclAllReduce(const void* send, void* receive, size_t count, int type, int op, Communicator* c, void* stream) {
  return op == 0 ? collective(1, "AllReduce", send, receive, count, type, c, stream) : kInvalidArgument;
}
int ncclSend(const void* data, size_t count, int type, int peer, Communicator* c, void* stream) {
  return message("Send", data, nullptr, count, type, peer, c, stream);
}
int ncclRecv(void* data, size_t count, int type, int peer, Communicator* c, void* stream) {
  return message("Recv", nullptr, data, count, type, peer, c, stream);
}

void fake_nccl_reset() {
  const std::lock_guard<std::mutex> lock(mutex);
  calls.clear();
  groups.clear();
  num_ids = 0;
  broken_rank = -1;
}
int fake_nccl_num_calls() {
  const std::lock_guard<std::mutex> lock(mutex);
  return int(calls.size());
}
void fake_nccl_call(int index, FakeNcclCall* call) {
  const std::lock_guard<std::mutex> lock(mutex);
  *call = calls.at(size_t(index));
}
void fake_nccl_break(int rank, int result) {
  const std::lock_guard<std::mutex> lock(mutex);
  broken_rank = rank;
  broken_result = result;
}

}  // extern "C"
