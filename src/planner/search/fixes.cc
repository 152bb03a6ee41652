#include "planner/search/fixes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "base/quantity.h"
#include "plan/chunked_loss.h"
#include "plan/host_writer.h"
#include "plan/reference.h"
#include "planner/report/words.h"
#include "planner/resolve/adapters.h"
#include "planner/resolve/resolve_program.h"
#include "planner/search/answer.h"
#include "planner/search/make_plan.h"

namespace distsetup {
namespace {

class Fixer {
 public:
  Fixer(const Problem& problem, const Plan& plan) : problem_(problem), plan_(plan) {}

  std::vector<Fix> run() {
    micro_batch();
    recompute();
    whole_gradients();
    loss();
    reference();
    sharding();
    everything_searched();
    more_gpus();
    shorter_sequences();
    other_gpus();
    host_memory();
    adapters();
    frozen_weights();
    std::stable_sort(fixes_.begin(), fixes_.end(), [](const Fix& a, const Fix& b) {
      return a.needs != b.needs ? a.needs < b.needs : a.seconds_per_token < b.seconds_per_token;
    });
    return std::move(fixes_);
  }

 private:
  // Solves on the plan's own number of nodes unless the change says otherwise.
  std::optional<Plan> attempt(const std::function<void(Problem&)>& change) {
    Problem p = problem_;
    p.node_counts = {plan_.hardware.nodes};
    p.base.data.files.clear();
    change(p);
    Diagnostics why;
    std::optional<Plan> plan = solve(p, why, Shortfall::kSkip);
    if (!plan.has_value() || !is_answer(*plan)) return std::nullopt;
    return plan;
  }

  void propose(std::string flags, const Plan& plan, Fix::Needs needs = Fix::Needs::kNothing) {
    const auto per_token = [](const Plan& p) { return p.time.step_s / static_cast<double>(tokens_per_step(p)); };
    Fix fix;
    fix.flags = std::move(flags);
    fix.needs = needs;
    fix.effect = fmt::format("{} per {}", format_bytes(plan.memory.device_bytes), rank_word(plan.hardware));
    if (plan.time.step_s > 0) {
      fix.seconds_per_token = per_token(plan);
      fix.effect += plan_.time.step_s > 0 ? fmt::format(", {:.2f}× the step time per token", per_token(plan) / per_token(plan_)) : "";
    }
    fixes_.push_back(std::move(fix));
  }

  void micro_batch() {
    if (problem_.micro_batch <= 1) return;
    for (int64_t micro = problem_.micro_batch - 1; micro >= 1; --micro) {
      if (problem_.micro_batch % micro != 0) continue;
      const auto plan = attempt([&](Problem& p) {
        p.micro_batch = micro;
        if (p.gradient_accumulation > 0) p.gradient_accumulation *= problem_.micro_batch / micro;
      });
      if (!plan.has_value()) continue;
      propose(problem_.gradient_accumulation > 0 ? fmt::format("--micro-batch {} --gradient-accumulation {}", micro,
                                                               problem_.gradient_accumulation * problem_.micro_batch / micro)
                                                 : fmt::format("--micro-batch {}", micro),
              *plan);
      return;
    }
  }

  void recompute() {
    if (problem_.recomputes.size() != 1) return;
    for (const Recompute policy : searched_recomputes()) {
      if (recompute_order(policy) <= recompute_order(problem_.recomputes.front())) continue;
      const auto plan = attempt([&](Problem& p) { p.recomputes = {policy}; });
      if (!plan.has_value()) continue;
      propose(fmt::format("--recompute {}", name(policy)), *plan);
      return;
    }
  }

  void whole_gradients() {
    const bool is_whole = problem_.setup.software.accumulates_whole && !problem_.setup.sync_each_batch;
    if (!is_whole || !problem_.trainer.has("sync_each_batch") || plan_.gradient_accumulation <= 1) return;
    const auto plan = attempt([](Problem& p) { p.setup.sync_each_batch = p.base.strategy.sync_each_batch = true; });
    if (plan.has_value()) propose("--sync-each-batch", *plan);
  }

  void loss() {
    const bool was_tried = problem_.may_chunk_loss || problem_.base.strategy.loss_head == kChunkedLoss;
    Plan chunked = plan_;  // for this alone
    chunked.strategy.loss_head = kChunkedLoss;
    if (!is_native(plan_) || was_tried || !chunked_loss_problem(chunked).empty()) return;
    const auto plan = attempt([](Problem& p) { p.base.strategy.loss_head = kChunkedLoss; });
    if (plan.has_value()) propose(fmt::format("--loss-head {}", kChunkedLoss), *plan);
  }

  void reference() {
    if (!is_native(plan_) || !runs_reference(problem_.base.train)) return;
    const auto plan = attempt([](Problem& p) { p.base.train.preference.reference = "cached"; });
    if (plan.has_value()) propose("--reference cached", *plan);
  }

  void sharding() {
    if (problem_.shardings.size() != 1 && problem_.dp_shard == 0) return;
    for (const Sharding wanted : {Sharding::kZero1, Sharding::kZero2, Sharding::kZero3}) {
      if (problem_.shardings.size() == 1 && static_cast<int>(wanted) < static_cast<int>(problem_.shardings.front())) continue;
      const auto plan = attempt([&](Problem& p) {
        p.shardings = {wanted};
        p.reshard_after_forward = {1, 0};
        p.dp_shard = p.dp_replicate = 0;
        p.hybrid = false;
      });
      if (!plan.has_value()) continue;
      const bool whole = plan->mesh.dp_replicate == 1;
      propose(fmt::format("--sharding {}{}", name(wanted), whole ? "" : fmt::format(" --dp-shard {}", plan->mesh.dp_shard)), *plan);
      return;
    }
  }

  // Several pins at once: only when no single one was enough.
  void everything_searched() {
    if (!fixes_.empty()) return;
    const bool pinned =
        problem_.shardings.size() == 1 || problem_.recomputes.size() == 1 || problem_.micro_batch > 0 || problem_.dp_shard > 0;
    if (!pinned) return;
    const auto plan = attempt([](Problem& p) {
      p.shardings = {Sharding::kDdp, Sharding::kZero1, Sharding::kZero2, Sharding::kZero3};
      p.reshard_after_forward = {1, 0};
      p.recomputes = searched_recomputes();
      p.dp_shard = p.dp_replicate = 0;
      p.hybrid = false;
      p.micro_batch = p.gradient_accumulation = 0;
    });
    if (!plan.has_value()) return;
    const RecomputePlan& recompute = plan->recompute;
    const std::string policy =
        recompute.every_k > 0 ? fmt::format("every_k:{}", recompute.every_k) : std::string(name(recompute.policy));
    std::string flags = fmt::format("--sharding {} --recompute {} --micro-batch {} --gradient-accumulation {}",
                                    name(plan->strategy.sharding), policy, plan->micro_batch, plan->gradient_accumulation);
    if (plan->mesh.dp_replicate > 1 && plan->mesh.dp_shard > 1) flags += fmt::format(" --dp-shard {}", plan->mesh.dp_shard);
    propose(std::move(flags), *plan);
  }

  void more_gpus() {
    const int per_node = plan_.hardware.gpus_per_node;
    if (plan_.hardware.nodes == 1 && per_node < 8) {
      for (int gpus = per_node + 1; gpus <= 8; ++gpus) {
        const auto plan = attempt([&](Problem& p) {
          p.base.hardware.gpus_per_node = gpus;
          p.base.hardware.network_bytes_per_s *= static_cast<double>(per_node) / gpus;
          if (p.hybrid || p.dp_shard == per_node) p.dp_shard = 0;
          p.hybrid = false;
        });
        if (!plan.has_value()) continue;
        propose(fmt::format("--gpus {}", gpus), *plan, Fix::Needs::kMoreGpus);
        return;
      }
    }
    const auto plan = attempt([&](Problem& p) {
      p.node_counts = node_counts_from(plan_.hardware.nodes + 1);
      if (!p.hybrid && p.dp_shard == plan_.mesh.world()) p.dp_shard = 0;
    });
    if (plan.has_value()) propose(fmt::format("--nodes {}", plan->hardware.nodes), *plan, Fix::Needs::kMoreGpus);
  }

  void shorter_sequences() {
    for (int64_t length = plan_.train.sequence_length / 2; length >= 512; length /= 2) {
      const auto plan = attempt([&](Problem& p) { p.base.train.sequence_length = length; });
      if (!plan.has_value()) continue;
      propose(fmt::format("--sequence-length {}", length), *plan);
      return;
    }
  }

  void other_gpus() {
    for (const HardwarePlan& hardware : problem_.larger_hardware) {
      const auto plan = attempt([&](Problem& p) {
        const int per_node = p.base.hardware.gpus_per_node;
        p.base.hardware = hardware;
        p.base.hardware.network_bytes_per_s *= static_cast<double>(hardware.gpus_per_node) / per_node;
        p.base.hardware.gpus_per_node = per_node;
      });
      if (!plan.has_value()) continue;
      propose(fmt::format("--gpu {}", hardware.gpu), *plan, Fix::Needs::kOtherGpus);
      return;
    }
  }

  void host_memory() {
    if (problem_.base.offload.parameters != OffloadPlace::kNone) return;
    const TrainerFacts& facts = problem_.trainer;
    const bool together = facts.has("offload_together"), optimizer_moved = problem_.base.offload.optimizer != OffloadPlace::kNone;
    for (const bool parameters : {false, true}) {
      if (!facts.has(parameters ? "offload_parameters" : "offload_optimizer") || (!parameters && (together || optimizer_moved)))
        continue;
      if (is_native(plan_) && !optimizer_moved && !can_move_optimizer()) continue;
      const auto plan = attempt([&](Problem& p) {
        if (!optimizer_moved) p.setup.offload.optimizer = OffloadPlace::kHost;
        if (parameters) p.setup.offload.parameters = OffloadPlace::kHost;
        p.base.offload = p.setup.offload;
      });
      if (!plan.has_value()) continue;
      std::vector<std::string> flags;
      if (parameters) flags.emplace_back("--offload-parameters host");
      if (!together && !optimizer_moved) flags.emplace_back("--offload-optimizer host");
      propose(fmt::format("{}", fmt::join(flags, " ")), *plan);
      return;
    }
  }

  // The bundled trainer's, of this plan.
  bool can_move_optimizer() const {
    Plan moved = plan_;
    moved.offload.optimizer = OffloadPlace::kHost;
    return offload_problem(moved).message.empty();
  }

  void adapters() {
    if (problem_.base.train.method == "pretrain" || problem_.base.train.finetune != "full") return;
    for (const char* kind : {"lora", "qlora"}) {
      if (!problem_.trainer.has(kind)) continue;
      const auto plan = attempt([&](Problem& p) { set_adapters(p.setup, kind); });
      if (!plan.has_value()) continue;
      propose(fmt::format("--finetune {}", kind), *plan);
      return;
    }
  }

  // Of a trainer whose adapters stand beside fp32 weights; others load those in 16 bits.
  void frozen_weights() {
    if (problem_.setup.finetune != Finetune::kLora || problem_.setup.frozen_dtype != Dtype::kF32) return;
    if (problem_.setup.compute == Dtype::kF32) return;
    const auto plan = attempt([](Problem& p) {
      store_in_16_bits(p);
      p.setup.frozen_dtype = Dtype::kBf16;
    });
    if (plan.has_value()) propose("--master-dtype bf16", *plan);
  }

  const Problem& problem_;
  const Plan& plan_;
  std::vector<Fix> fixes_;
};

}  // namespace

std::vector<Fix> find_fixes(const Problem& problem, const Plan& plan) { return Fixer(problem, plan).run(); }

}  // namespace distsetup
