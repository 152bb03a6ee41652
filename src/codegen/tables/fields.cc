// Flattening plan.json and deriving the handful of numbers that targets need and the plan does not spell out.
#include "codegen/tables/fields.h"

#include <set>

#include "base/check.h"
#include "codegen/job/job_fields.h"
#include "codegen/tables/field_sources.h"
#include "codegen/tables/trainer_fields.h"
#include "plan/plan_json.h"

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

// What a command asks beyond any plan.
constexpr const char* kOptionFields[] = {
    "options.fsdp_version", "options.checkpoint", "options.layer_classes", "options.auto", "options.nvme_path", "options.classic",
    // What a converted file says and the new one has to say, too: when it saves ("no", "epoch"), whether the constants of 4-bit
    // weights are quantized as well, whether a save gathers the weights that stage 3 splits, whether the program that reads it fills
    // in where gradients are clipped, whether bf16 stands for the half precision that the GPU has, how often the data are trained on,
    // how closely preferences hold a model to its reference.
    "options.epochs", "options.preference_beta", "options.saves", "options.nested_quant", "options.gathers_on_save",
    "options.auto_cast", "options.clips_as_told", "options.half_of_gpu"};

// What was trained on, as a user names it: the folders of the files, without those inside others; of one file itself.
Json data_paths(const DataPlan& data) {
  const std::string root = data.root.empty() || data.root == "." ? "" : data.root + "/";
  std::set<std::string> folders;
  for (const DataFile& file : data.files) folders.insert(file.path.substr(0, std::min(file.path.rfind('/'), file.path.size())));
  if (data.files.size() == 1) folders = {data.files[0].path};
  Json out = Json::array();
  for (const std::string& folder : folders) {
    bool is_inside = false;
    for (size_t slash = folder.find('/'); slash != std::string::npos; slash = folder.find('/', slash + 1))
      is_inside = is_inside || folders.count(folder.substr(0, slash)) != 0;
    if (!is_inside) out.push_back(root + folder);
  }
  return out.empty() ? Json() : out;
}

}  // namespace

const Fields& no_fields() {
  static const Fields kNone = [] {
    Fields fields;
    flatten(to_json(Plan{}), "", fields);
    Plan with_scale;
    with_scale.precision.compute = Dtype::kF16;  // the loss scale is a matter of fp16 alone
    with_scale.offload.optimizer_ratio = 0;      // and these are left out where all of it moves, and is pinned
    with_scale.offload.pin_memory = false;
    with_scale.strategy.auto_wrap_policy = kWrapsNothing;
    with_scale.strategy.backward_prefetch = kNoPrefetch;
    with_scale.strategy.overlap_grad_reduce = with_scale.strategy.overlap_param_gather = false;
    with_scale.strategy.sync_each_batch = true;  // and where no reduction waits
    flatten(to_json(with_scale), "", fields);
    for (const char* name : kOptionFields) fields[name] = nullptr;
    for (const auto& source : field_sources()) fields[source.first] = nullptr;
    for (const std::string& name : job_field_names()) fields[name] = nullptr;
    for (auto& entry : fields) entry.second = nullptr;
    return fields;
  }();
  return kNone;
}

Fields fields_of(const Plan& plan) {
  Fields fields = no_fields();
  flatten(to_json(plan), "", fields);
  const Mesh& mesh = plan.mesh;
  set_field(fields, "derived.source", "plan");
  set_field(fields, "derived.world", mesh.world());
  set_field(fields, "derived.data_parallel", mesh.data_parallel());
  set_field(fields, "derived.model_parallel", mesh.pp * mesh.cp * mesh.tp * mesh.ep > 1);
  set_field(fields, "derived.hybrid", mesh.dp_replicate > 1 && plan.strategy.sharding != Sharding::kDdp);
  set_field(fields, "derived.zero_stage", zero_stage(plan.strategy.sharding));
  // The Hugging Face integration of DeepSpeed fills reduce_bucket_size "auto" with hidden² (transformers/integrations/deepspeed.py).
  set_field(fields, "derived.hidden_squared", plan.model.hidden * plan.model.hidden);
  set_field(fields, "derived.feed_forward_factor", plan.model.hidden > 0 ? plan.model.feed_forward / plan.model.hidden : 0);
  set_field(fields, "derived.learned_positions", plan.model.learned_positions > 0);
  set_field(fields, "derived.single_node", plan.hardware.nodes == 1);
  set_field(fields, "derived.one_process", mesh.world() == 1);
  set_field(fields, "derived.data_paths", data_paths(plan.data));
  const bool offload_params = plan.offload.parameters != OffloadPlace::kNone;
  const bool offload_optimizer = plan.offload.optimizer != OffloadPlace::kNone;
  set_field(fields, "derived.offload",
            offload_params && offload_optimizer ? "both"
            : offload_params                    ? "parameters"
            : offload_optimizer                 ? "optimizer"
                                                : "none");
  set_trainer_fields(fields, plan);
  if (plan.train.lora_alpha == 0) set_field(fields, "train.lora_alpha", nullptr);  // a plan of another trainer may not say it
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
