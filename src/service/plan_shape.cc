#include "service/plan_shape.h"

#include <fmt/format.h>

namespace distsetup {
namespace {

template <class T>
Json part(const Json& json, const char* section, const char* key, T absent) {
  const auto found = json.find(section);
  if (found == json.end() || !found->is_object()) return absent;
  return found->value(key, Json(absent));
}

std::string summary_of(const Json& plan) {
  const std::string recompute = part(plan, "recompute", "policy", "none").get<std::string>();
  std::string text = fmt::format("{} · micro-batch {} · recompute {}", part(plan, "strategy", "sharding", "").get<std::string>(),
                                 plan.value("micro_batch", 0), recompute);
  if (part(plan, "offload", "parameters", "none") != "none") text += " · parameters on the host";
  return text;
}

}  // namespace

Json plan_shape(const Json& plan) {
  const double step_s = part(plan, "time", "step_s", 0.0).get<double>();
  const int64_t steps = part(plan, "train", "steps", 0).get<int64_t>();
  Json out = {{"verdict", plan.value("verdict", Json())},
              {"fit_probability", part(plan, "memory", "fit_probability", 0.0)},
              {"trainer", part(plan, "strategy", "trainer", "")},
              {"summary", summary_of(plan)},
              {"model_parameters", part(plan, "model", "parameters", 0)},
              {"gpu", part(plan, "hardware", "gpu_name", "")},
              {"nodes", part(plan, "hardware", "nodes", 1)},
              {"gpus_per_node", part(plan, "hardware", "gpus_per_node", 1)},
              {"sharding", part(plan, "strategy", "sharding", "")},
              {"recompute", part(plan, "recompute", "policy", "")},
              {"offload", plan.value("offload", Json::object())},
              {"mesh", plan.value("mesh", Json::object())},
              {"micro_batch", plan.value("micro_batch", 0)},
              {"gradient_accumulation", plan.value("gradient_accumulation", 0)},
              {"global_batch", part(plan, "train", "global_batch", 0)},
              {"sequence_length", part(plan, "train", "sequence_length", 0)},
              {"steps", steps},
              {"learning_rate", part(plan, "train", "learning_rate", 0.0)},
              {"method", part(plan, "train", "method", "")},
              {"finetune", part(plan, "train", "finetune", "full")},
              {"precision", part(plan, "precision", "compute", "")},
              {"reference", part(plan, "train", "reference", "")},
              {"beta", part(plan, "train", "beta", 0.0)},
              {"loss", part(plan, "train", "loss", "")}};
  out["predicted"] = {{"device_bytes", part(plan, "memory", "device_bytes", 0)},
                      {"held_bytes", part(plan, "memory", "run_bytes", 0)},
                      {"peak_allocated_bytes", part(plan, "memory", "peak_allocated_bytes", 0)},
                      {"capacity_bytes", part(plan, "memory", "capacity_bytes", 0)},
                      {"host_bytes_per_node", part(plan, "memory", "host_bytes_per_node", 0)},
                      {"checkpoint_bytes", part(plan, "memory", "checkpoint_bytes", 0)},
                      {"step_s", step_s},
                      {"tokens_per_s", part(plan, "time", "tokens_per_s", 0.0)},
                      {"run_s", step_s * static_cast<double>(steps)}};
  out["phases"] = part(plan, "memory", "by_phase", Json::array());
  out["terms"] = part(plan, "memory", "terms", Json::array());
  out["peak_instruction"] = part(plan, "memory", "peak_instruction", "");
  out["assumptions"] = plan.value("assumptions", Json::array());
  out["reasons"] = plan.value("reasons", Json::array());
  out["alternatives"] = plan.value("alternatives", Json::array());
  out["fixes"] = Json::array();
  for (const Json& reason : out["reasons"]) {
    if (reason.get<std::string>().starts_with("fits with")) out["fixes"].push_back(reason);
  }
  out["diagnostics"] = Json::array();
  for (const Json& one : plan.value("diagnostics", Json::array()))
    out["diagnostics"].push_back(
        {{"severity", one.value("severity", "")}, {"message", one.value("message", "")}, {"help", one.value("help", "")}});
  out["warnings"] = Json::array();
  out["not_supported"] = Json::array();
  return out;
}

ProviderRule provider_rule(int64_t parameters) {
  constexpr int64_t kBillion = 1000000000;
  if (parameters < kBillion) return {"under 1B parameters: inline, one GPU", "inline", {"--nodes", "1", "--gpus", "1"}};
  if (parameters < 7 * kBillion)
    return {"1B to 7B parameters: either, one GPU inline or FSDP on 2 GPUs", "either", {"--nodes", "1", "--gpus", "2"}};
  if (parameters < 30 * kBillion)
    return {"7B to 30B parameters: remote, FSDP on 2 to 8 GPUs", "remote", {"--nodes", "1", "--gpus", "8"}};
  return {"30B parameters and more: remote, 8 or more GPUs, CPU offload, everything sharded",
          "remote",
          {"--nodes", "1", "--gpus", "8", "--sharding", "zero3", "--offload-parameters", "host", "--offload-optimizer", "host"}};
}

}  // namespace distsetup
