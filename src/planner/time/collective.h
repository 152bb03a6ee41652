// Seconds of NCCL collectives on a topology of two levels: a fast domain (NVLink, xGMI, PCIe) and a network of NICs.
#pragma once
#include "planner/time/constants.h"

namespace distsetup {

// Ranks of a group and how many of them share a domain.
struct GroupSpan {
  int ranks = 1, per_domain = 1;
  int domains() const { return (ranks + per_domain - 1) / per_domain; }
};
// A group whose ranks lie `stride` apart.
GroupSpan group_span(const Fabric& fabric, int ranks, int stride);

// bytes: of the full message (what every rank holds after a gather, or before a reduction).
double all_gather_s(const Fabric& fabric, GroupSpan group, double bytes);
double reduce_scatter_s(const Fabric& fabric, GroupSpan group, double bytes);
double all_reduce_s(const Fabric& fabric, GroupSpan group, double bytes);
double all_to_all_s(const Fabric& fabric, GroupSpan group, double bytes);  // bytes: what one rank sends, its own part included
double send_s(const Fabric& fabric, GroupSpan group, double bytes);        // to the next rank of the group

}  // namespace distsetup
