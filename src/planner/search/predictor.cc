#include "planner/search/predictor.h"

#include <fmt/format.h>

#include "planner/search/framework_predictor.h"
#include "planner/search/native_predictor.h"

namespace distsetup {

MemoryKey memory_key(const Choice& c) {
  return {c.tp,
          c.pp,
          c.cp,
          c.ep,
          c.hpz,
          c.virtual_stages,
          static_cast<int>(c.cp_method),
          static_cast<int>(c.sharding),
          c.reshard_after_forward,
          c.dp_replicate,
          c.dp_shard,
          c.micro_batch,
          c.gradient_accumulation,
          static_cast<int>(c.recompute)};
}

std::unique_ptr<Predictor> make_predictor(const Problem& problem) {
  return is_native(problem.base) ? native_predictor(problem) : framework_predictor(problem);
}

std::string too_few_words(int nodes) { return fmt::format("{} node{} too few", nodes, nodes == 1 ? " is" : "s are"); }

}  // namespace distsetup
