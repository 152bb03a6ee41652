#include "planner/resolve/resolve_offload.h"

#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "plan/host_writer.h"
#include "planner/native/plan_rates.h"
#include "planner/time/embedded_calibration.h"

namespace distsetup {
namespace {

// FSDP's CPU offload (CPUOffload, CPUOffloadPolicy) is one switch: the optimizer runs where the shards are.
void move_together(Resolving& r, OffloadPlan& o) {
  if (!r.problem.trainer.has("offload_together") || o.optimizer == o.parameters) return;
  if (o.optimizer == OffloadPlace::kNvme || o.parameters == OffloadPlace::kNvme) return;  // refused by itself
  if (o.parameters == OffloadPlace::kNone || r.spec.find("parallel.offload.optimizer") != nullptr) {
    r.fail(
        code::kUnsupportedFeature, "parallel.offload.optimizer",
        fmt::format("{} moves parameters, gradients and optimizer state to the host together, not one alone", r.problem.trainer.label),
        "--offload-parameters host --offload-optimizer host");
    return;
  }
  o.optimizer = o.parameters;
  r.problem.base.assumptions.push_back("optimizer state on the host: FSDP moves it with the parameters");
}

// What is trained lies where the optimizer leaves it.
void move_optimizer_too(Resolving& r) {
  OffloadPlan& o = r.plan().offload;
  if (o.optimizer != OffloadPlace::kNone || r.spec.find("parallel.offload.optimizer") != nullptr) return;
  if (!tuning_of(r.plan().train).trains_all()) return;
  o.optimizer = OffloadPlace::kHost;
  r.assume("the optimizer is on the host as well: that is where it leaves the parameters");
}

// One drive of a desktop reaches a quarter of what is assumed.
void say_disk(Resolving& r) {
  const OffloadPlan& o = r.problem.setup.offload;
  if ((o.optimizer == OffloadPlace::kNvme || o.parameters == OffloadPlace::kNvme) && r.problem.setup.nvme_bytes_per_s == 0)
    r.assume(
        fmt::format("{:g} GB/s of NVMe per node (--nvme-bandwidth states another)", 1e-9 * disk_rate(0, 1, embedded_calibration())));
}

// DeepSpeed's twin-flow: what does not move is updated by torch.optim.AdamW on the device, what moves by DeepSpeedCPUAdam
// (deepspeed/runtime/zero/stage3.py: "Hybrid Optimizer Only Supports DeepSpeedCPUAdam").
void read_optimizer_ratio(Resolving& r, OffloadPlan& o) {
  constexpr std::string_view kPath = "parallel.offload.optimizer_ratio";
  const auto ratio = r.spec.number(kPath);
  if (!ratio.has_value() || *ratio == 1) return;
  if (!r.require("offload_optimizer_ratio", kPath, "an optimizer of which a part is on the host")) return;
  if (o.optimizer != OffloadPlace::kHost) {
    r.fail(code::kUnsupportedFeature, kPath,
           fmt::format("a share of {} of the optimizer moves, and offload.optimizer says '{}'", *ratio, name(o.optimizer)),
           "--offload-optimizer host, or leave the share out");
    return;
  }
  if (const std::string& optimizer = r.plan().train.optimizer; optimizer != "adamw")
    r.fail(code::kUnsupportedFeature, kPath,
           fmt::format("DeepSpeed splits DeepSpeedCPUAdam alone between host and device, the optimizer is {}", optimizer),
           "--optimizer adamw, or leave the share out");
  o.optimizer_ratio = *ratio;
}

void read_pin_memory(Resolving& r, OffloadPlan& o) {
  constexpr std::string_view kPath = "parallel.offload.pin_memory";
  const auto pinned = r.spec.boolean(kPath);
  if (pinned.value_or(true)) return;
  if (!r.require("offload_pageable", kPath, "offload to memory that is not pinned")) return;
  if (o.optimizer == OffloadPlace::kNone && o.parameters == OffloadPlace::kNone) {
    r.said.push_back(warning(code::kConflict, r.spec.at(kPath), "nothing is offloaded, so there is nothing to pin",
                             "leave it out, or --offload-optimizer host"));
    return;
  }
  o.pin_memory = false;
}

}  // namespace

void resolve_native_offload(Resolving& r) {
  for (const auto& [what, place] : {std::pair{"optimizer", &OffloadPlan::optimizer}, std::pair{"parameters", &OffloadPlan::parameters},
                                    std::pair{"activations", &OffloadPlan::activations}}) {
    const std::string path = fmt::format("parallel.offload.{}", what);
    const auto text = r.spec.text(path);
    if (!text.has_value() || *text == "none") continue;
    r.plan().offload.*place = *text == "nvme" ? OffloadPlace::kNvme : OffloadPlace::kHost;
    if (place == &OffloadPlan::parameters) move_optimizer_too(r);
    Plan asked = r.plan();
    asked.mesh.pp = r.problem.pp;
    asked.strategy.sharding = r.problem.shardings.size() == 1 ? r.problem.shardings.front() : Sharding::kZero3;
    const OffloadProblem problem = offload_problem(asked);
    if (problem.message.empty()) continue;
    r.fail(code::kUnsupportedFeature, path, problem.message, problem.help);
    break;
  }
  if (const auto ratio = r.spec.number("parallel.offload.optimizer_ratio"); ratio.has_value() && *ratio != 1)
    r.fail(code::kUnsupportedFeature, "parallel.offload.optimizer_ratio",
           "the bundled trainer moves the whole optimizer or nothing of it",
           "leave the share out, or --trainer deepspeed --offload-optimizer host");
  if (!r.spec.boolean("parallel.offload.pin_memory").value_or(true))
    r.fail(code::kUnsupportedFeature, "parallel.offload.pin_memory", "the bundled trainer pins what it keeps on the host",
           "leave it out, or --trainer deepspeed");
  if (r.plan().offload.optimizer == OffloadPlace::kNvme)
    r.plan().host.disk_bytes_per_s = disk_rate(r.problem.setup.nvme_bytes_per_s, r.per_node, embedded_calibration());
  r.problem.setup.offload = r.plan().offload;
  say_disk(r);
}

void resolve_offload(Resolving& r) {
  OffloadPlan& o = r.problem.base.offload;
  const auto read = [&](std::string_view what, OffloadPlace& place) {
    const std::string path = fmt::format("parallel.offload.{}", what);
    const auto text = r.spec.text(path);
    if (!text.has_value() || *text == "none") return;
    place = *text == "nvme" ? OffloadPlace::kNvme : OffloadPlace::kHost;
    r.require(fmt::format("offload_{}", what), path, fmt::format("offload of {}", what));
    if (place == OffloadPlace::kNvme) r.require("offload_nvme", path, "offload to NVMe");
  };
  read("optimizer", o.optimizer);
  read("parameters", o.parameters);
  read("activations", o.activations);
  read_optimizer_ratio(r, o);
  read_pin_memory(r, o);
  move_together(r, o);
  r.problem.setup.offload = o;
  say_disk(r);
}

}  // namespace distsetup
