// See memory_moments.h.
#include "runtime/monitor/memory_moments.h"

#include <algorithm>
#include <array>

#include "base/json.h"
#include "runtime/device/meter.h"

namespace distsetup {

MemoryMoment memory_now(Communicator& communicator, const std::string& when, int local_rank) {
  constexpr size_t kNumbers = 4;
  const MeterReading reading = read_meter();
  std::vector<double> all(static_cast<size_t>(communicator.world()) * kNumbers, 0.0);
  const std::array<int64_t, kNumbers> own = {local_rank, reading.live_bytes, reading.reserved_bytes, reading.peak_bytes};
  std::copy(own.begin(), own.end(), all.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(communicator.rank()) * kNumbers));
  communicator.control_sum(all.data(), static_cast<int64_t>(all.size()));
  MemoryMoment moment = {when, {}, communicator.rank() == 0 ? machine_memory() : std::nullopt};
  for (size_t at = 0; at < all.size(); at += kNumbers)
    moment.ranks.push_back({static_cast<int>(all[at]), static_cast<int64_t>(all[at + 1]), static_cast<int64_t>(all[at + 2]),
                            static_cast<int64_t>(all[at + 3])});
  return moment;
}

Json moments_json(const std::vector<MemoryMoment>& moments) {
  Json out = Json::array();
  for (const MemoryMoment& moment : moments) {
    Json ranks = Json::array();
    for (const RankMemoryNow& one : moment.ranks)
      ranks.push_back({{"rank", ranks.size()},
                       {"local_rank", one.local_rank},
                       {"allocated_bytes", one.allocated_bytes},
                       {"reserved_bytes", one.reserved_bytes},
                       {"max_allocated_bytes", one.max_allocated_bytes}});
    out.push_back({{"when", moment.when}, {"ranks", std::move(ranks)}});
    if (moment.host)
      out.back()["host"] = {{"total_bytes", moment.host->total_bytes},
                            {"available_bytes", moment.host->available_bytes},
                            {"used_bytes", moment.host->used_bytes()}};
  }
  return out;
}

}  // namespace distsetup
