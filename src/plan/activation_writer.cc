#include "plan/activation_writer.h"

#include <fmt/format.h>

#include "base/check.h"
#include "plan/live.h"

namespace distsetup {

ActivationWriter::ActivationWriter(ScheduleWriter& writer, const std::vector<UnitSpan>& chunks)
    : w_(writer), has_stages_(writer.plan_.mesh.pp > 1) {
  w_.s_.kept_offset.resize(static_cast<size_t>(w_.num_units()));
  for (const UnitSpan& chunk : chunks)
    for (int u = chunk.first; u <= chunk.last; ++u) lay_out(u, u == chunk.first);
}

// Its input lies apart: it is what the unit below makes. Without stages, what does not move is an ordinary tensor.
void ActivationWriter::lay_out(int u, bool is_first) {
  const ProgramVariant& v = *w_.s_.variants[static_cast<size_t>(w_.s_.unit_variant[static_cast<size_t>(u)])];
  std::vector<int64_t>& offset = w_.s_.kept_offset[static_cast<size_t>(u)];
  offset.assign(v.tensors.size(), -1);
  KeptBytes bytes;
  if ((!has_stages_ && (u == 0 || u >= w_.head() - 1)) || !has_backward(w_.s_, u)) return;
  for (int t = 0; t < static_cast<int>(v.tensors.size()); ++t) {
    if (!is_kept_by_stage(v, t, u == w_.head())) continue;
    CHECK(t != v.y, "{} keeps its own output", v.name);
    const int64_t tensor_bytes = aligned(bytes_of(*v.tensors[static_cast<size_t>(t)].decl, w_.s_.symbols, w_.s_.compute));
    if (t == v.x) {
      bytes.input = is_first ? 0 : tensor_bytes;
    } else {
      offset[static_cast<size_t>(t)] = bytes.rest;
      bytes.rest += tensor_bytes;
    }
  }
  if (bytes.input + bytes.rest > 0) bytes_[u] = bytes;
}

int ActivationWriter::device_buffer(int u, bool is_input, int64_t bytes) {
  std::string name = is_input ? fmt::format("{}/y", u - 1) : fmt::format("{}/kept", u);
  return w_.add_buffer(std::move(name), BufferClass::kActivation, bytes, w_.s_.compute, BufferLifetime::kSpan, u);
}

void ActivationWriter::forward(int u, bool moves) {
  Instruction& i = w_.s_.instructions.back();
  const int m = w_.micro_batch_;
  if (const auto next = bytes_.find(u + 1); next != bytes_.end() && next->second.input > 0) {
    const int output = device_buffer(u + 1, true, next->second.input);
    kept_[{m, u + 1}].input.device = i.stage.y = output;
    i.allocates.push_back(output);
    i.uses.push_back(output);
  }
  const auto own = bytes_.find(u);
  if (own != bytes_.end() && own->second.input > 0) i.uses.push_back(i.stage.x = kept_.at({m, u}).input.device);
  if (own != bytes_.end() && own->second.rest > 0) {
    const int rest = device_buffer(u, false, own->second.rest);
    kept_[{m, u}].rest.device = i.stage.kept = rest;
    i.allocates.push_back(rest);
    i.uses.push_back(rest);
  }
  free_lowered();
  if (own == bytes_.end() || !moves) return;
  Kept& kept = kept_.at({m, u});
  lower(u, kept.input);
  lower(u, kept.rest);
  lowered_ = {m, u};
}

void ActivationWriter::lower(int u, Moved& moved) {
  if (moved.device < 0) return;
  const Buffer from = w_.s_.buffers[static_cast<size_t>(moved.device)];
  moved.host = w_.add_buffer(from.name + ".host", from.buffer_class, from.bytes, from.dtype, BufferLifetime::kSpan, u);
  w_.s_.buffers[static_cast<size_t>(moved.host)].place = Place::kHostPinned;
  Instruction& i = w_.emit_copy(u, moved.device, moved.host, from.bytes, from.dtype);
  i.allocates = {moved.host};
  moved.event = i.signals;
}

// Not what a backward has read and freed since.
void ActivationWriter::free_lowered() {
  const auto found = kept_.find(std::exchange(lowered_, {-1, -1}));
  if (found == kept_.end()) return;
  Instruction& i = w_.emit(InstructionOp::kFree, -1);
  for (Moved* moved : {&found->second.input, &found->second.rest}) {
    if (moved->event < 0) continue;
    i.waits.push_back(std::exchange(moved->event, -1));
    i.frees.push_back(std::exchange(moved->device, -1));
  }
}

void ActivationWriter::raise(int u, int micro_batch) {
  const auto found = kept_.find({micro_batch, u});
  if (found == kept_.end()) return;
  const int before = std::exchange(w_.micro_batch_, micro_batch);
  Kept& kept = found->second;
  for (Moved* moved : {&kept.input, &kept.rest}) {
    if (moved->host < 0 || moved->device >= 0) continue;  // it does not move, or is on its way
    const int64_t bytes = w_.s_.buffers[static_cast<size_t>(moved->host)].bytes;
    moved->device = device_buffer(u, moved == &kept.input, bytes);
    Instruction& i = w_.emit_copy(u, moved->host, moved->device, bytes, w_.s_.compute);
    i.allocates = {moved->device};
    moved->event = i.signals;
  }
  w_.micro_batch_ = before;
}

void ActivationWriter::backward(int u) {
  Instruction& i = w_.s_.instructions.back();
  if (auto own = kept_.extract({w_.micro_batch_, u}); !own.empty()) {
    Kept& kept = own.mapped();
    if (kept.input.device >= 0) i.stage.x = kept.input.device;
    if (kept.rest.device >= 0) i.stage.kept = kept.rest.device;
    for (const Moved& moved : {kept.input, kept.rest}) {
      if (moved.device >= 0) i.uses.push_back(moved.device);
      if (moved.event >= 0) i.waits.push_back(moved.event);
      for (const int b : {moved.device, moved.host})
        if (b >= 0) i.frees.push_back(b);
    }
  }
  free_lowered();
}

}  // namespace distsetup
