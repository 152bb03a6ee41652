#include "plan/activation_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace distsetup {

ActivationWriter::ActivationWriter(ScheduleWriter& writer) : w_(writer) {
  w_.s_.kept_offset.resize(static_cast<size_t>(w_.num_units()));
  for (int u = 0; u < w_.num_units(); ++u) lay_out(u);
}

// Its input lies apart: it is what the unit below makes.
void ActivationWriter::lay_out(int u) {
  const ProgramVariant& v = *w_.s_.variants[static_cast<size_t>(w_.s_.unit_variant[static_cast<size_t>(u)])];
  std::vector<int64_t>& offset = w_.s_.kept_offset[static_cast<size_t>(u)];
  offset.assign(v.tensors.size(), -1);
  if (u == 0 || u >= w_.head() - 1 || !has_backward(w_.s_, u)) return;
  Kept kept;
  for (int t = 0; t < static_cast<int>(v.tensors.size()); ++t) {
    const TensorInstance& tensor = v.tensors[static_cast<size_t>(t)];
    if (std::find(v.kept.begin(), v.kept.end(), tensor.name) == v.kept.end()) continue;
    CHECK(t != v.y, "{} keeps its own output", v.name);
    const int64_t bytes = aligned(bytes_of(*tensor.decl, w_.s_.symbols, w_.s_.compute));
    if (t == v.x) {
      kept.input_bytes = bytes;
    } else {
      offset[static_cast<size_t>(t)] = kept.rest_bytes;
      kept.rest_bytes += bytes;
    }
  }
  if (kept.input_bytes + kept.rest_bytes > 0) kept_[u] = kept;
}

int ActivationWriter::device_buffer(int u, bool is_input, int64_t bytes) {
  std::string name = is_input ? fmt::format("{}/y", u - 1) : fmt::format("{}/kept", u);
  return w_.add_buffer(std::move(name), BufferClass::kActivation, bytes, w_.s_.compute, BufferLifetime::kSpan, u);
}

void ActivationWriter::forward(int u) {
  Instruction& i = w_.s_.instructions.back();
  if (const auto next = kept_.find(u + 1); next != kept_.end() && next->second.input_bytes > 0) {
    next->second.input.device = device_buffer(u + 1, true, next->second.input_bytes);
    i.stage.y = next->second.input.device;
    i.allocates.push_back(next->second.input.device);
  }
  const auto own = kept_.find(u);
  if (own != kept_.end()) {
    Kept& kept = own->second;
    if (kept.input_bytes > 0) i.stage.x = kept.input.device;
    if (kept.rest_bytes > 0) {
      kept.rest.device = i.stage.kept = device_buffer(u, false, kept.rest_bytes);
      i.allocates.push_back(kept.rest.device);
    }
  }
  for (const int b : {i.stage.x, i.stage.y, i.stage.kept})
    if (b >= 0) i.uses.push_back(b);
  free_lowered();
  if (own == kept_.end()) return;
  lower(u, own->second.input);
  lower(u, own->second.rest);
  lowered_ = u;
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

void ActivationWriter::free_lowered() {
  if (lowered_ < 0) return;
  Kept& kept = kept_.at(std::exchange(lowered_, -1));
  Instruction& i = w_.emit(InstructionOp::kFree, -1);
  for (Moved* moved : {&kept.input, &kept.rest}) {
    if (moved->event < 0) continue;
    i.waits.push_back(std::exchange(moved->event, -1));
    i.frees.push_back(std::exchange(moved->device, -1));
  }
}

void ActivationWriter::raise(int u) {
  const auto found = kept_.find(u);
  if (found == kept_.end()) return;
  Kept& kept = found->second;
  for (Moved* moved : {&kept.input, &kept.rest}) {
    if (moved->host < 0 || moved->device >= 0) continue;  // it does not move, or is on its way
    const int64_t bytes = w_.s_.buffers[static_cast<size_t>(moved->host)].bytes;
    moved->device = device_buffer(u, moved == &kept.input, bytes);
    Instruction& i = w_.emit_copy(u, moved->host, moved->device, bytes, w_.s_.compute);
    i.allocates = {moved->device};
    moved->event = i.signals;
  }
}

void ActivationWriter::backward(int u) {
  const auto found = kept_.find(u);
  if (found == kept_.end()) return;
  Kept& kept = found->second;
  Instruction& i = w_.s_.instructions.back();
  i.stage.x = kept.input.device;
  i.stage.kept = kept.rest.device;
  for (Moved* moved : {&kept.input, &kept.rest}) {
    if (moved->device < 0) continue;
    i.uses.push_back(moved->device);
    i.waits.push_back(std::exchange(moved->event, -1));
    i.frees.push_back(std::exchange(moved->device, -1));
    i.frees.push_back(std::exchange(moved->host, -1));
  }
}

}  // namespace distsetup
