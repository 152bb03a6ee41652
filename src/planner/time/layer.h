// One transformer layer as work on one rank: its multiplications, and the bytes its other kernels move.
#pragma once
#include <array>

#include "planner/time/constants.h"

namespace distsetup {

// n x k is the whole weight; tensor parallelism splits n (column) or k (row).
struct LayerGemm {
  double n = 0, k = 0;
  bool column = true;
  bool replicated = false;        // no rank holds a part of it: MLA's down projections, the router
  bool recomputed_by_op = false;  // torchtitan's selective recomputation runs every second matmul again
  double experts = 0;             // products of this many experts on the rank; 0 = one matrix
  double rows_per_token = 1;      // top-k of routed experts
  double lora_rank = 0;
};

inline constexpr double kBackwardTraffic = 1.5;  // of the bytes that forward moves

struct LayerWork {
  std::array<LayerGemm, 12> gemms = {};
  int num_gemms = 0;
  double heads = 0, qk_size = 0, v_size = 0, window = 0;
  double traffic_per_token = 0;        // bytes forward, on one rank of the TP group
  double gradient_sums_per_token = 0;  // bytes backward: the input gradients of q, k, v and of gate, up are added up; not split by TP
  double parameters = 0;               // of the layer on one rank of the TP (and EP) group
  double expert_parameters = 0;        // of those, of routed experts
  double expert_ranks = 1;             // of the TP group, that share an expert's rows or its matrices
  double rows_per_token = 0;           // of experts, on this rank
  double chosen_share = 1;             // of these rows: those of experts that the router chose
  double sliced_bytes = 0;             // backward, whatever the tokens: gradients of slices are summed up in whole stacks
  double fp32_flops = 0;               // forward, whatever the tokens: products outside tensor cores
  double lora_parameters = 0;
  bool experts = false;
};

// Of layer `layer`.
LayerWork layer_work(const Setup& setup, const TimeConstants& constants, int64_t layer);

}  // namespace distsetup
