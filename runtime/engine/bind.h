// Binding: a compiled list meets memory. Every view of every step becomes an address; nothing about offsets, shapes or operands is
// looked up while training. Run buffers are allocated one by one (so that the meter sees each class), span buffers share the arena.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "plan/layout.h"
#include "plan/plan.h"
#include "plan/schedule.h"
#include "runtime/device/device.h"
#include "runtime/device/file_memory.h"
#include "runtime/engine/ops.h"

namespace distsetup {

class UnsupportedOpError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Run buffers of one name: as large in every list, or as in the list where it is largest (lists for other numbers of tokens).
enum class RunSizes { kEqual, kLargest };

// Memory of one rank: the run buffers by name, shared by the lists of all phases, and one arena large enough for each of them.
class RankMemory {
 public:
  // Allocates and zeroes. `offload_folder`: of a local disk, for what lies there; empty: usual_offload_folder().
  RankMemory(Device& device, const std::vector<const Schedule*>& schedules, RunSizes sizes = RunSizes::kEqual,
             const std::string& offload_folder = "");
  void* run(const std::string& name) const;
  bool has_run(const std::string& name) const { return run_.contains(name); }
  int64_t run_num_bytes(const std::string& name) const;
  bool is_on_host(const std::string& name) const { return on_host_.contains(name); }  // of a run buffer, on its disk too
  char* host_arena() const { return host_arena_ ? static_cast<char*>(host_arena_->data()) : nullptr; }
  int64_t host_arena_bytes() const { return host_arena_ ? host_arena_->num_bytes() : 0; }
  int64_t host_bytes() const;  // run buffers and the arena, in memory
  int64_t disk_bytes() const;
  // Of what is on a disk, this unit's part is needed next, or not for a while. Of a frozen unit nothing is.
  void read_ahead(const UnitLayout& unit) const;
  void write_back(const UnitLayout& unit) const;
  char* arena() const { return arena_ ? static_cast<char*>(arena_->data()) : nullptr; }
  int64_t arena_bytes() const { return arena_ ? arena_->num_bytes() : 0; }
  void close_arenas() const;  // both of them (arena_guard.h)

 private:
  std::map<std::string, std::unique_ptr<DeviceMemory>> run_;
  std::set<std::string> on_host_;
  std::map<std::string, const FileMemory*> on_disk_;
  std::unique_ptr<DeviceMemory> arena_, host_arena_;
};

struct BoundList {
  Schedule schedule;
  std::vector<Call> calls;  // one per step; function is null for instructions without a program and for exchanges with other ranks
  struct ByteRange {
    char* data = nullptr;
    int64_t num_bytes = 0;
    bool is_on_host = false;
  };
  std::vector<std::vector<ByteRange>> births;  // per step: bytes of buffers of the arenas whose first use it is
  std::vector<std::vector<ByteRange>> dies;    // per step: arena ranges whose last use it is, with what aligns the next buffer
  std::vector<char*> base;                     // per buffer
  std::shared_ptr<const OpContext> whole;      // of ops that see whole sequences, where ranks share them
};

// at: this rank's place in the mesh. `context` must outlive the list.
// Throws UnsupportedOpError when the device has no kernel for an op, or refuses its shapes.
BoundList bind(Schedule schedule, const RankMemory& memory, const Coordinates& at, const OpContext& context, const Kernels& kernels);
// cos and sin of the position of each of this rank's rows, and those of layers with a window where programs read them.
// `length`: as rope_frequencies has it.
void fill_rope_tables(const Geometry& geometry, const Positions& positions, int64_t length, const RankMemory& memory, Device& device);
OpContext op_context(const Schedule& schedule, const Geometry& geometry, const Coordinates& at);

// The most bytes of each class that a list has in the arena at once.
std::array<int64_t, kNumBufferClasses> arena_peak_by_class(const Schedule& schedule);

}  // namespace distsetup
