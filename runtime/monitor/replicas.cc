// See replicas.h. A hash of 64 bits travels in two halves that a double carries exactly.
#include "runtime/monitor/replicas.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "runtime/monitor/failure.h"

namespace distsetup {
namespace {

// Eight sums side by side, each over every eighth word: the processor need not wait for one multiplication before the next.
uint64_t hash_of(std::span<const float> values) {
  constexpr size_t kLanes = 8;
  std::array<uint64_t, kLanes> lanes{};
  const size_t num_words = values.size() / 2, whole = num_words / kLanes * kLanes;
  const auto word = [&values](size_t i) {
    uint64_t w;
    std::memcpy(&w, values.data() + 2 * i, sizeof(w));
    return w;
  };
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = (lanes[lane] ^ word(i + lane)) * 0x9e3779b97f4a7c15u;
  }
  uint64_t hash = values.size();
  const auto add = [&hash](uint64_t w) { hash = ((hash ^ w) * 0x9e3779b97f4a7c15u) ^ (hash >> 29); };
  for (const uint64_t lane : lanes) add(lane);
  for (size_t i = whole; i < num_words; ++i) add(word(i));
  if (values.size() % 2 == 1) add(std::bit_cast<uint32_t>(values.back()));
  return hash;
}

}  // namespace

void check_replicas(Communicator& communicator, const Layout& layout, std::span<const float> master) {
  const Mesh& mesh = layout.mesh;
  const Group states = layout.state_group;
  const size_t world = static_cast<size_t>(communicator.world());
  if (communicator.world() == group_size(mesh, states)) return;
  const uint64_t hash = hash_of(master);
  std::vector<double> slots(3 * world, 0.0);
  double* const mine = slots.data() + 3 * static_cast<size_t>(communicator.rank());
  mine[0] = group_index(mesh, states, coordinates(mesh, communicator.rank()));
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

void check_same_step(Communicator& communicator, int64_t steps_done) {
  const double mine = static_cast<double>(steps_done);
  double steps[2] = {mine, mine * mine};
  communicator.control_sum(steps, 2);
  CHECK(steps[0] == communicator.world() * mine && steps[1] == steps[0] * mine, "ranks start at different steps");
}

}  // namespace distsetup
