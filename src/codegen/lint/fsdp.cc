// FSDP wherever it is written: accelerate's fsdp_config, the Trainer's, Axolotl's. One view of them, so that each rule is here once.
#include "codegen/lint/fsdp.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/names.h"
#include "base/text.h"
#include "codegen/lint/layer_classes.h"
#include "codegen/read/match.h"

namespace distsetup::lint {
namespace {

// The section, whose keys may carry "fsdp_" in front.
struct FsdpView {
  const Document& d;
  const Value* section = nullptr;
  int version = 0;  // 0: not written
  int assumed = 1;  // what an unwritten version is taken for
  TreeNode find(std::string_view name) const {
    TreeNode at = node(*section, "fsdp_" + std::string(name));
    return at ? at : node(*section, name);
  }
  std::string get(std::string_view name) const {
    const TreeNode at = find(name);
    return at && at.value->kind == Value::Kind::kScalar ? at.text() : "";
  }
  bool on(std::string_view name) const {
    const std::string word = lower(get(name));
    return word == "true" || word == "yes" || word == "1";
  }
  bool off(std::string_view name) const {
    const std::string word = lower(get(name));
    return word == "false" || word == "no" || word == "0";
  }
  int effective() const { return version == 0 ? assumed : version; }
};

constexpr std::array<std::string_view, 5> kStrategies = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                                                         "HYBRID_SHARD_ZERO2"};

bool is_strategy(std::string_view word) { return std::find(kStrategies.begin(), kStrategies.end(), word) != kStrategies.end(); }

// A key of a block mapping, alone on its line.
std::vector<LintEdit> remove_entry(const Document& d, const TreeNode& at) {
  const TextSpan key = key_span(d, at);
  const TextSpan line = line_span(d, key.begin);
  const bool is_block = d.text.find_first_not_of(' ', line.begin) == key.begin && at.map->entries.size() > 1 &&
                        d.cut({key.end, std::min(key.end + 1, d.text.size())}) == ":";
  if (!is_block) return {};
  const TextSpan all = entry_lines(d, at);
  return {{all.begin, all.end, ""}};
}

// Parameters of a layer that are trained one by one. Adapters are no such case: PEFT brings a wrap policy that keeps them apart.
TreeNode trains_some_of_a_layer(const LintSetup& setup) {
  for (const auto& other : setup.documents) {
    for (const char* name : {"unfrozen_parameters", "freeze_trainable_modules"}) {
      const TreeNode at = node(other->root, name);
      const bool is_all = at && lower(at.text()) == "all";
      if (at && !is_all && at.value->kind != Value::Kind::kNull) return at;
    }
  }
  return {};
}

// What accelerate's file says by these keys, the Trainer has other keys for, and reads neither (training_args.py).
void fsdp_of_trainer(const FsdpView& in, Findings& report) {
  const bool is_trainers = in.d.is_a(file_kind::kTrainer) || in.d.is(file_kind::kTrainerFsdp);
  if (!is_trainers) return;
  if (in.on("offload_params")) {
    report.add("FSDP024", in.d, key_span(in.d, in.find("offload_params")),
               "'offload_params' is silently ignored: the Trainer reads cpu_offload", {"write cpu_offload: true", "", {}, {}});
  }
  const std::string strategy = in.get("sharding_strategy");
  const bool is_default = lower(strategy) == "full_shard" || strategy == "1";
  if (in.effective() == 1 && !strategy.empty() && !is_default) {
    report.add("FSDP024", in.d, key_span(in.d, in.find("sharding_strategy")),
               "'sharding_strategy' is silently ignored: the Trainer reads it from reshard_after_forward in version 1",
               {fmt::format("write reshard_after_forward: {}", lower(strategy)), "", {}, {}});
  }
}

void fsdp_versions(const LintSetup& setup, const FsdpView& in, Findings& report) {
  const Document& d = in.d;
  const int version = in.effective();
  if (in.version == 0) {
    report.add("FSDP018", d, {d.offset(in.section->location), d.offset(in.section->location) + 1},
               "the FSDP version is not written: accelerate takes 1, the Trainer 2 since 5.10");
  } else if (in.version > 2) {
    report.add("FSDP022", d, key_span(d, in.find("version")),
               fmt::format("FSDP version {} is accepted and silently ignored, expected 1 or 2", in.version));
  }
  if (const TreeNode reshard = in.find("reshard_after_forward")) {
    const std::string word = reshard.text();
    const bool is_bool = lower(word) == "true" || lower(word) == "false";
    if ((version == 2 && is_strategy(word)) || (version == 1 && is_bool)) {
      const bool is_silent = is_bool && d.is(file_kind::kAccelerate);
      report.add(
          "FSDP001", d, value_span(d, *reshard.value),
          fmt::format("'reshard_after_forward' is '{}' with FSDP version {}: it takes a strategy name for 1, true or false for 2",
                      word, version),
          {"", is_silent ? "silent" : "", {}, is_silent ? std::optional<Severity>(Severity::kWarning) : std::nullopt});
    }
  }
  if (version != 2) return;
  if (in.on("forward_prefetch")) {
    const TreeNode at = in.find("forward_prefetch");
    const bool is_launched = d.is(file_kind::kAccelerate);  // accelerate launch hands it on and nobody reads it
    report.add(
        "FSDP002", d, key_span(d, at),
        is_launched ? "'forward_prefetch' is silently ignored: FSDP version 2 does not have it"
                    : "'forward_prefetch' is not available in FSDP version 2",
        {"", is_launched ? "" : "parse", remove_entry(d, at), is_launched ? std::nullopt : std::optional<Severity>(Severity::kError)});
  }
  for (const char* name : {"use_orig_params", "sync_module_states", "backward_prefetch", "sharding_strategy", "limit_all_gathers"}) {
    const TreeNode at = in.find(name);
    if (!at || at.value->kind == Value::Kind::kNull) continue;
    const bool decides = std::string_view(name) == "sharding_strategy";
    report.add("FSDP003", d, key_span(d, at), fmt::format("'{}' is silently ignored: it has no meaning in FSDP version 2", name),
               {decides ? "use reshard_after_forward (and parallelism_config for hybrid sharding)" : "",
                "",
                decides ? std::vector<LintEdit>{} : remove_entry(d, at),
                {}});
  }
  if (in.get("state_dict_type") == "LOCAL_STATE_DICT") {
    report.add("FSDP004", d, value_span(d, *in.find("state_dict_type").value), "local state dicts do not exist in FSDP version 2");
  }
  const bool is_hybrid = in.get("sharding_strategy").rfind("HYBRID", 0) == 0;
  if (is_hybrid && real(d.root, "parallelism_config.parallelism_config_dp_replicate_size").value_or(1) <= 1 &&
      real(d.root, "dp_replicate_size").value_or(1) <= 1) {
    report.add("FSDP008", d, value_span(d, *in.find("sharding_strategy").value),
               "hybrid sharding becomes full sharding over the world: FSDP version 2 takes it from the mesh, and dp_replicate_size is "
               "not given");
  }
  for (const auto& other : setup.documents) {
    const bool clips = real(other->root, "max_grad_norm").value_or(1.0) > 0;
    if (!other->is_a(file_kind::kTrainer) || !in.on("offload_params") || !clips || text(other->root, "ddp_backend") != "nccl")
      continue;
    report.add("FSDP015", *other, value_span(*other, *node(other->root, "ddp_backend").value),
               "clipping with CPU offload reduces norms on the host, and 'nccl' alone has no CPU backend");
  }
}

void fsdp_version_1(const LintSetup& setup, const FsdpView& in, Findings& report) {
  const Document& d = in.d;
  if (in.effective() != 1) return;
  if (in.on("cpu_ram_efficient_loading") && in.off("sync_module_states")) {
    report.add("FSDP005", d, value_span(d, *in.find("sync_module_states").value),
               "only rank 0 loads the weights, and 'sync_module_states' false would leave the others with noise");
  }
  if (in.off("use_orig_params") && trains_some_of_a_layer(setup)) {
    report.add("FSDP006", d, value_span(d, *in.find("use_orig_params").value),
               "'use_orig_params' is false, and frozen and trained parameters share a unit");
  }
  const std::string strategy = in.get("sharding_strategy");
  const int64_t gpus = setup.gpus_per_node();
  const auto processes = real(d.root, "num_processes"), machines = real(d.root, "num_machines");
  if (strategy.rfind("HYBRID", 0) == 0 && gpus > 0 && processes && *processes / machines.value_or(1) < static_cast<double>(gpus)) {
    report.add("FSDP007", d, value_span(d, *in.find("sharding_strategy").value),
               fmt::format("hybrid sharding makes its groups by the {} GPUs of a node, and {:.0f} processes run there", gpus,
                           *processes / machines.value_or(1)));
  }
}

// "LlamaDecoderlayer": near to a class of transformers, and none itself.
void fsdp_classes(const FsdpView& in, Findings& report) {
  const TreeNode at = in.find("transformer_layer_cls_to_wrap");
  if (!at) return;
  std::vector<std::string> names;
  for (const Value& item : at.value->items) names.push_back(item.text);
  if (at.value->kind == Value::Kind::kScalar) names = split_words(at.text(), ',');
  for (const std::string& name : names) {
    const std::string near = misspelt_layer_class(name);
    if (near.empty()) continue;
    report.add("FSDP023", in.d, value_span(in.d, *at.value), fmt::format("no model of transformers has a class '{}'", name),
               {fmt::format("did you mean {}", near), "", {}, {}});
    return;
  }
}

void fsdp_units(const LintSetup& setup, const FsdpView& in, Findings& report) {
  const Document& d = in.d;
  const std::string policy = in.get("auto_wrap_policy");
  const bool is_accelerate = d.is(file_kind::kAccelerate);
  const TextSpan here{d.offset(in.section->location), d.offset(in.section->location) + 1};
  if (policy == "NO_WRAP" || (policy.empty() && is_accelerate)) {
    report.add("FSDP010", d, policy.empty() ? here : value_span(d, *in.find("auto_wrap_policy").value),
               "the whole model is one unit: all of it is gathered at once, no memory is saved");
  } else if (!policy.empty() && policy != "TRANSFORMER_BASED_WRAP" && policy != "SIZE_BASED_WRAP") {
    const bool may_pass_over = !is_accelerate && !d.is(file_kind::kAxolotl) && setup.version("transformers").empty();
    report.add("FSDP021", d, value_span(d, *in.find("auto_wrap_policy").value), fmt::format("unknown wrap policy '{}'", policy),
               {.help = "use TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP",
                .error_if = may_pass_over ? "the Trainer is of Transformers 5.10 or later: older ones read no policy here" : ""});
  }
  const std::string strategy = in.get("sharding_strategy");
  const auto by_number = number(strategy);
  if (!strategy.empty() && !is_strategy(strategy) && !(by_number && *by_number >= 1 && *by_number <= 5)) {
    report.add("FSDP021", d, value_span(d, *in.find("sharding_strategy").value),
               fmt::format("unknown sharding strategy '{}'", strategy),
               {suggest(strategy, std::vector<std::string>(kStrategies.begin(), kStrategies.end())), "", {}, {}});
  }
  // Looked up by its name in an enumeration, whatever the version (accelerate/utils/dataclasses.py, FullyShardedDataParallelPlugin).
  const std::string prefetch = lower(in.get("backward_prefetch"));
  static const std::vector<std::string> kPrefetches = {"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"};
  const bool is_prefetch =
      prefetch == "1" || prefetch == "2" || prefetch == "null" ||
      std::any_of(kPrefetches.begin(), kPrefetches.end(), [&](const auto& one) { return lower(one) == prefetch; });
  if (is_accelerate && !prefetch.empty() && !is_prefetch) {
    report.add("FSDP021", d, value_span(d, *in.find("backward_prefetch").value),
               fmt::format("unknown backward prefetch '{}'", in.get("backward_prefetch")),
               {"use BACKWARD_PRE, BACKWARD_POST or NO_PREFETCH", "", {}, {}});
  }
  if (strategy == "NO_SHARD" || strategy == "3") {
    report.add("FSDP014", d, value_span(d, *in.find("sharding_strategy").value), "NO_SHARD is DDP with FSDP's overhead");
  }
  fsdp_classes(in, report);
  const std::string classes = in.get("transformer_layer_cls_to_wrap");
  const std::string& known = setup.context.layer_class;
  if (!classes.empty() && !known.empty() && ("," + classes + ",").find("," + known + ",") == std::string::npos) {
    report.add("FSDP009", d, value_span(d, *in.find("transformer_layer_cls_to_wrap").value),
               fmt::format("'{}' is no module of this model, its blocks are {}", classes, known),
               {fmt::format("write {}", known), "", {}, {}});
  }
}

void fsdp_checkpoints(const LintSetup& setup, const FsdpView& in, Findings& report) {
  const Document& d = in.d;
  for (const auto& other : setup.documents) {
    const Value& t = other->root;
    if (!other->is_a(file_kind::kTrainer) && other.get() != &d) continue;
    if (in.on("activation_checkpointing") && is_true(t, "gradient_checkpointing")) {
      report.add(
          "FSDP011", *other, key_span(*other, node(t, "gradient_checkpointing")),
          "activations are recomputed twice: FSDP's activation_checkpointing and the trainer's gradient_checkpointing are both on");
    }
    for (const char* name : {"save_only_model", "load_best_model_at_end"}) {
      if (in.get("state_dict_type") != "SHARDED_STATE_DICT" || !is_true(t, name)) continue;
      report.add("FSDP012", *other, key_span(*other, node(t, name)), fmt::format("'{}' cannot be done with SHARDED_STATE_DICT", name),
                 {.error_if = std::string_view(name) == "save_only_model" ? "" : "save_only_model is on, too"});
    }
    const auto accumulation = real(t, "gradient_accumulation_steps");
    if (accumulation && *accumulation > 1 && !has(t, "accelerator_config.gradient_accumulation_kwargs.sync_each_batch")) {
      const double gib = static_cast<double>(setup.context.model_parameters) * 4 / (1 << 30);
      report.add("FSDP019", *other, key_span(*other, node(t, "gradient_accumulation_steps")),
                 fmt::format("accumulation without a sync after each micro-batch keeps whole gradients on every rank{}",
                             gib > 0 ? fmt::format(", {:.1f} GiB in fp32", gib) : ""));
    }
    const std::string dtype = text(t, "torch_dtype") + text(t, "dtype");
    if (in.effective() == 2 && is_true(t, "use_peft") && (dtype == "bfloat16" || dtype == "float16")) {
      report.add(
          "FSDP016", *other, key_span(*other, node(t, "use_peft")),
          fmt::format("adapters are fp32 on a {} base: a unit of FSDP version 2 holds one type, and some releases do not cast them",
                      dtype));
    }
  }
  if (in.get("state_dict_type") == "FULL_STATE_DICT" && setup.context.model_parameters > 30'000'000'000) {
    report.add("FSDP013", d, value_span(d, *in.find("state_dict_type").value),
               fmt::format("rank 0 gathers the whole model for a checkpoint: {:.0f} GiB of host memory",
                           static_cast<double>(setup.context.model_parameters) * 4 / (1 << 30)));
  }
}

void fsdp_own_loops(const Document& d, Findings& report) {
  for (const ScriptPart& part : d.parts) {
    for (const LaunchLine& line : part.lines) {
      const LaunchStage* script = line.find(LaunchProgram::kScript);
      if (script == nullptr || line.find(LaunchProgram::kAccelerate) != nullptr) continue;
      const LaunchOption* strategy = script->find("sharding_strategy");
      if (strategy == nullptr) strategy = script->find("fsdp_sharding_strategy");
      const LaunchOption* fp16 = script->find("fp16");
      if (strategy != nullptr && fp16 != nullptr && fp16->value != "false") {
        report.add("FSDP017", d, fp16->span, "fp16 gradients of FSDP version 1 are scaled by ShardedGradScaler, not by GradScaler");
      }
    }
  }
}

}  // namespace

void check_fsdp(const LintSetup& setup, const Document& d, Findings& report) {
  fsdp_own_loops(d, report);
  FsdpView in{d, nullptr, 0, 1};
  const TreeNode section = node(d.root, "fsdp_config");
  if (d.is(file_kind::kAccelerate)) {
    if (text(d.root, "distributed_type") == "FSDP" && section) in.section = section.value;
  } else if (d.is_a(file_kind::kTrainer)) {
    if (section && section.value->kind == Value::Kind::kMap) in.section = section.value;
    in.assumed = 2;
  } else if (d.is(file_kind::kTrainerFsdp)) {
    in.section = &d.root;
    in.assumed = 2;
  } else if (d.is(file_kind::kAxolotl)) {
    if (section) in.section = section.value;
  }
  if (in.section == nullptr || in.section->kind != Value::Kind::kMap) return;
  const TreeNode version = d.is(file_kind::kAxolotl) ? node(d.root, "fsdp_version") : in.find("version");
  if (version) in.version = static_cast<int>(real_of(*version.value).value_or(0));
  if (!d.is(file_kind::kAxolotl) || in.version != 0) fsdp_versions(setup, in, report);  // Axolotl's version: AX003
  fsdp_of_trainer(in, report);
  fsdp_version_1(setup, in, report);
  fsdp_units(setup, in, report);
  fsdp_checkpoints(setup, in, report);
}

}  // namespace distsetup::lint
