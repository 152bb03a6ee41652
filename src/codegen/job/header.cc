#include "codegen/job/header.h"

#include <fmt/format.h>

#include "base/digest.h"
#include "codegen/shell/quote.h"

namespace distsetup {
namespace {

const Json& get(const Fields& fields, std::string_view name) { return fields.find(name)->second; }

std::string text(const Fields& fields, std::string_view name) { return field_text(get(fields, name)); }

std::string ranks(const Fields& fields) {
  if (get(fields, "hardware.nodes").is_null() || get(fields, "hardware.gpus_per_node").is_null()) return "";
  const int nodes = get(fields, "hardware.nodes").get<int>(), per_node = get(fields, "hardware.gpus_per_node").get<int>();
  const bool cpu = text(fields, "hardware.accelerator") == "cpu";
  const std::string unit = cpu ? (per_node == 1 ? "process" : "processes") : (per_node == 1 ? "GPU" : "GPUs");
  return fmt::format("{} {} × {} {} = {} {}", nodes, nodes == 1 ? "node" : "nodes", per_node, unit, nodes * per_node,
                     nodes * per_node == 1 ? "rank" : "ranks");
}

// Without a plan: of the options themselves.
std::string digest(const TargetInput& input) {
  if (input.plan != nullptr && !input.plan->inputs_digest.empty()) return input.plan->inputs_digest;
  Json known = Json::object();
  for (const auto& [name, value] : input.fields) {
    if (!value.is_null()) known[name] = value;
  }
  return sha256(known.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

std::string header(const TargetInput& input) {
  const Fields& fields = input.fields;
  std::string out = "# distsetup " DISTSETUP_VERSION ", inputs " + digest(input);
  if (!input.command.empty()) out += "\n# command: " + comment_text(input.command);
  if (input.plan != nullptr) {
    out += fmt::format("\n# plan: {}, {}, recompute {}, {}: {}", comment_text(text(fields, "model.name")),
                       text(fields, "strategy.sharding"), text(fields, "recompute.policy"), text(fields, "precision.compute"),
                       text(fields, "verdict"));
  }
  if (!get(fields, "job.site").is_null()) out += "\n# site: " + comment_text(text(fields, "job.site"));
  const std::string arithmetic = ranks(fields);
  if (!arithmetic.empty()) out += "\n# " + arithmetic;
  if (input.plan != nullptr) {
    out += fmt::format("\n# global batch {} = micro-batch {} × accumulation {} × data-parallel {}", text(fields, "train.global_batch"),
                       text(fields, "micro_batch"), text(fields, "gradient_accumulation"), text(fields, "derived.data_parallel"));
  }
  return out;
}

}  // namespace distsetup
