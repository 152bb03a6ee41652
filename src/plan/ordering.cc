#include "plan/ordering.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "base/check.h"
#include "plan/native_program.h"

namespace distsetup {
namespace {

constexpr size_t kMostUnordered = 20;
using Clock = std::array<int64_t, kNumStreams>;  // what of each stream is known to be done

int stream_index(Stream s) { return static_cast<int>(s); }

// A stretch of bytes with the same history.
struct Cell {
  int64_t end = 0;
  int write_stream = -1;                  // -1: never written in this list
  int64_t written = 0;                    // clock of the last write
  Clock read{};                           // clock of the last read by each stream
  int writer = -1;                        // instruction
  std::array<int, kNumStreams> reader{};  // instruction, of streams that have read
};

class OrderChecker {
 public:
  OrderChecker(const Schedule& s, const Coordinates& at) : s_(s), at_(at), memory_(s.buffers.size() + 2) {
    for (const Buffer& b : s.buffers) is_fed_ |= b.name == "ids";
  }

  std::vector<std::string> run() {
    for (const Segment& g : s_.segments) {
      // What the last round leaves under way meets the first instructions of the next: two rounds show it.
      for (int64_t round = 0; round < std::min<int64_t>(g.repeat, 2); ++round) {
        for (int i = g.first_instruction; i < g.first_instruction + g.num_instructions; ++i) instruction(i);
      }
    }
    return std::move(out_);
  }

 private:
  static void join(Clock& a, const Clock& b) {
    for (int i = 0; i < kNumStreams; ++i) a[i] = std::max(a[i], b[i]);
  }

  void report(std::string message) {
    if (out_.size() < kMostUnordered) out_.push_back(std::move(message));
  }

  void instruction(int index) {
    const Instruction& i = s_.instructions[index];
    const int stream = stream_index(i.stream);
    for (const int event : i.waits) {
      const auto found = signalled_.find(event);
      if (found == signalled_.end())
        report(fmt::format("instruction {}: waits for event {} that nothing before it signals", index, event));
      else
        join(clock_[stream], found->second);
    }
    if (i.stream != Stream::kCompute && i.stream != Stream::kHost) join(clock_[stream], clock_[stream_index(Stream::kCompute)]);
    ++clock_[stream][stream];
    if (is_fed_ && reads_tokens(s_, i)) feed(index);
    for (int n = i.first_step; n < i.first_step + i.num_steps; ++n) {
      for (const View& v : s_.steps[n].reads) access(index, v, false);
      for (const View& v : s_.steps[n].writes) access(index, v, true);
    }
    for (const int buffer : i.frees) give_back(index, buffer);
    const bool is_collective = i.group != Group::kSelf;
    if (i.signals >= 0)
      signalled_[i.signals] = clock_[stream];
    else if (is_collective && i.stream != Stream::kCompute)
      join(clock_[stream_index(Stream::kCompute)], clock_[stream]);
    if (i.stream == Stream::kHost)  // done before anything later is issued
      for (Clock& clock : clock_) join(clock, clock_[stream]);
  }

  // Tokens of a micro-batch are copied to the device before a program reads them.
  void feed(int index) {
    for (int b = 0; b < static_cast<int>(s_.buffers.size()); ++b) {
      const Buffer& buffer = s_.buffers[b];
      if (is_fed(buffer.name)) touch(index, memory_[b], 0, buffer.bytes, true, buffer.name);
    }
  }

  void access(int index, const View& v, bool write) {
    const Buffer& b = s_.buffers[v.buffer];
    const int64_t bytes = num_bytes(v);
    int64_t begin = v.offset_bytes;
    if (v.own_of != Group::kSelf) begin += group_index(s_.layout->mesh, v.own_of, at_) * bytes;
    if (bytes == 0) return;
    if (b.lifetime == BufferLifetime::kRun) return touch(index, memory_[v.buffer], begin, begin + bytes, write, b.name);
    begin += s_.buffers[root_buffer(s_.buffers, v.buffer)].offset_bytes;
    touch(index, memory_[s_.buffers.size() + (is_on_device(b) ? 0 : 1)], begin, begin + bytes, write, b.name);
  }

  using Memory = std::map<int64_t, Cell>;  // by first byte; cells do not overlap

  // Makes `at` a boundary between cells.
  static void split(Memory& memory, int64_t at) {
    auto next = memory.lower_bound(at);
    if (next == memory.begin()) return;
    const auto before = std::prev(next);
    if (before->second.end <= at) return;
    Cell tail = before->second;
    before->second.end = at;
    memory.emplace(at, tail);
  }

  void touch(int index, Memory& memory, int64_t begin, int64_t end, bool write, const std::string& what) {
    split(memory, begin);
    split(memory, end);
    for (int64_t at = begin; at < end;) {
      auto cell = memory.lower_bound(at);
      if (cell == memory.end() || cell->first > at) {
        const int64_t gap_end = cell == memory.end() ? end : std::min(end, cell->first);
        cell = memory.emplace(at, Cell{gap_end, -1, 0, {}, -1, {}}).first;
      }
      visit(index, cell->second, write, what);
      at = cell->second.end;
    }
  }

  // What a buffer is used for is done before its bytes are given back, whether or not anything later in the list takes them.
  void give_back(int index, int buffer) {
    const Buffer& b = s_.buffers[buffer];
    if (b.lifetime == BufferLifetime::kRun || b.bytes == 0) return;
    const int64_t begin = s_.buffers[root_buffer(s_.buffers, buffer)].offset_bytes;
    Memory& memory = memory_[s_.buffers.size() + (is_on_device(b) ? 0 : 1)];
    split(memory, begin);
    split(memory, begin + b.bytes);
    for (auto cell = memory.lower_bound(begin); cell != memory.end() && cell->first < begin + b.bytes; ++cell)
      require_done(index, cell->second, true, "gives back", b.name);
  }

  // The write of these bytes, and with `and_reads` the reads since, are done before instruction `index`.
  void require_done(int index, const Cell& cell, bool and_reads, const char* does, const std::string& what) {
    const Clock& known = clock_[stream_index(s_.instructions[index].stream)];
    const auto unordered = [&](int other, const char* did) {
      report(fmt::format("instruction {} {} '{}' while instruction {} may still {} these bytes: nothing orders them", index, does,
                         what, other, did));
    };
    if (cell.write_stream >= 0 && known[cell.write_stream] < cell.written) unordered(cell.writer, "write");
    for (int other = 0; and_reads && other < kNumStreams; ++other) {
      if (known[other] < cell.read[other]) unordered(cell.reader[other], "read");
    }
  }

  void visit(int index, Cell& cell, bool write, const std::string& what) {
    const int stream = stream_index(s_.instructions[index].stream);
    const Clock& known = clock_[stream];
    require_done(index, cell, write, write ? "writes" : "reads", what);
    if (write) {
      cell.write_stream = stream;
      cell.written = known[stream];
      cell.writer = index;
      cell.read = {};
      return;
    }
    cell.read[stream] = known[stream];
    cell.reader[stream] = index;
  }

  const Schedule& s_;
  const Coordinates at_;
  bool is_fed_ = false;
  std::vector<Memory> memory_;  // per run buffer; the last two are the arenas of device and host
  std::array<Clock, kNumStreams> clock_{};
  std::map<int, Clock> signalled_;
  std::vector<std::string> out_;
};

}  // namespace

std::vector<std::string> check_order(const Schedule& schedule, const Coordinates& at) {
  CHECK(!schedule.steps.empty() || schedule.instructions.empty(), "check_order needs an expanded list");
  return OrderChecker(schedule, at).run();
}

}  // namespace distsetup
