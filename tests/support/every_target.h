// What every target makes of a plan, for rules that hold of all emitted files. No refusal is skipped in silence: a target is written
// for some plan of these nodes, or stands in the table of refusals with its reason.
#pragma once
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/diagnostic_codes.h"
#include "support/emitted.h"

namespace distsetup {

struct EmittedTarget {
  std::string target;
  int nodes = 0;
  Plan plan;
  EmitOptions options;
  Artifacts files;
};

inline const std::map<std::pair<int, std::string>, std::string>& refusals_of_targets() {
  static const std::map<std::pair<int, std::string>, std::string> kRefusals = {
      {{4, "docker-compose"}, "starts containers on one machine"},
      {{4, "fine-tuning"}, "the file names no FSDP version"},
      {{4, "llama-stack"}, "starts torchrun on its own machine only"},
      {{4, "llama-stack-inline"}, "starts torchrun on its own machine only"},
  };
  return kRefusals;
}

namespace every_target {

inline Plan plan_for(const std::string& target, int nodes, int gpus, const char* method) {
  Plan plan = cluster_plan();
  plan.model.family = "llama";
  plan.model.hub_id = "meta-llama/Meta-Llama-3-8B";
  plan.hardware.nodes = nodes;
  plan.hardware.gpus_per_node = gpus;
  plan.mesh.dp_shard = nodes * gpus;
  plan.train.global_batch = 2 * 4 * nodes * gpus;
  plan.train.method = method;
  plan.train.grad_clip = target == "lightning" ? 0 : 1;
  plan.recompute.policy = Recompute::kFull;
  if (gpus == 1) plan.strategy.sharding = Sharding::kDdp;
  if (target == "openrlhf-flags") plan.strategy.trainer = "fsdp2";
  return plan;
}

// The first plan that the target takes: method and number of GPUs differ between targets.
inline bool emit_first(const std::string& target, int nodes, std::vector<EmittedTarget>& out) {
  Diagnostics refused;
  for (const char* method : {"pretrain", "sft", "dpo"}) {
    for (const int gpus : {8, 1}) {
      if (nodes > 1 && gpus == 1) continue;
      EmittedTarget one{target, nodes, plan_for(target, nodes, gpus, method), {}, {}};
      one.options.job.settings.set("container.image", "registry.example/image:1");
      if (nodes > 1) one.options.job.settings.set("hosts", Json::array({"n0", "n1", "n2", "n3"}));
      if (nodes > 1 && target.rfind("kubernetes", 0) == 0)
        one.options.job.settings.set("kubernetes.queue", "gpus");  // gang scheduling
      Result<Artifacts> written = emit(one.plan, target, one.options);
      if (written.ok()) {
        one.files = std::move(*written);
        out.push_back(std::move(one));
        return true;
      }
      refused = written.diagnostics;
    }
  }
  const auto expected = refusals_of_targets().find({nodes, target});
  CAPTURE(target, nodes, messages(refused));
  REQUIRE(expected != refusals_of_targets().end());
  CHECK(contains(messages(refused), expected->second));
  for (const Diagnostic& why : refused) CHECK((why.severity != Severity::kError || why.code == code::kNoForm));
  return false;
}

}  // namespace every_target

// A unit file is no kind of lint's, and a request is completed by the start.sh beside it.
inline bool is_for_lint(const Artifact& file) {
  const std::string& path = file.path;
  const bool is_unit_file = path.size() > 8 && path.compare(path.size() - 8, 8, ".service") == 0;
  return !is_unit_file && path != "request.json";
}

// Every target's files for a plan of 1 or 4 nodes.
inline const std::vector<EmittedTarget>& emit_every_target(int nodes) {
  static std::map<int, std::vector<EmittedTarget>> kept;
  if (const auto it = kept.find(nodes); it != kept.end()) return it->second;
  std::vector<EmittedTarget> all;
  for (const std::string& target : target_names(embedded_templates())) {
    const bool is_written = every_target::emit_first(target, nodes, all);
    CAPTURE(target, nodes);
    CHECK(is_written == (refusals_of_targets().count({nodes, target}) == 0));  // a refusal in the table that is none any more
  }
  return kept[nodes] = std::move(all);
}

}  // namespace distsetup
