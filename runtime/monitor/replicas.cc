// See replicas.h. FNV-1a, 64 bits, in two halves that a double carries exactly.
#include "runtime/monitor/replicas.h"

#include <fmt/format.h>

#include <map>
#include <tuple>
#include <vector>

#include "runtime/monitor/failure.h"

namespace distsetup {
namespace {

uint64_t fnv1a(std::span<const float> values) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto* p = reinterpret_cast<const unsigned char*>(values.data());
  for (size_t i = 0; i < values.size_bytes(); ++i) hash = (hash ^ p[i]) * 0x100000001b3u;
  return hash;
}

}  // namespace

void check_replicas(Communicator& communicator, int shard_ranks, int shard_index, std::span<const float> master) {
  const size_t world = static_cast<size_t>(communicator.world());
  if (communicator.world() == shard_ranks) return;
  const uint64_t hash = fnv1a(master);
  std::vector<double> slots(3 * world, 0.0);
  double* const mine = slots.data() + 3 * static_cast<size_t>(communicator.rank());
  mine[0] = shard_index;
  mine[1] = static_cast<double>(hash >> 32);
  mine[2] = static_cast<double>(hash & 0xffffffffu);
  communicator.control_sum(slots.data(), static_cast<int64_t>(slots.size()));
  std::map<double, size_t> first_of_shard;
  for (size_t r = 0; r < world; ++r) {
    const size_t first = first_of_shard.try_emplace(slots[3 * r], r).first->second;
    if (slots[3 * r + 1] == slots[3 * first + 1] && slots[3 * r + 2] == slots[3 * first + 2]) continue;
    throw Failure(kExitFailed, fmt::format("ranks {} and {} hold the same parameters and their bits differ", first, r),
                  "a fault of memory, or a bug: go on from the last checkpoint, and please report it if it happens again");
  }
}

}  // namespace distsetup
