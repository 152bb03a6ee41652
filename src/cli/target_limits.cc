// Sources: Accelerate's FSDP plugin and the Hugging Face Trainer checkpoint whole layers or nothing and have no form for sharding the
// optimizer state alone; DeepSpeed's ZeRO shards over all ranks and gathers again in backward.
#include "cli/target_limits.h"

#include <fmt/format.h>

#include <algorithm>

namespace distsetup {
namespace {

template <class T>
bool drop(std::vector<T>& from, const std::vector<T>& without) {
  if (from.size() < 2) return false;  // pinned
  std::vector<T> kept;
  std::copy_if(from.begin(), from.end(), std::back_inserter(kept),
               [&](const T& one) { return std::find(without.begin(), without.end(), one) == without.end(); });
  if (kept.empty() || kept.size() == from.size()) return false;
  from = std::move(kept);
  return true;
}

}  // namespace

void narrow_to_target(Problem& problem, std::string_view target) {
  const bool is_fsdp = target == "fsdp", is_deepspeed = target == "deepspeed";
  if (!is_fsdp && !is_deepspeed) return;
  std::string left_out;
  const auto say = [&left_out](std::string_view what) { left_out += (left_out.empty() ? "" : ", ") + std::string(what); };
  if (drop(problem.recomputes, {Recompute::kSelective, Recompute::kEveryK})) say("selective recompute");
  if (is_fsdp && drop(problem.shardings, {Sharding::kZero1})) say("zero1");
  if (is_deepspeed) {
    const bool is_mesh_free = problem.dp_replicate == 0 && problem.dp_shard == 0 && !problem.hybrid;
    if (is_mesh_free && problem.shardings != std::vector{Sharding::kDdp}) {
      problem.dp_replicate = 1;
      say("copies of the shard group");
    }
    if (drop(problem.reshard_after_forward, {0})) say("parameters kept after forward");
  }
  if (!left_out.empty())
    problem.base.assumptions.push_back(fmt::format("target {}: without {}, which it has no form for", target, left_out));
}

}  // namespace distsetup
