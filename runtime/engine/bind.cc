#include "runtime/engine/bind.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "model/rope.h"
#include "runtime/engine/arena_guard.h"
#include "runtime/kernels/cpu/rope.h"

namespace distsetup {
namespace {

void check_supported(const Instruction& i) {
  switch (i.op) {
    case InstructionOp::kForward:
    case InstructionOp::kBackward:
    case InstructionOp::kRecompute:
    case InstructionOp::kLoss:
    case InstructionOp::kAllGather:
    case InstructionOp::kReduceScatter:
    case InstructionOp::kAllReduce:
    case InstructionOp::kWait:
    case InstructionOp::kAccumulate:
    case InstructionOp::kGradNorm:
    case InstructionOp::kFactorSums:
    case InstructionOp::kFactorMeans:
    case InstructionOp::kMomentum:
    case InstructionOp::kOrthogonalize:
    case InstructionOp::kOptimizerStep:
    case InstructionOp::kCast:
    case InstructionOp::kZero:
    case InstructionOp::kCopyToHost:
    case InstructionOp::kCopyToDevice:
    case InstructionOp::kSend:
    case InstructionOp::kRecv:
    case InstructionOp::kFree: return;
    default: CHECK(false, "the executor has no instruction {}", name(i.op));
  }
}

// Of the arena that a span buffer lies in.
int64_t arena_bytes_of(const Schedule& schedule, const Buffer& buffer) {
  return is_on_device(buffer) ? schedule.arena_bytes : schedule.host_arena_bytes;
}

}  // namespace

RankMemory::RankMemory(Device& device, const std::vector<const Schedule*>& schedules, RunSizes sizes,
                       const std::string& offload_folder) {
  int64_t arena_bytes = 0, host_arena_bytes = 0;
  std::map<std::string, int64_t> largest;
  for (const Schedule* s : schedules)
    for (const Buffer& b : s->buffers)
      if (b.lifetime == BufferLifetime::kRun) largest[b.name] = std::max(largest[b.name], b.bytes);
  for (const Schedule* s : schedules) {
    arena_bytes = std::max(arena_bytes, s->arena_bytes);
    host_arena_bytes = std::max(host_arena_bytes, s->host_arena_bytes);
    for (const Buffer& b : s->buffers) {
      if (b.lifetime != BufferLifetime::kRun) continue;
      auto& memory = run_[b.name];
      if (memory == nullptr) {
        const int64_t bytes = largest.at(b.name);
        if (is_on_device(b)) {
          memory = device.allocate(bytes, int(b.buffer_class));
          device.fill(memory->data(), 0, bytes);
        } else if (b.place == Place::kDisk) {
          auto file = std::make_unique<FileMemory>(offload_folder.empty() ? usual_offload_folder() : offload_folder, bytes);
          on_disk_[b.name] = file.get();
          on_host_.insert(b.name);
          memory = std::move(file);
        } else {
          memory = device.allocate_host(bytes, b.place);
          if (bytes > 0) std::memset(memory->data(), 0, size_t(bytes));
          on_host_.insert(b.name);
        }
      }
      CHECK(sizes == RunSizes::kLargest || memory->num_bytes() == b.bytes, "run buffer '{}': {} and {} bytes in two phases", b.name,
            memory->num_bytes(), b.bytes);
    }
  }
  if (host_arena_bytes > 0) {
    host_arena_ = device.allocate_host(host_arena_bytes, Place::kHostPinned);
    std::memset(host_arena_->data(), 0, size_t(host_arena_bytes));
  }
  if (arena_bytes == 0) return;
  arena_ = device.allocate(arena_bytes, Device::kArenaTag);
  device.fill(arena_->data(), 0, arena_bytes);
}

void* RankMemory::run(const std::string& name) const {
  const auto found = run_.find(name);
  CHECK(found != run_.end(), "no run buffer '{}'", name);
  return found->second->data();
}
int64_t RankMemory::host_bytes() const {
  int64_t bytes = host_arena_bytes();
  for (const std::string& name : on_host_)
    if (!on_disk_.contains(name)) bytes += run_.at(name)->num_bytes();
  return bytes;
}
int64_t RankMemory::disk_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, file] : on_disk_) bytes += file->num_bytes();
  return bytes;
}
void RankMemory::read_ahead(const UnitLayout& unit) const {
  if (unit.is_frozen) return;
  for (const auto& [name, file] : on_disk_) file->will_need(unit.shard_offset * 4, unit.shard_numel * 4);
}
void RankMemory::write_back(const UnitLayout& unit) const {
  if (unit.is_frozen) return;
  for (const auto& [name, file] : on_disk_) file->is_done(unit.shard_offset * 4, unit.shard_numel * 4);
}
void RankMemory::close_arenas() const {
  close_bytes(arena(), arena_bytes());
  close_bytes(host_arena(), host_arena_bytes());
}
int64_t RankMemory::run_num_bytes(const std::string& name) const {
  const auto found = run_.find(name);
  CHECK(found != run_.end(), "no run buffer '{}'", name);
  return found->second->num_bytes();
}

BoundList bind(Schedule schedule, const RankMemory& memory, const Coordinates& at, const OpContext& context, const Kernels& kernels) {
  BoundList list;
  for (int b = 0; b < int(schedule.buffers.size()); ++b) {
    const Buffer& buffer = schedule.buffers[size_t(b)];
    if (buffer.lifetime == BufferLifetime::kRun) {
      list.base.push_back(static_cast<char*>(memory.run(buffer.name)));
      continue;
    }
    const int64_t offset = schedule.buffers[size_t(root_buffer(schedule.buffers, b))].offset_bytes;
    const int64_t arena_bytes = arena_bytes_of(schedule, buffer);
    CHECK(offset >= 0 && offset + buffer.bytes <= arena_bytes, "buffer '{}' at {} of {}", buffer.name, offset, arena_bytes);
    list.base.push_back((is_on_device(buffer) ? memory.arena() : memory.host_arena()) + offset);
  }

  const auto argument = [&](const View& v) {
    const Buffer& buffer = schedule.buffers[size_t(v.buffer)];
    const int64_t own = v.own_of == Group::kSelf ? 0 : group_index(schedule.layout->mesh, v.own_of, at) * num_bytes(v);
    CHECK(v.offset_bytes >= 0 && v.offset_bytes + own + num_bytes(v) <= buffer.bytes, "a view of '{}': {} + {} + {} of {} bytes",
          buffer.name, v.offset_bytes, own, num_bytes(v), buffer.bytes);
    return Argument{list.base[size_t(v.buffer)] + v.offset_bytes + own, v.shape, v.dtype};
  };
  for (const Instruction& i : schedule.instructions) check_supported(i);
  list.whole = std::make_shared<const OpContext>(with_whole_sequences(context));
  for (const Step& step : schedule.steps) {
    Call call;
    call.accumulate = step.accumulate;
    call.context = &context;
    for (const View& v : step.reads) call.reads.push_back(argument(v));
    for (const View& v : step.writes) call.writes.push_back(argument(v));
    if (step.program_op != nullptr && !is_communication(step.program_op->kind)) {
      call.attributes = &step.program_op->attributes;
      std::string kernel = step.kernel;
      if (constexpr std::string_view kWhole = "attention_whole"; kernel.starts_with(kWhole)) {
        kernel.replace(0, kWhole.size(), "attention");
        call.context = list.whole.get();
      }
      const std::string why_not = kernels.bind(kernel, call);
      if (!why_not.empty())
        throw UnsupportedOpError(
            fmt::format("op '{}' of unit {} cannot run: kernel '{}': {}", step.op, step.unit, step.kernel, why_not));
    }
    list.calls.push_back(std::move(call));
  }
  list.births.resize(schedule.steps.size());
  list.dies.resize(schedule.steps.size());
  std::vector<int64_t> used_bytes(schedule.buffers.size());  // of a buffer and those that lie over it
  for (int b = 0; b < int(schedule.buffers.size()); ++b) {
    int64_t& used = used_bytes[size_t(root_buffer(schedule.buffers, b))];
    used = std::max(used, schedule.buffers[size_t(b)].bytes);
  }
  for (size_t b = 0; b < schedule.buffers.size(); ++b) {
    const Buffer& buffer = schedule.buffers[b];
    if (buffer.lifetime == BufferLifetime::kRun || buffer.overlay_of >= 0) continue;
    list.births[size_t(buffer.first_step)].push_back({list.base[b], used_bytes[b], !is_on_device(buffer)});
    list.dies[size_t(buffer.last_step)].push_back(
        {list.base[b], std::min(aligned(buffer.bytes), arena_bytes_of(schedule, buffer) - buffer.offset_bytes),
         !is_on_device(buffer)});
  }
  list.schedule = std::move(schedule);
  return list;
}

void fill_rope_tables(const Geometry& geometry, const Positions& positions, int64_t length, const RankMemory& memory, Device& device) {
  for (const bool local : {false, true}) {
    const std::string suffix = local ? "_local" : "";
    if (!memory.has_run("cos" + suffix)) continue;
    const RopeFrequencies f = rope_frequencies(geometry, local, length);
    std::vector<float> cos(size_t(positions.rows) * f.per_pair.size()), sin(cos.size());
    cpu::rope_tables(cos.data(), sin.data(), positions, f.per_pair, f.amplitude);
    device.copy_to_device(memory.run("cos" + suffix), cos.data(), int64_t(cos.size()) * 4);
    device.copy_to_device(memory.run("sin" + suffix), sin.data(), int64_t(sin.size()) * 4);
  }
}

OpContext op_context(const Schedule& schedule, const Geometry& geometry, const Coordinates& at) {
  const auto symbol = [&](const char* name) { return schedule.symbols.at(name); };
  OpContext x;
  x.T = symbol("T");
  x.S = symbol("Sr");
  x.B = x.T / x.S;
  x.a = symbol("a");
  x.kv = symbol("kv");
  x.d = symbol("d");
  x.rot = symbol("rot");
  x.compute = schedule.compute;
  x.deterministic = schedule.deterministic;
  x.tp = schedule.layout->mesh.tp;
  x.tp_index = at.tp;
  x.vocabulary = geometry.vocabulary;
  x.cp = schedule.layout->mesh.cp;
  x.cp_index = at.cp;
  x.ep = schedule.layout->mesh.ep;
  x.ep_index = group_index(schedule.layout->mesh, Group::kEp, at);
  x.packed = schedule.is_packed;
  return x;
}

std::array<int64_t, kNumBufferClasses> arena_peak_by_class(const Schedule& schedule) {
  std::array<int64_t, kNumBufferClasses> peak{};
  std::array<std::vector<int64_t>, kNumBufferClasses> change;
  for (auto& c : change) c.assign(schedule.steps.size() + 1, 0);
  for (const Buffer& b : schedule.buffers) {
    if (b.lifetime == BufferLifetime::kRun || b.overlay_of >= 0 || !is_on_device(b)) continue;
    std::vector<int64_t>& c = change[size_t(b.buffer_class)];
    c[size_t(b.first_step)] += aligned(b.bytes);
    c[size_t(b.last_step) + 1] -= aligned(b.bytes);
  }
  for (size_t c = 0; c < kNumBufferClasses; ++c) {
    int64_t live = 0;
    for (const int64_t d : change[c]) peak[c] = std::max(peak[c], live += d);
  }
  return peak;
}

}  // namespace distsetup
