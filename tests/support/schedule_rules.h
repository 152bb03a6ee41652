// The rules that hold for every schedule of a plan, and what a plan is in one line.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plan/compile_schedule.h"
#include "plan/expand.h"
#include "plan/host_writer.h"
#include "plan/invariants.h"
#include "plan/live.h"
#include "plan/schedule.h"
#include "plan/schedule_text.h"

namespace distsetup {

inline std::string describe(const Plan& p) {
  return fmt::format(
      "{} dp {}x{} cp {} tp {} pp {}x{} acc {} mb {} recompute {} k {} {} reshard {} prefetch {} L {} tied {} bias {} qk {} {}",
      name(p.strategy.sharding), p.mesh.dp_replicate, p.mesh.dp_shard, p.mesh.cp, p.mesh.tp, p.mesh.pp, p.strategy.virtual_stages,
      p.gradient_accumulation, p.micro_batch, name(p.recompute.policy), p.recompute.every_k, name(p.precision.compute),
      p.strategy.reshard_after_forward, p.strategy.prefetch, p.model.num_layers, p.model.tied_embeddings, p.model.qkv_bias,
      p.model.qk_norm, offload_words(p.offload));
}

// Both levels agree to the byte, instruction by instruction.
inline std::string level_difference(const Schedule& s, const std::vector<InstructionLive>& live) {
  int64_t peak = 0;
  for (size_t i = 0; i < s.instructions.size(); ++i) {
    int64_t largest = 0;
    for (int n = 0; n < s.instructions[i].num_steps; ++n) largest = std::max(largest, s.live_bytes[s.instructions[i].first_step + n]);
    if (largest != live[i].peak_bytes) {
      return fmt::format("instruction {} {}: {} bytes of its steps, {} as a whole", i, format_instruction(s, static_cast<int>(i)),
                         largest, live[i].peak_bytes);
    }
    peak = std::max(peak, largest);
  }
  return peak == s.live_peak_bytes ? "" : fmt::format("the peak is {} and said to be {}", peak, s.live_peak_bytes);
}

// The first rule that a schedule of this plan breaks, empty when there is none.
inline std::string broken_rule(const Plan& plan, int stage) {
  for (const Phase phase : {Phase::kLoad, Phase::kStep, Phase::kEvaluate, Phase::kSave}) {
    Schedule s = compile_schedule(plan, phase, stage);
    const auto broken = [&](const std::string& rule) {
      return fmt::format("stage {} {}: {}\n{}", stage, name(phase), rule, format_schedule(s));
    };
    if (const auto rules = check_invariants(plan, s); !rules.empty()) return broken(rules.front());
    const std::vector<InstructionLive> live = walk_live(s);
    expand(s);
    if (const auto rules = check_invariants(plan, s); !rules.empty()) return broken(rules.front());
    if (const std::string difference = level_difference(s, live); !difference.empty()) return broken(difference);
    if (s.arena_bytes < s.live_peak_bytes) return broken("the arena is smaller than what lives in it");
    if (s.arena_bytes > s.live_peak_bytes + s.live_peak_bytes / 4 + 4096) return broken("the arena is a quarter too large");
    // States alone: master, gradient and moments of what is trained in fp32 over the shard ranks; Adafactor has next to none.
    const int64_t least = plan.train.optimizer == kAdafactor ? 8 : plan.train.optimizer == kMuon ? 12 : 16;
    if (phase == Phase::kStep && plan.mesh.pp == 1 &&
        run_bytes(s) + host_bytes(s) < least * s.layout->trained_numel / group_size(plan.mesh, s.layout->state_group))
      return broken("states are missing");
  }
  return "";
}

inline std::string broken_rule(const Plan& plan) {
  if (has_error(validate(plan))) return "the plan is not valid";
  for (int stage = 0; stage < plan.mesh.pp; ++stage)
    if (std::string broken = broken_rule(plan, stage); !broken.empty()) return broken;
  return "";
}

}  // namespace distsetup
