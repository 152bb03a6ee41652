#include "runtime/engine/exchange.h"

#include <vector>

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

bool exchanges_rows(const Op& op) { return op.kernel == kDispatchRows || op.kernel == kCollectRows; }

double exchange_rows(const Op& op, const Call& call, std::span<const int64_t> starts, Communicator& communicator,
                     const Kernels& kernels) {
  const bool dispatches = op.kernel == kDispatchRows;
  const Argument &of_tokens = dispatches ? call.reads[0] : call.writes[0], &of_experts = dispatches ? call.writes[0] : call.reads[0];
  const int64_t size = communicator.size(op.group), own = communicator.index(op.group), num_experts = call.reads[1].dim(1) - 1;
  const int64_t each = num_experts / size, row_bytes = of_tokens.dim(1) * size_bytes(of_tokens.dtype);
  const auto start = [&](int64_t rank, int64_t expert) { return starts[size_t(rank * (num_experts + 1) + expert)]; };
  const auto piece = [&](const Argument& rows, int64_t member, int64_t round, int64_t first, int64_t count) {
    return RowPiece{int(member), int(round), static_cast<char*>(rows.data) + first * row_bytes, count * row_bytes};
  };
  std::vector<RowPiece> token_pieces, expert_pieces;  // rows of this rank's tokens; of its experts
  int64_t at = 0;                                     // among the rows of its experts
  for (int64_t round = 0; round < each; ++round) {
    for (int64_t member = 0; member < size; ++member) {
      const int64_t theirs = member * each + round, mine = own * each + round;
      const int64_t going = start(own, theirs + 1) - start(own, theirs), coming = start(member, mine + 1) - start(member, mine);
      const RowPiece token_piece = piece(of_tokens, member, round, start(own, theirs), going);
      const RowPiece expert_piece = piece(of_experts, member, round, at, coming);
      at += coming;
      if (member != own) {
        token_pieces.push_back(token_piece);
        expert_pieces.push_back(expert_piece);
        continue;
      }
      const RowPiece &from = dispatches ? token_piece : expert_piece, &to = dispatches ? expert_piece : token_piece;
      kernels.copy(Stream::kCompute, to.data, from.data, from.num_bytes);
    }
  }
  CHECK(at <= of_experts.dim(0), "{}: {} rows come, there is room for {}", op.name, at, of_experts.dim(0));
  return wait_for(communicator.exchange_pieces("AllToAll", op.group, dispatches ? token_pieces : expert_pieces,
                                               dispatches ? expert_pieces : token_pieces, int(each)));
}

std::unique_ptr<Work> transfer(const Schedule& s, const Instruction& i, const Call& call, Communicator& communicator) {
  const Flow flow = carries_activations(i.stream) ? Flow::kActivations : Flow::kGradients;
  const int stage = peer_stage(s, i.stream);
  if (i.op == InstructionOp::kSend) return communicator.send(flow, stage, call.reads[0].data, num_bytes(call.reads[0]));
  return communicator.receive(flow, stage, call.writes[0].data, num_bytes(call.writes[0]));
}

}  // namespace distsetup
