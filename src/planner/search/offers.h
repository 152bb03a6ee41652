// Offers: one run on each kind of GPU, as fast as a deadline asks or as a budget allows, with what it costs. Failures, saves and
// restarts are counted in.
#pragma once
#include <string>
#include <vector>

#include "planner/resolve/problem.h"

namespace distsetup {

struct OfferWish {
  double deadline_s = 0;  // of the whole run; 0: none
  double budget_usd = 0;  // 0: none
};

struct GpuOffer {
  std::string gpu, gpu_name;
  int nodes = 0, gpus_per_node = 0;  // 0 nodes: nothing fits
  double step_s = 0, run_s = 0;      // of the run with what is lost to failures and saves
  double goodput = 1;                // share of the time that makes progress
  double gpu_hours = 0, usd = 0;     // 0 USD: no price is known
  std::string price_source;          // with its date
  std::string strategy;
  std::string misses;        // what of the wish it does not meet; "" = nothing
  int nodes_in_time = 0;     // of the plan's own GPU where the number of nodes is given and late: so many would not be; 0: none
  bool batch_bound = false;  // more nodes would leave a GPU without a sequence
};
// Of the plan's hardware and all that it is compared with; cheapest first, behind them what misses the wish.
std::vector<GpuOffer> offers(const Problem& problem, const OfferWish& wish);

}  // namespace distsetup
