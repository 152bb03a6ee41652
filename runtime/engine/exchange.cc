#include "runtime/engine/exchange.h"

#include "base/check.h"
#include "base/clock.h"

namespace distsetup {
namespace {

double wait_for(const std::unique_ptr<Work>& work) {
  const double begin_s = now_s();
  work->wait();
  return now_s() - begin_s;
}

}  // namespace

double exchange(const Op& op, const Call& call, Communicator& communicator, const Kernels& kernels, Shifts& shifts) {
  const int64_t size = communicator.size(op.group), index = communicator.index(op.group);
  const Argument &from = call.reads[0], &to = call.writes[0];
  if (op.kind == OpKind::kShift) {
    shifts[to.data] = communicator.shift(op.group, from.data, to.data, num_bytes(from));
    return 0;
  }
  if (op.kind == OpKind::kWait) {
    const auto shift = shifts.extract(to.data);
    CHECK(!shift.empty(), "{} waits for what was not sent", op.name);
    return wait_for(shift.mapped());
  }
  if (op.kind == OpKind::kAllGather) {
    kernels.copy(Stream::kCompute, static_cast<char*>(to.data) + index * num_bytes(from), from.data, num_bytes(from));
    return wait_for(communicator.all_gather(op.group, to.data, num_bytes(from)));
  }
  const int64_t chunk_bytes = num_bytes(from) / size;
  if (op.kind == OpKind::kAllToAll) {
    kernels.copy(Stream::kCompute, static_cast<char*>(to.data) + index * chunk_bytes,
                 static_cast<const char*>(from.data) + index * chunk_bytes, chunk_bytes);
    return wait_for(communicator.all_to_all(op.group, from.data, to.data, chunk_bytes));
  }
  const double wait_s = wait_for(communicator.exchange(op.group, from.data, call.writes[1].data, chunk_bytes));
  kernels.sum_partials(static_cast<const char*>(from.data) + index * chunk_bytes, call.writes[1].data,
                       call.reads.size() > 1 ? call.reads[1].data : nullptr, to.data, to.dtype, size, index, numel(to));
  return wait_s;
}

std::unique_ptr<Work> transfer(const Schedule& s, const Instruction& i, const Call& call, Communicator& communicator) {
  const Flow flow = carries_activations(i.stream) ? Flow::kActivations : Flow::kGradients;
  const int stage = peer_stage(s, i.stream);
  if (i.op == InstructionOp::kSend) return communicator.send(flow, stage, call.reads[0].data, num_bytes(call.reads[0]));
  return communicator.receive(flow, stage, call.writes[0].data, num_bytes(call.writes[0]));
}

}  // namespace distsetup
