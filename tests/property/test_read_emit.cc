// read(emit(plan)) = plan on what a target expresses: for random plans and every target with a configuration file, each field that is
// read back is the plan's, what is read can be written again and reads the same, and every field that a table writes comes back from
// some plan.
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <set>

#include "codegen/coverage.h"
#include "codegen/read/read.h"
#include "codegen/target.h"
#include "support/emitted.h"

using namespace distsetup;

namespace {

bool ends_in(const std::string& path, std::string_view end) {
  return path.size() >= end.size() && path.compare(path.size() - end.size(), end.size(), end) == 0;
}

bool is_config(const Artifact& artifact) {
  return artifact.path != "plan.json" &&
         (ends_in(artifact.path, ".json") || ends_in(artifact.path, ".yaml") || ends_in(artifact.path, ".toml"));
}

// Targets whose configuration file is written by a key table that is also read.
std::vector<std::string> structured_targets() {
  std::vector<std::string> out;
  const TemplateSet templates = embedded_templates();
  for (const std::string& target : target_names(templates)) {
    for (const auto& [path, text] : templates.files) {
      if (path == target + "/target.yaml" && text.find("keys.yaml") != std::string::npos) out.push_back(target);
    }
  }
  return out;
}

Plan random_cluster_plan(std::mt19937_64& random) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  PlanChoice choice = random_choice(random);
  if (pick(0, 1) == 1) choice.reshard = true;
  if (choice.sharding != Sharding::kDdp && pick(0, 1) == 1) choice.dp_replicate = 1;
  if (pick(0, 1) == 1) choice.recompute = pick(0, 1) == 1 ? Recompute::kFull : Recompute::kNone;
  Geometry geometry = tiny_geometry();
  geometry.name = "llama3_8b";
  geometry.hub_id = "meta-llama/Meta-Llama-3-8B";
  geometry.layer_class = "LlamaDecoderLayer";
  Plan plan = make_test_plan(geometry, choice);
  plan.hardware.gpu = "h100_sxm";
  plan.hardware.accelerator = Accelerator::kCuda;
  plan.hardware.nodes = choice.dp_replicate;
  plan.hardware.gpus_per_node = choice.dp_shard;
  if (pick(0, 3) == 0) plan.offload.optimizer = OffloadPlace::kHost;
  if (plan.offload.optimizer == OffloadPlace::kHost && pick(0, 1) == 1) plan.offload.parameters = OffloadPlace::kHost;
  plan.precision.compute = pick(0, 3) == 0 ? Precision::kF32 : Precision::kBf16;
  plan.train.steps = pick(1, 5) * 100;
  plan.train.warmup_steps = pick(0, 50);
  plan.train.learning_rate = pick(1, 9) * 1e-5;
  plan.train.min_learning_rate = plan.train.learning_rate / 10;
  plan.train.weight_decay = pick(0, 2) * 0.05;
  plan.train.grad_clip = pick(0, 2) * 0.5;
  plan.train.seed = pick(0, 99);
  plan.checkpoint.every_steps = pick(1, 9) * 10;
  plan.checkpoint.keep = pick(2, 5);
  plan.inputs_digest = std::string(64, 'a');
  return plan;
}

// Two plans that a tool writes the same text for; which one is read is stated in templates/README.md.
bool is_merged(const Plan& plan, const std::string& field) {
  const bool keeps = plan.strategy.sharding == Sharding::kZero3 && !plan.strategy.reshard_after_forward;
  if (keeps && (field == "strategy.sharding" || field == "strategy.reshard_after_forward")) return true;
  // The trainer that a file is for is read from its kind; the plan here was made for the bundled one.
  return field == "strategy.trainer" || field == "model.family";
}

ReadFields read_all(const Artifacts& artifacts, const std::string& target) {
  std::vector<Reading> readings;
  for (const Artifact& artifact : artifacts) {
    if (!is_config(artifact)) continue;
    const Result<std::vector<Reading>> read = read_config(embedded_templates(), artifact.text, artifact.path);
    INFO(target << " " << artifact.path << "\n" << artifact.text << messages(read.diagnostics));
    REQUIRE(read.ok());
    for (const Reading& one : *read) {
      for (const LostKey& lost : one.lost) {
        INFO(lost.key << " = " << lost.text << ": " << lost.reason);
        CHECK((lost.reason.find("derives") != std::string::npos || lost.reason.find("'auto'") != std::string::npos ||
               lost.reason.find("not a key") == std::string::npos));
      }
      readings.push_back(one);
    }
  }
  const Result<ReadFields> merged = merge_readings(readings);
  INFO(target << messages(merged.diagnostics));
  REQUIRE(merged.ok());
  return *merged;
}

// Numbers by value: 0.1 and 0.1000000001 of a share of a share are one.
bool is_same_value(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return std::abs(a.get<double>() - b.get<double>()) <= 1e-9 * std::abs(b.get<double>());
  return field_text(a) == field_text(b);
}

}  // namespace

TEST_CASE("read and emit: what a target writes of a plan reads back as that plan") {
  const TemplateSet templates = embedded_templates();
  int num_targets = 0;
  for (const std::string& target : structured_targets()) {
    std::mt19937_64 random(7);
    int num_read = 0;
    std::set<std::string> seen;
    for (int i = 0; i < 12; ++i) {
      const Plan plan = random_cluster_plan(random);
      const Result<Artifacts> artifacts = emit(plan, target, {});
      if (!artifacts.ok()) continue;  // refused, with a reason: tests of each target
      if (std::none_of(artifacts->begin(), artifacts->end(), is_config)) continue;
      ++num_read;
      const ReadFields read = read_all(*artifacts, target);
      const Fields fields = fields_of(plan);
      for (const auto& [name, field] : read) {
        const Json& wanted = fields.find(name)->second;
        if (field.is_assumed || field.is_guess || wanted.is_null()) continue;
        seen.insert(name);
        if (is_merged(plan, name)) continue;
        INFO(target << " " << name << " from '" << field.key << "'\n" << dump_json(to_json(plan)).substr(0, 0));
        CAPTURE(field_text(field.value), field_text(wanted));
        CHECK(is_same_value(field.value, wanted));
      }
      const Result<Artifacts> again = emit_target(templates, target, {fields_to_write(read), nullptr, "", {}, true});
      INFO(target << messages(again.diagnostics));
      if (again.ok() && !again->empty()) {
        const ReadFields second = read_all(*again, target);
        for (const auto& [name, field] : read) {
          if (field.is_assumed || field.is_guess) continue;
          CAPTURE(target, name);
          const auto it = second.find(name);
          if (it != second.end() && !it->second.is_assumed) CHECK(is_same_value(it->second.value, field.value));
        }
      }
    }
    if (num_read == 0) continue;  // its configuration is inside a script
    ++num_targets;
    CAPTURE(target);
    CHECK(seen.size() >= 4);
  }
  CHECK(num_targets >= 10);
}
