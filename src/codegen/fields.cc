// Flattening plan.json and deriving the handful of numbers that targets need and the plan does not spell out.
#include "codegen/fields.h"

#include "base/check.h"

namespace distsetup {
namespace {

void flatten(const Json& json, const std::string& prefix, Fields& fields) {
  for (const auto& [key, value] : json.items()) {
    const std::string name = prefix.empty() ? key : prefix + "." + key;
    if (value.is_object()) {
      flatten(value, name, fields);
    } else if (!value.is_array() || value.empty() || !value[0].is_structured()) {
      fields[name] = value;
    }
  }
}

int zero_stage(Sharding sharding) {
  switch (sharding) {
    case Sharding::kDdp: return 0;
    case Sharding::kZero1: return 1;
    case Sharding::kZero2: return 2;
    case Sharding::kZero3: return 3;
  }
  return 0;
}

// Which of the engines below the Hugging Face trainers has a form for the plan. FSDP shards parameters with everything else and
// offloads all or nothing; DeepSpeed has no form for copies of the shard group, nor for parameters kept between forward and backward.
std::string engine(const Plan& plan) {
  const OffloadPlace optimizer = plan.offload.optimizer, parameters = plan.offload.parameters;
  const bool offload_is_fsdp = optimizer == parameters && optimizer != OffloadPlace::kNvme;
  if (plan.strategy.sharding == Sharding::kDdp && offload_is_fsdp) return "ddp";
  if (plan.strategy.sharding == Sharding::kZero1 || !offload_is_fsdp) return "deepspeed";
  return plan.strategy.sharding == Sharding::kZero3 || plan.mesh.dp_replicate > 1 ? "fsdp" : "deepspeed";
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

// Not in plan.json. options.*: what a command asks beyond any plan; slurm.*: JobOptions, checked and brought to one spelling.
constexpr const char* kOtherFields[] = {"derived.source",
                                        "derived.world",
                                        "derived.data_parallel",
                                        "derived.model_parallel",
                                        "derived.hybrid",
                                        "derived.zero_stage",
                                        "derived.hidden_squared",
                                        "derived.prefetch_elements",
                                        "derived.persistence_elements",
                                        "derived.engine",
                                        "derived.pipeline_batch",
                                        "derived.min_learning_rate_factor",
                                        "derived.warmup_ratio",
                                        "derived.save_interval",
                                        "derived.single_node",
                                        "derived.offload",
                                        "options.fsdp_version",
                                        "options.checkpoint",
                                        "options.layer_classes",
                                        "options.auto",
                                        "options.nvme_path",
                                        "job.job_name",
                                        "job.time_limit",
                                        "job.partition",
                                        "job.account",
                                        "job.qos",
                                        "job.constraint",
                                        "job.reservation",
                                        "job.exclude",
                                        "job.dependency",
                                        "job.array",
                                        "job.mail_user",
                                        "job.memory_per_gpu",
                                        "job.memory_per_node",
                                        "job.cpus_per_task",
                                        "job.exclusive",
                                        "job.requeue",
                                        "job.max_restarts",
                                        "job.signal",
                                        "job.open_mode",
                                        "job.output",
                                        "job.error",
                                        "job.step_log_folder",
                                        "job.step_output",
                                        "job.step_error",
                                        "job.modules",
                                        "job.exports",
                                        "job.setup",
                                        "job.with_plan",
                                        "job.plan_digest",
                                        "job.gpus_per_node"};

}  // namespace

Fields no_fields() {
  Fields fields;
  flatten(to_json(Plan{}), "", fields);
  for (const char* name : kOtherFields) fields[name] = nullptr;
  for (auto& entry : fields) entry.second = nullptr;
  return fields;
}

Fields fields_of(const Plan& plan) {
  Fields fields = no_fields();
  Fields known;
  flatten(to_json(plan), "", known);
  for (auto& [name, value] : known) fields[name] = std::move(value);
  const Mesh& mesh = plan.mesh;
  set_field(fields, "derived.source", "plan");
  set_field(fields, "derived.world", mesh.world());
  set_field(fields, "derived.data_parallel", mesh.data_parallel());
  set_field(fields, "derived.model_parallel", mesh.pp * mesh.cp * mesh.tp * mesh.ep > 1);
  set_field(fields, "derived.hybrid", mesh.dp_replicate > 1 && plan.strategy.sharding != Sharding::kDdp);
  set_field(fields, "derived.zero_stage", zero_stage(plan.strategy.sharding));
  // The Hugging Face integration of DeepSpeed fills reduce_bucket_size "auto" with hidden² (transformers/integrations/deepspeed.py).
  set_field(fields, "derived.hidden_squared", plan.model.hidden * plan.model.hidden);
  set_field(fields, "derived.single_node", plan.hardware.nodes == 1);
  const bool offload_params = plan.offload.parameters != OffloadPlace::kNone;
  const bool offload_optimizer = plan.offload.optimizer != OffloadPlace::kNone;
  set_field(fields, "derived.offload",
            offload_params && offload_optimizer ? "both"
            : offload_params                    ? "parameters"
            : offload_optimizer                 ? "optimizer"
                                                : "none");
  set_field(fields, "derived.prefetch_elements", plan.model.hidden * plan.model.hidden * 9 / 10);
  set_field(fields, "derived.persistence_elements", 10 * plan.model.hidden);
  set_field(fields, "derived.engine", engine(plan));
  // Where the pipeline is fed by one local batch: all of a step's micro-batches.
  set_field(fields, "derived.pipeline_batch", plan.mesh.pp > 1 ? plan.micro_batch * plan.gradient_accumulation : plan.micro_batch);
  const TrainPlan& train = plan.train;
  set_field(fields, "derived.min_learning_rate_factor", ratio(train.min_learning_rate, train.learning_rate));
  set_field(fields, "derived.warmup_ratio", ratio(static_cast<double>(train.warmup_steps), static_cast<double>(train.steps)));
  set_field(fields, "derived.save_interval", plan.checkpoint.every_steps > 0 ? plan.checkpoint.every_steps : train.steps);
  if (!plan.model.layer_class.empty()) set_field(fields, "options.layer_classes", Json::array({plan.model.layer_class}));
  return fields;
}

void set_field(Fields& fields, std::string_view name, Json value) {
  const auto it = fields.find(name);
  CHECK(it != fields.end(), "no field '{}'", name);
  it->second = std::move(value);
}

std::string field_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) {
    std::string out;
    for (const Json& item : value) out += (out.empty() ? "" : ",") + field_text(item);
    return out;
  }
  return value.dump();
}

}  // namespace distsetup
