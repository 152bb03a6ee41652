// DeepSpeed's JSON: which features go together. What runs beside it is deepspeed_run.cc, what a single value may be is
// deepspeed_values.cc, unknown keys are keys.cc.
#include "codegen/lint/deepspeed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/names.h"
#include "codegen/lint/deepspeed_run.h"

namespace distsetup::lint {
namespace {

void ds_offload(const DeepspeedFile& in) {
  const Value& root = in.root;
  const TreeNode param = node(root, "zero_optimization.offload_param");
  if (param && in.stage < 3 && text(root, "zero_optimization.offload_param.device") != "none" &&
      param.value->kind == Value::Kind::kMap) {
    in.report.add(
        "DSJ006", in.d, in.key("zero_optimization.offload_param"),
        fmt::format("'offload_param' is silently ignored: parameter offload works in stage 3 only, the stage is {}", in.stage));
  }
  for (const char* section : {"offload_param", "offload_optimizer"}) {
    const std::string path = fmt::format("zero_optimization.{}", section);
    if (text(root, path + ".device") != "nvme") continue;
    if (in.stage < 3 && std::string_view(section) == "offload_optimizer") {
      in.report.add("DSJ007", in.d, in.val(path + ".device"),
                    fmt::format("NVMe optimizer offload needs stage 3, the stage is {}", in.stage),
                    {.severity = Severity::kWarning});  // the state stays on the host
    }
    if (!has(root, path + ".nvme_path")) {
      in.report.add("DSJ007", in.d, in.val(path + ".device"), fmt::format("'{}' goes to NVMe and has no 'nvme_path'", path));
    }
  }
  const auto ratio = real(root, "zero_optimization.offload_optimizer.ratio");
  if (ratio && *ratio < 1 && *ratio >= 0 && in.stage < 3) {
    in.report.add("DSJ008", in.d, in.val("zero_optimization.offload_optimizer.ratio"),
                  fmt::format("'ratio' below 1 works in stage 3 only, the stage is {}", in.stage), {"", "parse", {}, {}});
  }
  if (is_true(root, "zero_optimization.offload_optimizer.super_offload") && in.stage < 3) {
    in.report.add("DSJ008", in.d, in.key("zero_optimization.offload_optimizer.super_offload"),
                  fmt::format("'super_offload' is silently ignored: it works in stage 3 only, the stage is {}", in.stage),
                  {"", "silent", {}, Severity::kWarning});
  }
  if (has(root, "zero_optimization.zenflow") && !offloads(root, "offload_optimizer")) {
    in.report.add("DSJ009", in.d, in.key("zero_optimization.zenflow"),
                  "'zenflow' is silently ignored: it overlaps CPU optimizer offload, and there is none");
  }
}

void ds_stage3_keys(const DeepspeedFile& in) {
  const auto world = static_cast<double>(in.setup.world());
  for (const char* name : {"zero_hpz_partition_size", "zero_quantized_weights", "zero_quantized_nontrainable_weights",
                           "zero_quantized_gradients", "mics_shard_size", "mics_hierarchical_params_gather"}) {
    const std::string path = std::string(kZero) + name;
    const TreeNode at = node(in.root, path);
    const bool is_off = !at || at.text() == "false" || at.text() == "1" || at.text() == "-1" || at.text() == "0";
    if (is_off || (!in.is_old && std::string_view(name).rfind("mics", 0) == 0)) continue;
    if (in.stage < 3) {
      in.report.add("DSJ010", in.d, in.key(path),
                    fmt::format("'{}' is silently ignored below stage 3, the stage is {}", name, in.stage));
    }
    const auto size = real_of(*at.value);
    const bool is_size = std::string_view(name) == "zero_hpz_partition_size" || std::string_view(name) == "mics_shard_size";
    if (!is_size || !size || *size < 1 || in.stage < 3) continue;
    if (world > 0 && static_cast<int64_t>(world) % static_cast<int64_t>(*size) != 0) {
      in.report.add("DSJ011", in.d, in.val(path),
                    fmt::format("'{}' is {}, which does not divide the {} ranks", name, at.text(), world));
    }
    if (std::string_view(name) == "zero_hpz_partition_size" && in.setup.gpus_per_node() > 0 &&
        *size != static_cast<double>(in.setup.gpus_per_node())) {
      in.report.add(
          "DSJ012", in.d, in.val(path),
          fmt::format("'{}' is {}, a node has {} GPUs: secondary shards leave the node", name, at.text(), in.setup.gpus_per_node()));
    }
  }
  if (is_true(in.root, "zero_optimization.zero_quantized_gradients") && is_false(in.root, "zero_optimization.reduce_scatter")) {
    in.report.add("DSJ013", in.d, in.val("zero_optimization.reduce_scatter"),
                  "'zero_quantized_gradients' rides on reduce-scatter, and 'reduce_scatter' is false");
  }
}

void ds_engines(const DeepspeedFile& in) {
  const Value& root = in.root;
  if (in.stage >= 2 && has(root, "pipeline")) {
    in.report.add("DSJ014", in.d, in.key("pipeline"),
                  fmt::format("the pipeline engine runs with stages 0 and 1, the stage is {}", in.stage));
  }
  for (const auto& other : in.setup.documents) {
    for (const ScriptPart& part : other->parts) {
      for (const LaunchLine& line : part.lines) {
        const LaunchStage* script = line.find(LaunchProgram::kScript);
        if (script == nullptr || in.stage < 3) continue;
        const auto experts = number(script->value("num_experts"));
        if (script->has("deepspeed_config") && experts && *experts > 1) {
          in.report.add("DSJ015", *other, script->find("num_experts")->span,
                        fmt::format("DeepSpeed's own MoE layer ({} experts) does not run in stage 3", *experts));
        }
      }
    }
  }
  const std::string type = lower(text(root, "optimizer.type"));
  if (in.stage >= 1 && (type == "onebitadam" || type == "zerooneadam" || type == "onebitlamb")) {
    in.report.add("DSJ016", in.d, in.val("optimizer.type"),
                  fmt::format("'{}' cannot be combined with ZeRO, the stage is {}", text(root, "optimizer.type"), in.stage));
  }
  if (real(root, "optimizer.params.max_grad_norm").value_or(0) > 0) {
    // Of a program that hands over an optimizer of its own (Megatron-DeepSpeed) the section is not read.
    const std::string consumer = in.setup.consumer(in.d);
    const bool is_made = consumer == "hf" || consumer == "accelerate" || in.d.text.find("\"auto\"") != std::string::npos;
    in.report.add("DSJ017", in.d, in.key("optimizer.params.max_grad_norm"),
                  "DeepSpeed stops at 'max_grad_norm' among the parameters of an optimizer that it makes itself",
                  {"", "", {}, is_made ? std::optional<Severity>() : Severity::kWarning});
  }
  if (!has(root, "gradient_clipping") && !root.entries.empty()) {
    in.report.add("DSJ018", in.d, {in.d.offset(root.location), in.d.offset(root.location) + 1},
                  "'gradient_clipping' is not given: 1.0 in releases since mid-2026, 0 (no clipping) in older ones");
  }
  if (is_true(root, "zero_optimization.legacy_stage1")) {
    in.report.add("DSJ044", in.d, in.key("zero_optimization.legacy_stage1"),
                  "'legacy_stage1' is gone: DeepSpeed stops when training starts");
  }
  if (in.is_old && is_true(root, "amp.enabled") && (in.stage > 0 || is_true(root, "fp16.enabled") || is_true(root, "bf16.enabled"))) {
    in.report.add("DSJ045", in.d, in.key("amp"), "'amp' (Apex) does not run with ZeRO, fp16 or bf16");
  }
}

// deepspeed/runtime/config.py of 0.19.8: _REMOVED_TOP_LEVEL_CONFIG_KEYS, _REMOVED_ZERO_CONFIG_KEYS. Any value is refused.
constexpr std::array<std::string_view, 14> kRemovedKeys = {"nebula",
                                                           "compression_training",
                                                           "amp",
                                                           "quantize_training",
                                                           "sparse_gradients",
                                                           "eigenvalue",
                                                           "sparse_attention",
                                                           "elasticity",
                                                           "graph_harvesting",
                                                           "curriculum_learning",
                                                           "progressive_layer_drop",
                                                           "zero_optimization.mics_shard_size",
                                                           "zero_optimization.mics_hierarchical_params_gather",
                                                           "zero_optimization.zeropp_loco_param"};

// What a release before the removal makes of these keys is said only when such a release is known to be used.
void ds_removed(const DeepspeedFile& in) {
  for (const std::string_view path : kRemovedKeys) {
    if (in.is_old || !node(in.root, path)) continue;
    in.report.add("DSJ048", in.d, in.key(path), fmt::format("DeepSpeed refuses '{}': what it configured was removed by 0.19.8", path),
                  {"", "", {}, in.setup.version("deepspeed").empty() ? std::optional<Severity>() : Severity::kError});
  }
}

void ds_deprecated(const DeepspeedFile& in) {
  struct Renamed {
    std::string_view old, now;
    bool same_value;
  };
  static constexpr std::array<Renamed, 5> kRenamed = {
      {{"cpu_offload", "offload_optimizer", false},
       {"cpu_offload_param", "offload_param", false},
       {"cpu_offload_use_pin_memory", "offload_optimizer", false},
       {"stage3_gather_fp16_weights_on_model_save", "stage3_gather_16bit_weights_on_model_save", true},
       {"elastic_checkpoint", "", false}}};
  for (const Renamed& one : kRenamed) {
    const std::string path = std::string(kZero) + std::string(one.old);
    if (!has(in.root, path)) continue;
    const TextSpan at = in.key(path);
    const bool is_moved = one.old != "cpu_offload_use_pin_memory";  // that one is passed over beside the new sections
    if (is_moved && !one.now.empty() && has(in.root, std::string(kZero) + std::string(one.now))) {
      in.report.add("DSJ019", in.d, at, fmt::format("'{}' and '{}' say the same thing twice: DeepSpeed stops", one.old, one.now),
                    {fmt::format("keep '{}'", one.now), "", {}, {}});
      continue;
    }
    std::vector<LintEdit> edits;
    if (one.same_value) edits.push_back({at.begin, at.end, fmt::format("\"{}\"", one.now)});
    in.report.add("DSJ020", in.d, at,
                  fmt::format("'{}' is an old name{}", one.old, one.now.empty() ? " for nothing: it has no effect" : ""),
                  {one.now.empty() ? "remove it" : fmt::format("use '{}'", one.now), "", edits, {}});
  }
}

void ds_communication(const DeepspeedFile& in) {
  const Value& root = in.root;
  const bool overlaps =
      is_true(root, "zero_optimization.overlap_comm") || (in.stage == 3 && !has(root, "zero_optimization.overlap_comm"));
  const auto bucket = [&root](const char* key) {  // elements; absent or "auto": 5e8
    return real(root, std::string("zero_optimization.") + key).value_or(5e8);
  };
  const double reduce = bucket("reduce_bucket_size"), gather = bucket("allgather_bucket_size");
  const double buffers_bytes = 4.5 * 2 * (reduce + gather);
  const bool is_auto = text(root, "zero_optimization.reduce_bucket_size") == "auto";
  const auto gpu_bytes = static_cast<double>(in.setup.context.gpu_memory_bytes);
  constexpr double kLargePart = 0.15;
  if (overlaps && in.stage >= 1 && !is_auto && gpu_bytes > 0 && buffers_bytes > kLargePart * gpu_bytes) {
    in.report.add(
        "DSJ022", in.d, in.key("zero_optimization"),
        fmt::format(
            "communication buffers take about {:.1f} GB of {:.0f} GiB: overlap_comm with buckets of {:.3g} and {:.3g} elements",
            buffers_bytes / 1e9, gpu_bytes / (1 << 30), reduce, gather));
  }
  const std::string version = in.setup.version("deepspeed");
  const bool compiles = is_true(root, "compile.deepcompile") || is_true(root, "compile.enabled");
  bool trainer_compiles = false;
  for (const auto& other : in.setup.documents) trainer_compiles = trainer_compiles || is_true(other->root, "torch_compile");
  if (is_true(root, "zero_optimization.overlap_comm") && (in.stage == 1 || in.stage == 2) && (compiles || trainer_compiles) &&
      (version.empty() || compare_versions(version, "0.19.8") < 0)) {
    in.report.add("DSJ023", in.d, in.key("zero_optimization.overlap_comm"),
                  fmt::format("overlap_comm in stage {} with torch.compile had a race (NaN){}", in.stage,
                              version.empty() ? "; the release is not known" : fmt::format(" in DeepSpeed {}", version)));
  }
  const auto accumulation = real(root, "gradient_accumulation_steps");
  if (in.stage == 2 && accumulation && *accumulation > 1) {  // stage 3 has no stage beside it that fits the same model
    in.report.add("DSJ026", in.d, in.key("gradient_accumulation_steps"),
                  fmt::format("stage 2 reduces gradients after each of the {} micro-batches, stage 1 once per step", *accumulation));
  }
  if (is_true(root, "bf16.enabled") && in.stage == 0 && lower(text(root, "data_types.grad_accum_dtype")) == "fp32") {
    in.report.add("DSJ039", in.d, in.val("data_types.grad_accum_dtype"),
                  "bf16 in stage 0 with fp32 accumulation has no optimizer wrapper in DeepSpeed");
  }
}

}  // namespace

void check_deepspeed(const LintSetup& setup, const Document& d, Findings& report) {
  if (!d.is(file_kind::kDeepspeed)) return;
  const std::string version = setup.version("deepspeed");
  const bool is_old = !version.empty() && compare_versions(version, "0.19.8") < 0;
  const DeepspeedFile in{setup, d, report, d.root, stage_of(d.root), setup.consumer(d), is_old};
  ds_offload(in);
  ds_stage3_keys(in);
  ds_engines(in);
  ds_removed(in);
  ds_deprecated(in);
  ds_communication(in);
  check_deepspeed_run(in);
}

}  // namespace distsetup::lint
