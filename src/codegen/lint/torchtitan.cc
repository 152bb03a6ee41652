// torchtitan's TOML (0.2.2 and older): features together. Unknown keys and types are keys.cc, sizes are plan_level.cc.
#include <fmt/format.h>

#include "codegen/lint/report.h"

namespace distsetup::lint {

void check_torchtitan(const Setup& setup, const Document& d, Report& report) {
  if (d.kind != FileKind::kTorchtitan) return;
  const Value& root = d.root;
  const auto key = [&](std::string_view path) { return key_span(d, node(root, path)); };
  const auto val = [&](std::string_view path) { return value_span(d, *node(root, path).value); };
  for (const char* name : {"dtype", "mixed_precision_param", "mixed_precision_reduce"}) {
    const std::string path = fmt::format("training.{}", name);
    const std::string type = text(root, path);
    const bool is_reduce = std::string_view(name) == "mixed_precision_reduce";
    const bool is_known = type.empty() || type == "float32" || (type == "bfloat16" && !is_reduce);
    if (!is_known) {
      report.add("TT001", d, val(path),
                 fmt::format("'{}' is '{}', expected {}", path, type, is_reduce ? "float32" : "bfloat16 or float32"));
    }
  }
  const std::string version = setup.version("torchtitan");
  if (!version.empty() && compare_versions(version, "0.2.2") > 0) {
    const Span top = root.key_locations.empty() ? Span{0, 1} : key_span(d, {&root.entries[0].second, &root, 0});
    report.add("TT002", d, top, fmt::format("torchtitan {} reads no TOML: its configuration is a Python function", version));
  }
  const bool compiles = is_true(root, "compile.enable");
  if (is_true(root, "parallelism.enable_async_tensor_parallel") && !compiles) {
    report.add("TT004", d, key("parallelism.enable_async_tensor_parallel"), "asynchronous tensor parallelism needs compile.enable");
  }
  if (text(root, "activation_checkpoint.mode") == "memory_budget" && !compiles) {
    report.add("TT004", d, val("activation_checkpoint.mode"), "activation checkpointing by memory budget needs compile.enable");
  }
  const auto etp = real(root, "parallelism.expert_tensor_parallel_degree");
  const double tp = real(root, "parallelism.tensor_parallel_degree").value_or(1);
  if (etp && *etp != 1 && *etp != tp) {
    report.add("TT005", d, val("parallelism.expert_tensor_parallel_degree"),
               fmt::format("expert tensor parallel is {}, expected 1 or the tensor parallel degree {}", *etp, tp));
  }
  const std::string reshard = text(root, "parallelism.fsdp_reshard_after_forward");
  if (reshard == "zero1" || reshard == "optimizer" || has(root, "parallelism.zero_stage")) {
    report.add("TT006", d,
               has(root, "parallelism.zero_stage") ? key("parallelism.zero_stage") : val("parallelism.fsdp_reshard_after_forward"),
               "torchtitan has no form for ZeRO-1 (only the optimizer sharded)");
  }
}

}  // namespace distsetup::lint
