// read(emit(plan)) = plan on what a target expresses. For every target whose configuration a key table writes (also where it stands in
// launch.sh as arguments): at least a hundred random plans that it takes, each field that is read back is the plan's, what is read can
// be written again and reads the same, and every field that a row of its tables writes comes back from some plan.
#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <map>
#include <set>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/value.h"
#include "base/value_yaml.h"
#include "codegen/emit.h"
#include "codegen/read/read.h"
#include "codegen/tables/coverage.h"
#include "codegen/tables/emit_target.h"
#include "codegen/tables/key_walk.h"
#include "codegen/tables/load_table.h"
#include "model/presets.h"
#include "support/emitted.h"
#include "support/property.h"

using namespace distsetup;

namespace {

constexpr int kPlansPerTarget = 100, kTries = 20000;

bool ends_in(const std::string& path, std::string_view end) {
  return path.size() >= end.size() && path.compare(path.size() - end.size(), end.size(), end) == 0;
}

// A target whose settings key tables write: the file of each table, or the script that has its lines.
struct WrittenTarget {
  std::string target;
  std::vector<std::pair<std::string, std::string>> tables;  // (file, table)
  Fields set;                                               // what target.yaml sets
};

bool is_script(const std::string& path) { return ends_in(path, ".sh"); }

std::vector<WrittenTarget> written_targets(const TemplateSet& templates) {
  std::vector<WrittenTarget> out;
  for (const std::string& target : target_names(templates)) {
    WrittenTarget one{target, {}, {}};
    for (const auto& [path, text] : templates.files) {
      if (path != target + "/target.yaml") continue;
      const Result<Value> root = parse_yaml(text, path);
      REQUIRE(root.ok());
      const Value* set = root->find("set");
      for (const auto& [name, value] : set == nullptr ? std::vector<Value::Entry>{} : set->entries) {
        const Result<bool> truth = as_bool(value);
        const Result<int64_t> number = as_int(value);
        one.set[name] = number.ok() ? Json(*number) : truth.ok() ? Json(*truth) : Json(value.text);
      }
      for (const Value& file : root->find("files")->items) {
        const std::string output = file.find("output")->text;
        const auto add = [&](const std::string& table) {
          one.tables.emplace_back(output, table.find('/') == std::string::npos ? target + "/" + table : table);
        };
        if (const Value* keys = file.find("keys")) add(keys->text);
        const Value* values = file.find("values");
        for (const auto& [name, from] : values == nullptr ? std::vector<Value::Entry>{} : values->entries) {
          // Directives of a job, what a program takes from Python and the bundled trainer's own flags are tested apart.
          if (const Value* keys = from.find("keys"); keys != nullptr && output == "launch.sh") add(keys->text);
        }
      }
    }
    if (!one.tables.empty()) out.push_back(std::move(one));
  }
  return out;
}

class PlanMaker {
 public:
  PlanMaker() {
    const Presets presets = *load_presets({});
    dense_ = *find_model(presets, "llama3_8b", {});
    experts_ = *find_model(presets, "qwen3_30b_a3b", {});
  }

  // Mostly plain, so that a target with few forms takes it too.
  Plan make() {
    Plan plan;
    plan.verdict = Verdict::kFits;
    plan.model = one_in(6) ? experts_ : dense_;
    plan.hardware.gpu = "h100_sxm";
    plan.hardware.accelerator = Accelerator::kCuda;
    plan.hardware.nodes = one_in(2) ? 1 : pick({2, 4});
    plan.hardware.gpus_per_node = 8;
    plan.strategy.trainer = pick<std::string>({"native", "native", "fsdp2", "fsdp1", "deepspeed", "megatron"});
    plan.strategy.sharding = static_cast<Sharding>(number(0, 3));
    mesh(plan);
    if (plan.strategy.sharding == Sharding::kZero3) plan.strategy.reshard_after_forward = !one_in(4);
    plan.strategy.sequence_parallel = plan.mesh.tp > 1 && one_in(2);
    plan.strategy.cp_method = pick<std::string>({"ring", "allgather", "ulysses"});
    plan.strategy.compile = one_in(6);
    plan.micro_batch = number(1, 4);
    plan.gradient_accumulation = number(1, 8);
    plan.recompute.policy =
        pick({Recompute::kNone, Recompute::kFull, Recompute::kNone, Recompute::kFull, Recompute::kSelective, Recompute::kEveryK});
    if (plan.recompute.policy == Recompute::kEveryK) plan.recompute.every_k = number(2, 4);
    offload(plan);
    plan.precision.compute = one_in(5) ? Dtype::kF32 : Dtype::kBf16;
    train(plan);
    plan.checkpoint.directory = pick<std::string>({"checkpoints", "/scratch/run 1"});
    plan.checkpoint.every_steps = number(1, 9) * 10;
    plan.checkpoint.keep = number(2, 5);
    plan.launch.init_timeout_s = number(1, 20) * 60;
    plan.launch.collective_timeout_s = number(1, 60) * 60;
    plan.inputs_digest = std::string(64, 'a');
    return plan;
  }

 private:
  int number(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool one_in(int n) { return number(1, n) == 1; }
  template <class T>
  T pick(std::initializer_list<T> from) {
    return *(from.begin() + number(0, static_cast<int>(from.size()) - 1));
  }

  void mesh(Plan& plan) {
    Mesh& mesh = plan.mesh;
    const int world = plan.hardware.nodes * plan.hardware.gpus_per_node;
    if (one_in(5)) mesh.tp = pick({2, 4});
    if (one_in(8)) mesh.cp = 2;
    if (one_in(6)) mesh.pp = 2;
    if (mesh.pp > 1 && one_in(3)) plan.strategy.virtual_stages = 2;
    const int data_parallel = world / (mesh.pp * mesh.tp * mesh.cp);
    if (data_parallel == 0) {
      mesh.tp = mesh.cp = mesh.pp = 1;
      plan.strategy.virtual_stages = 1;
    }
    const int left = std::max(1, data_parallel == 0 ? world : data_parallel);
    if (plan.model.num_experts > 0 && one_in(2)) mesh.ep = std::min(left, 4);
    mesh.dp_replicate = plan.strategy.sharding == Sharding::kDdp ? left
                        : one_in(4) && left > 1                  ? std::min(left, plan.hardware.nodes)
                                                                 : 1;
    mesh.dp_shard = left / mesh.dp_replicate;
    const bool whole = plan.strategy.sharding == Sharding::kZero3 && mesh.dp_replicate == 1 && mesh.dp_shard % 2 == 0;
    if (whole && one_in(4)) plan.strategy.hpz = mesh.dp_shard / 2;
  }

  void offload(Plan& plan) {
    if (one_in(4)) plan.offload.optimizer = OffloadPlace::kHost;
    if (plan.offload.optimizer == OffloadPlace::kHost && one_in(2)) plan.offload.parameters = OffloadPlace::kHost;
    if (one_in(12)) plan.offload.optimizer = plan.offload.parameters = OffloadPlace::kNvme;
    if (one_in(10)) plan.offload.activations = OffloadPlace::kHost;
  }

  void train(Plan& plan) {
    TrainPlan& train = plan.train;
    train.method = pick<std::string>({"pretrain", "sft", "dpo"});
    if (train.method == "sft" && one_in(3)) {
      train.finetune = pick<std::string>({"lora", "qlora"});
      train.lora_rank = number(1, 4) * 8;
      train.lora_dropout = number(0, 2) * 0.05;
      train.lora_targets =
          pick<std::vector<std::string>>({{"query", "value"}, {"query", "key", "value", "output", "gate", "up", "down"}});
    }
    train.sequence_length = number(1, 8) * 512;
    train.global_batch = plan.micro_batch * plan.gradient_accumulation * plan.mesh.dp_replicate * plan.mesh.dp_shard;
    train.steps = number(1, 5) * 100;
    train.warmup_steps = number(0, 50);
    train.optimizer = one_in(5) ? pick<std::string>({"adamw_8bit", "sgd", "adafactor", "muon"}) : "adamw";
    train.learning_rate = number(1, 9) * 1e-5;
    train.min_learning_rate = train.learning_rate / 10;
    train.weight_decay = number(0, 2) * 0.05;
    train.beta2 = pick({0.95, 0.999});
    train.grad_clip = number(0, 2) * 0.5;
    train.seed = number(0, 99);
  }

  Draw random_;
  Geometry dense_, experts_;
};

// Two plans that a tool writes the same text for; which one is read is stated in templates/README.md.
bool is_merged(const Plan& plan, const std::string& field) {
  const bool keeps = plan.strategy.sharding == Sharding::kZero3 && !plan.strategy.reshard_after_forward;
  if (keeps && (field == "strategy.sharding" || field == "strategy.reshard_after_forward")) return true;
  // The trainer that a file is for is read from its kind; the plan may be of another that the target takes too.
  return field == "strategy.trainer" || field == "model.family";
}

// `known`: the file's table is named, not found. Every key is carried, a constant, or lost with a reason; none is unknown.
ReadFields read_all(const TemplateSet& templates, const Artifacts& artifacts, const WrittenTarget& written, bool known) {
  std::vector<Reading> readings;
  for (const Artifact& artifact : artifacts) {
    const auto of = std::find_if(written.tables.begin(), written.tables.end(),
                                 [&artifact](const auto& table) { return table.first == artifact.path; });
    if (of == written.tables.end()) continue;
    // LLaMA-Factory's write.yaml says a switch in two ways, and is not what reads its files.
    const bool is_named = known && !is_script(artifact.path) && of->second != "llamafactory/write.yaml";
    const Result<std::vector<Reading>> read = read_config(templates, artifact.text, artifact.path, is_named ? of->second : "");
    if (!read.ok()) RC_LOG() << written.target << " " << artifact.path << "\n" << artifact.text << messages(read.diagnostics);
    RC_ASSERT(read.ok());
    for (const Reading& one : *read) {
      for (const LostKey& lost : one.lost) {
        const bool is_unknown =
            lost.reason.find("not a key") != std::string::npos || lost.reason.find("together with the rest") != std::string::npos;
        if (is_unknown) RC_FAIL(lost.key + " = " + lost.text + ": " + lost.reason);
      }
      readings.push_back(one);
    }
  }
  const Result<ReadFields> merged = merge_readings(readings);
  if (!merged.ok()) RC_FAIL(written.target + messages(merged.diagnostics));
  return *merged;
}

// Numbers by value: 0.1 and 0.1000000001 of a share of a share are one.
bool is_same_value(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return std::abs(a.get<double>() - b.get<double>()) <= 1e-9 * std::abs(b.get<double>());
  return field_text(a) == field_text(b);
}

// What a derived field that a row writes comes back as (settle_derived); "" = it is the plan's own matter.
std::string comes_back_as(const std::string& field) {
  static const std::map<std::string, std::string> kBack = {{"derived.zero_stage", "strategy.sharding"},
                                                           {"derived.offload", "offload.optimizer"},
                                                           {"derived.pipeline_batch", "micro_batch"},
                                                           {"derived.save_interval", "checkpoint.every_steps"},
                                                           {"derived.warmup_ratio", "train.warmup_steps"},
                                                           {"derived.betas", "train.beta2"},
                                                           {"derived.mesh_2d", "mesh.dp_shard"},
                                                           {"derived.positive_seed", "train.seed"},
                                                           {"derived.timeout_minutes", "launch.collective_timeout_s"},
                                                           {"derived.min_learning_rate_factor", "train.min_learning_rate"}};
  if (const auto it = kBack.find(field); it != kBack.end()) return it->second;
  // options.*: how the file is written; model.*: read as its name at the hub where it has one; derived.world: nodes × GPUs.
  return field.compare(0, 8, "derived.") == 0 || field.compare(0, 8, "options.") == 0 || field.compare(0, 4, "job.") == 0 ? "" : field;
}

// WrittenTarget as what only the model, or another file, turns back into the field.
bool is_one_way(const std::string& target, const std::string& field) {
  // Interleaved stages are said by layers per stage; the learning rate that the factor is of stands in plan_config.py.
  if (field == "strategy.virtual_stages") return target == "torchtitan" || target == "torchtitan-0.2";
  return field == "derived.min_learning_rate_factor" && target == "torchtitan";
}

Fields fields_for(const Plan& plan, const WrittenTarget& written) {
  Fields fields = fields_of(plan);
  set_field(fields, "options.fsdp_version", 2);
  set_field(fields, "options.checkpoint", "sharded");
  set_field(fields, "options.nvme_path", "/local/scratch");
  for (const auto& [name, value] : written.set) set_field(fields, name, value);
  return fields;
}

// The fields that rows wrote into these files.
std::set<std::string> fields_written(const TemplateSet& templates, const Artifacts& artifacts, const WrittenTarget& written,
                                     const Fields& fields) {
  std::set<std::string> out;
  for (const auto& [file, path] : written.tables) {
    const bool is_there = std::any_of(artifacts.begin(), artifacts.end(), [&f = file](const Artifact& one) { return one.path == f; });
    const auto table = load_key_table(templates, path, {});
    if (!is_there || !table.ok()) continue;
    const Result<Entries> entries = walk_keys(**table, fields, {});
    for (const auto& entry : entries.ok() ? *entries : Entries{}) {
      if (is_script(file) && entry.second == false) continue;  // a switch that is not there
      const auto row = std::find_if((*table)->rows.begin(), (*table)->rows.end(), [&](const KeyRow& one) {
        return one.key == entry.first && holds(one.when, fields) && (one.unless.empty() || !holds(one.unless, fields));
      });
      if (row != (*table)->rows.end() && !row->field.empty() && !fields.find(row->field)->second.is_null()) out.insert(row->field);
    }
  }
  return out;
}

}  // namespace

TEST_CASE("read and emit: what a target writes of a plan reads back as that plan", "[all]") {
  const TemplateSet templates = embedded_templates();
  const std::vector<WrittenTarget> targets = written_targets(templates);
  CHECK(targets.size() >= 18);
  int num_with_files = 0;
  PlanMaker maker;
  for (const WrittenTarget& written : targets) {
    const auto start = std::chrono::steady_clock::now();
    int num_read = 0, tries = 0, num_files = 0;
    std::set<std::string> seen, wrote;
    const bool has_script =
        std::any_of(written.tables.begin(), written.tables.end(), [](const auto& t) { return is_script(t.first); });
    const auto reads_back = [&] {
      ++tries;
      const Plan plan = maker.make();
      const Fields fields = fields_for(plan, written);
      const Result<Artifacts> artifacts = emit_target(templates, written.target, {fields, nullptr, "", {}, !has_script});
      if (!artifacts.ok()) {  // refused, with a reason: tests of each target
        for (const Diagnostic& why : artifacts.diagnostics) RC_ASSERT(why.code != code::kTemplate);
        RC_DISCARD("refused");
      }
      const ReadFields read = read_all(templates, *artifacts, written, num_read >= 4);
      ++num_read;
      num_files += static_cast<int>(std::count_if(artifacts->begin(), artifacts->end(), [&written](const Artifact& one) {
        return std::any_of(written.tables.begin(), written.tables.end(), [&one](const auto& t) { return t.first == one.path; });
      }));
      wrote.merge(fields_written(templates, *artifacts, written, fields));
      for (const auto& [name, field] : read) {
        const Json& wanted = fields.find(name)->second;
        if (field.is_assumed || field.is_guess || wanted.is_null()) continue;
        seen.insert(name);
        const bool is_hub_name = name == "model.name" && field.value == plan.model.hub_id;
        const bool is_raised = name == "train.seed" && wanted == 0 && field.value == 1;  // Megatron refuses 0
        if (is_merged(plan, name) || is_hub_name || is_raised || is_same_value(field.value, wanted)) continue;
        RC_FAIL(name + " from '" + field.key + "' is " + field_text(field.value) + ", expected " + field_text(wanted));
      }
      if (has_script || num_read > 20) return;
      const Result<Artifacts> again = emit_target(templates, written.target, {fields_to_write(read), nullptr, "", {}, true});
      if (!again.ok() || again->empty()) return;
      const ReadFields second = read_all(templates, *again, written, true);
      for (const auto& [name, field] : read) {
        const auto it = second.find(name);
        if (field.is_assumed || field.is_guess || it == second.end() || it->second.is_assumed) continue;
        if (!is_same_value(it->second.value, field.value))
          RC_FAIL(name + " is " + field_text(it->second.value) + " the second time, expected " + field_text(field.value));
      }
    };
    CAPTURE(written.target);
    check_property(kPlansPerTarget, reads_back, kTries / kPlansPerTarget);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::cout << written.target << ": " << num_read << " of " << tries << " plans, " << wrote.size() << " fields, " << seconds
              << " s\n";
    num_with_files += num_files >= kPlansPerTarget ? 1 : 0;
    for (const std::string& field : wrote) {
      const std::string back = comes_back_as(field);
      INFO("a row writes " << field << ", and no plan of " << num_read << " reads it back");
      if (!back.empty() && !is_one_way(written.target, field)) CHECK(seen.count(back) == 1);
    }
  }
  // The others write files for settings of a job alone.
  CHECK(num_with_files >= 18);
}

TEST_CASE("read and emit: nodes and GPUs of a launcher's file read back") {
  const TemplateSet templates = embedded_templates();
  PlanMaker maker;
  const std::map<std::string, std::string> files = {{"slurm", "job.sbatch"},
                                                    {"torchrun", "launch.sh"},
                                                    {"kubernetes", "job.yaml"},
                                                    {"kubernetes-jobset", "jobset.yaml"},
                                                    {"kubernetes-pytorchjob", "pytorchjob.yaml"},
                                                    {"kubernetes-trainjob", "trainjob.yaml"}};
  for (const auto& [target, file] : files) {
    CAPTURE(target);
    check_property(20, [&, &target = target, &file = file] {
      Plan plan = maker.make();
      plan.hardware.gpus_per_node = Draw{}() % 2 == 0 ? 8 : 4;
      EmitOptions options;
      options.templates = templates;
      options.job.program = {"train.py", "--rate", "1e-4"};
      if (target.compare(0, 10, "kubernetes") == 0) options.job.settings.set("container.image", "registry/name:1");
      const Result<Artifacts> artifacts = emit(&plan, target, options);
      if (!artifacts.ok()) RC_FAIL(messages(artifacts.diagnostics));
      const auto artifact = std::find_if(artifacts->begin(), artifacts->end(), [&](const Artifact& one) { return one.path == file; });
      RC_ASSERT((artifact != artifacts->end()));
      const Result<std::vector<Reading>> readings = read_config(templates, artifact->text, artifact->path);
      if (!readings.ok()) RC_FAIL(artifact->text + messages(readings.diagnostics));
      const Result<ReadFields> fields = merge_readings(*readings);
      RC_ASSERT(fields.ok());
      RC_ASSERT(fields->count("hardware.nodes") == 1u);
      RC_ASSERT(fields->count("hardware.gpus_per_node") == 1u);
      RC_ASSERT((fields->find("hardware.nodes")->second.value == plan.hardware.nodes));
      RC_ASSERT((fields->find("hardware.gpus_per_node")->second.value == plan.hardware.gpus_per_node));
    });
  }
}
