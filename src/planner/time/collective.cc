// seconds = latency + steps · bytes / (ranks · bus bandwidth); NCCL's tuner compares algorithms and protocols and takes the least
// (NCCL src/graph/tuning.cc, 2.2x: base latencies, hop latencies and the 0.92 of LL128 below are its constants). Steps: n-1 for
// all-gather and reduce-scatter, 2(n-1) for a ring all-reduce. All ranks of a domain carry a share of what leaves it, each through its
// own NIC. A message on the network ramps: half of the rate at `nic_half_bytes`.
// Leaves out: channels and buffer sizes, PAT, CollNet, oversubscribed fabrics beyond the efficiency of the NIC kind.
#include "planner/time/collective.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace distsetup {
namespace {

struct Protocol {
  double base_s, link_hop_s, nic_hop_s, share;  // base and hops of a ring
  double tree_base_s, tree_link_hop_s, tree_nic_hop_s;
};
constexpr std::array<Protocol, 3> kProtocols = {{
    {6.6e-6, 0.6e-6, 2.7e-6, 0.5, 6.8e-6, 0.6e-6, 5.0e-6},      // LL: half of the bytes are flags
    {14.0e-6, 1.9e-6, 4.0e-6, 0.92, 14.0e-6, 1.25e-6, 8.5e-6},  // LL128: 120 of 128 bytes
    {8.4e-6, 3.4e-6, 14.0e-6, 1.0, 8.4e-6, 4.0e-6, 14.0e-6},    // Simple
}};
constexpr double kNvlsBase_s = 25e-6;
constexpr double kTreeShare = 0.92;  // of the ring's bandwidth

double bus_bytes_per_s(const Fabric& f, GroupSpan g, double bytes) {
  if (g.domains() == 1) return f.link_bytes_per_s * bytes / (bytes + f.link_half_bytes);
  const double wire = f.nic_bytes_per_s * g.per_domain * bytes / (bytes + f.nic_half_bytes);
  return g.per_domain == 1 ? wire : std::min(f.link_bytes_per_s, wire);
}

double ring_s(const Fabric& f, GroupSpan g, double bytes, int rounds) {
  const double steps = rounds * (g.ranks - 1.0), between = g.domains() == 1 ? 0 : rounds * (g.domains() - 1.0);
  const double wire = steps / g.ranks * bytes / bus_bytes_per_s(f, g, bytes);
  double best = 1e300;
  for (const Protocol& p : kProtocols) {
    const double latency = p.base_s + (steps - between) * p.link_hop_s + between * p.nic_hop_s;
    best = std::min(best, latency + wire / p.share);
  }
  return best;
}

double tree_s(const Fabric& f, GroupSpan g, double bytes) {
  const double wire = 2 * (g.ranks - 1.0) / g.ranks * bytes / (bus_bytes_per_s(f, g, bytes) * kTreeShare);
  const double levels = std::log2(static_cast<double>(g.domains()));
  double best = 1e300;
  for (const Protocol& p : kProtocols) {
    const double latency = p.tree_base_s + 2 * ((g.per_domain - 1) * p.tree_link_hop_s + levels * p.tree_nic_hop_s);
    best = std::min(best, latency + wire / p.share);
  }
  return best;
}

}  // namespace

GroupSpan group_span(const Fabric& f, int ranks, int stride) {
  return {ranks, std::clamp(f.domain / std::max(stride, 1), 1, std::max(ranks, 1))};
}

double all_gather_s(const Fabric& f, GroupSpan g, double bytes) { return g.ranks <= 1 ? 0 : ring_s(f, g, bytes, 1); }
double reduce_scatter_s(const Fabric& f, GroupSpan g, double bytes) { return all_gather_s(f, g, bytes); }

double all_reduce_s(const Fabric& f, GroupSpan g, double bytes) {
  if (g.ranks <= 1) return 0;
  double best = ring_s(f, g, bytes, 2);
  if (g.domains() > 1) best = std::min(best, tree_s(f, g, bytes));
  if (g.domains() == 1 && f.nvls_bytes_per_s > 0)
    best = std::min(best, kNvlsBase_s + 2 * (g.ranks - 1.0) / g.ranks * (bytes + f.link_half_bytes) / f.nvls_bytes_per_s);
  return best;
}

double all_to_all_s(const Fabric& f, GroupSpan g, double bytes) {
  if (g.ranks <= 1) return 0;
  const double outside = bytes * (g.ranks - g.per_domain) / g.ranks, inside = bytes * (g.per_domain - 1.0) / g.ranks;
  const double each = bytes / g.ranks, ramp = each / (each + f.nic_half_bytes / g.ranks);
  const double latency = kProtocols[2].base_s + (g.domains() > 1 ? kProtocols[2].nic_hop_s : kProtocols[2].link_hop_s) *
                                                    std::log2(static_cast<double>(g.ranks));
  return latency + std::max(inside / f.link_bytes_per_s, outside > 0 ? outside / (f.nic_bytes_per_s * ramp) : 0);
}

double send_s(const Fabric& f, GroupSpan g, double bytes) {
  if (g.ranks <= 1) return 0;
  return g.per_domain > 1 ? kProtocols[2].base_s + kProtocols[2].link_hop_s + bytes / f.link_bytes_per_s
                          : kProtocols[2].base_s + kProtocols[2].nic_hop_s + bytes / f.nic_bytes_per_s;
}

}  // namespace distsetup
