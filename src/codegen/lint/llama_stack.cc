// Llama Stack's post_training: run files of a server, requests as JSON, and calls of its old addresses.
#include "codegen/lint/llama_stack.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace distsetup::lint {
namespace {

void lls_server(const LintSetup& setup, const Document& d, Findings& report) {
  const TreeNode apis = node(d.root, "apis");
  if (!apis) return;
  const std::string version = setup.version("llama-stack");
  for (const Value& api : apis.value->items) {
    if (api.text != "post_training") continue;
    const bool is_removed = !version.empty() && compare_versions(version, "0.7") >= 0;
    if (is_removed || version.empty()) {
      report.add("LLS001", d, value_span(d, api),
                 fmt::format("post_training was removed in Llama Stack 0.7{}", is_removed ? ", " + version + " is used" : ""),
                 {"", "", {}, is_removed ? std::optional<Severity>() : Severity::kWarning});
    }
  }
}

void lls_request(const Document& d, Findings& report) {
  const Value& root = d.root;
  if (!has(root, "training_config") && !has(root, "job_uuid") && !has(root, "algorithm_config")) return;
  const bool is_dpo =
      has(root, "finetuned_model") || has(root, "algorithm_config.beta") || text(root, "algorithm_config.type") == "dpo";
  std::vector<std::string_view> required = {"job_uuid", "training_config", "hyperparam_search_config", "logger_config",
                                            "training_config.n_epochs"};
  if (is_dpo) required.insert(required.end(), {"finetuned_model", "algorithm_config", "algorithm_config.beta"});
  if (has(root, "training_config.data_config"))
    required.insert(required.end(), {"training_config.data_config.dataset_id", "training_config.data_config.batch_size",
                                     "training_config.data_config.shuffle", "training_config.data_config.data_format"});
  if (has(root, "training_config.optimizer_config"))
    required.insert(required.end(),
                    {"training_config.optimizer_config.optimizer_type", "training_config.optimizer_config.lr",
                     "training_config.optimizer_config.weight_decay", "training_config.optimizer_config.num_warmup_steps"});
  const TextSpan top{d.offset(root.location), d.offset(root.location) + 1};
  for (const std::string_view path : required) {
    if (!node(root, path)) report.add("LLS002", d, top, fmt::format("the request lacks '{}'", path));
  }
  if (has(root, "training_config") && !has(root, "training_config.max_steps_per_epoch")) {
    report.add("LLS003", d, key_span(d, node(root, "training_config")), "'max_steps_per_epoch' is not given: one step is trained");
  }
  for (const char* name : {"reward_scale", "reward_clip", "epsilon", "gamma"}) {
    const std::string path = fmt::format("algorithm_config.{}", name);
    if (has(root, path))
      report.add("LLS004", d, key_span(d, node(root, path)), fmt::format("'{}' belongs to Llama Stack up to 0.2.14", name));
  }
}

void lls_calls(const LintSetup& setup, const Document& d, Findings& report) {
  const std::string version = setup.version("llama-stack");
  const bool is_old = (!version.empty() && compare_versions(version, "0.3") < 0) ||
                      d.text.find("llama stack run --image-type") != std::string::npos;  // the command of that time
  if (!d.is_script() || is_old) return;
  constexpr std::array<std::string_view, 2> kOld = {"/v1/post-training", "/v1/openai/v1/post-training"};
  for (const std::string_view old : kOld) {
    for (size_t at = d.text.find(old); at != std::string::npos; at = d.text.find(old, at + 1)) {
      report.add("LLS004", d, {at, at + old.size()}, fmt::format("'{}' belongs to Llama Stack before September 2025", old),
                 {"use /v1alpha/post-training", "", {}, {}});
    }
  }
}

}  // namespace

void check_llama_stack(const LintSetup& setup, const Document& d, Findings& report) {
  lls_calls(setup, d, report);
  if (!d.is(file_kind::kLlamaStack)) return;
  lls_server(setup, d, report);
  lls_request(d, report);
}

}  // namespace distsetup::lint
