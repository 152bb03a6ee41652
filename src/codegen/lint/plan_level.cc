// Rules that hold for every trainer: sizes that multiply, divide and fit. A file is read as numbers with the usual names first
// (Megatron's arguments, torchtitan's TOML, accelerate's mesh, plan.json); what it does not say is not checked.
#include "codegen/lint/plan_level.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "codegen/emit.h"
#include "codegen/lint/megatron.h"
#include "codegen/lint/plan_sizes.h"
#include "plan/plan.h"
#include "plan/plan_json.h"

namespace distsetup::lint {
namespace {

// Data-parallel ranks; 0 when the number of ranks is not known.
double data_ranks(const Sizes& in, double world) {
  const double model = in.get("tp") * in.get("pp") * in.get("cp");
  const bool is_given = in.has("dp_shard") && in.get("dp_shard") > 0;
  if (is_given) return in.get("dp_replicate") * in.get("dp_shard");
  return world > 0 && model > 0 && std::fmod(world, model) == 0 ? world / model : 0;
}

bool divides(double small, double large) { return small > 0 && std::fmod(large, small) == 0; }

void plan_mesh(const LintSetup& setup, const Sizes& in, Findings& report) {
  const Document& d = in.d;
  const auto world = static_cast<double>(setup.world());
  const double tp = in.get("tp"), pp = in.get("pp"), cp = in.get("cp");
  const double model = tp * pp * cp;
  const double shard = in.get("dp_shard", -1);
  const auto first = [&in](std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
      if (const Sized* found = in.find(name)) return found->span;
    }
    return TextSpan{0, 1};
  };
  const TextSpan at = first({"dp_shard", "tp", "pp", "cp", "dp_replicate", "micro"});
  const bool has_mesh = in.has("tp") || in.has("pp") || in.has("cp") || in.has("dp_shard") || in.has("dp_replicate");
  if (in.format == "megatron" && world > 0 && has_mesh && !divides(model, world)) {
    // A script whose number of nodes is the user's to change: more nodes would do.
    const bool may_grow = world > 0 && setup.context.nodes == 0 && setup.nodes() == 1 && divides(world, model);
    report.add("MEG001", d, at, fmt::format("{} ranks are not a multiple of tp {} × pp {} × cp {} = {}", world, tp, pp, cp, model),
               {"", "", {}, may_grow ? std::optional<Severity>(Severity::kWarning) : std::nullopt, in.doubt_of_ranks});
  }
  if ((in.format == "torchtitan" || in.format == "plan") && world > 0 && has_mesh) {
    const double product = model * in.get("dp_replicate") * std::max(shard, 1.0);
    const bool is_wrong = shard > 0 ? product != world : !divides(product, world);
    if (is_wrong) report.add("PLAN001", d, at, fmt::format("parallel sizes multiply to {}, the job has {} ranks", product, world));
  }
  const auto per_node = static_cast<double>(setup.gpus_per_node());
  if (tp > 1 && per_node > 0 && tp > per_node) {
    report.add("PLAN010", d, first({"tp"}),
               fmt::format("tensor parallel {} crosses nodes of {} GPUs: every layer pays the network's latency", tp, per_node));
  }
  const double parameters = setup.context.model_parameters > 0     ? static_cast<double>(setup.context.model_parameters)
                            : in.has("layers") && in.has("hidden") ? 12 * in.get("layers") * in.get("hidden") * in.get("hidden")
                                                                   : 0;
  if (tp > 1 && parameters > 0 && parameters < 3e9 && world > 0 && world <= per_node) {
    report.add("PLAN011", d, first({"tp"}),
               fmt::format("tensor parallel {} for about {:.1f}B parameters on one node is unlikely to pay", tp, parameters / 1e9));
  }
  const double replicas = in.get("dp_replicate");
  if (replicas > 1 && shard > 1 && per_node > 0 && !divides(shard, per_node) && !divides(per_node, shard)) {
    report.add("PLAN016", d, first({"dp_shard"}),
               fmt::format("shard groups of {} straddle nodes of {} GPUs unevenly", shard, per_node));
  }
}

// Options by which Megatron-LM and its forks cut a pipeline that does not divide.
bool splits_otherwise(std::string_view text) {
  for (const std::string_view option :
       {"pipeline-num-layers", "pipeline-model-parallel-layout", "pp-partition-method", "pipeline-split"}) {
    if (text.find(option) != std::string_view::npos) return true;
  }
  return false;
}

void plan_shape(const Sizes& in, Findings& report) {
  const Document& d = in.d;
  const FindingDetails unsure{.error_if = in.doubt};
  const double tp = in.get("tp"), pp = in.get("pp"), cp = in.get("cp"), ep = in.get("ep");
  for (const auto& [name, one] : in.all()) {
    // No steps, no experts: both are asked for, by runs that only evaluate and by models without experts.
    const bool may_be_none = name == "save_every" || name == "steps" || name == "experts" || name == "kv_heads";
    // -1 of all sizes: the checkpoint has them, which the program reads them from.
    const bool is_of_checkpoint = one.n == -1 && in.get("layers", 0) == -1 && in.get("heads", 0) == -1;
    const bool is_size =
        !may_be_none && !is_of_checkpoint && !(name == "dp_shard" && one.n == -1) && !(name == "global" && one.n == -1);
    if (is_size && one.n < 1)
      report.add("PLAN003", d, one.span, fmt::format("'{}' is {}, expected at least 1", d.cut(one.span), one.n), unsure);
  }
  if (tp < 1 || pp < 1 || cp < 1 || ep < 1) return;
  const double kv_heads = in.get("kv_heads", in.get("heads"));
  if (in.has("heads") && tp > 1 && (!divides(tp, in.get("heads")) || (!divides(tp, kv_heads) && !divides(kv_heads, tp)))) {
    report.add("PLAN004", d, in.find("tp")->span,
               fmt::format("tensor parallel {} does not divide {} heads and {} KV heads", tp, in.get("heads"), kv_heads), unsure);
  }
  if (in.get("layers", 0) > 0 && pp > 1 && !divides(pp, in.get("layers")) && !splits_otherwise(d.text)) {
    report.add("PLAN005", d, in.find("pp")->span, fmt::format("{} layers do not split over {} stages", in.get("layers"), pp), unsure);
  }
  if (in.has("layers") && pp > 1 && divides(pp, in.get("layers"))) {
    const double per_stage = in.get("layers") / pp;
    for (const char* size : {"chunk_layers", "chunks"}) {
      if (!in.has(size) || divides(in.get(size), per_stage)) continue;
      report.add("PLAN005", d, in.find(size)->span,
                 fmt::format("{} layers over {} stages are {} each, which do not split into virtual stages by {}", in.get("layers"),
                             pp, per_stage, in.get(size)),
                 unsure);
    }
  }
  if (in.has("sequence") && cp > 1 && !divides(2 * cp, in.get("sequence"))) {
    report.add("PLAN006", d, in.find("sequence")->span,
               fmt::format("sequence {} is no multiple of {}, which context parallel {} needs", in.get("sequence"), 2 * cp, cp),
               unsure);
  }
  if (in.has("experts") && ep > 1 && !divides(ep, in.get("experts"))) {
    report.add("PLAN007", d, in.find("ep")->span, fmt::format("{} experts do not divide over {} expert ranks", in.get("experts"), ep),
               unsure);
  }
}

void plan_batch(const LintSetup& setup, const Sizes& in, Findings& report) {
  const double ranks = data_ranks(in, static_cast<double>(setup.world()));
  const double micro = in.get("micro", 0), global = in.get("global", 0);
  if (ranks < 1 || micro < 1 || global < 1) return;
  const Sized& at = *in.find("global");
  const double unit = micro * ranks;
  if (in.has("accumulation") ? global != unit * in.get("accumulation") : !divides(unit, global)) {
    const std::string code = in.format == "megatron" ? "MEG002" : "PLAN002";
    const double below = std::floor(global / unit) * unit, above = below + unit;
    report.add(code, in.d, at.span,
               fmt::format("global batch {} is not micro {} × accumulation × {} data ranks", global, micro, ranks),
               {below > 0 ? fmt::format("nearest: {} or {}", below, above) : fmt::format("nearest: {}", above),
                "",
                {},
                {},
                in.doubt_of_ranks});
    return;
  }
  // Of v chunks a stage the bubble is a v-th (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters
  // Using Megatron-LM", section 2.2).
  const double accumulation = global / unit, pp = in.get("pp");
  const double of_chunk = in.get("chunk_layers", 0), layers = in.get("layers", 0);
  const double chunks = of_chunk > 0 && divides(of_chunk * pp, layers) ? layers / (of_chunk * pp) : std::max(1.0, in.get("chunks"));
  if (pp > 1 && accumulation * chunks < 4 * pp) {
    report.add("PLAN015", in.d, in.find("pp")->span,
               fmt::format("{} micro-batches through {} stages{}: about {:.0f} % of the step is bubble", accumulation, pp,
                           chunks > 1 ? fmt::format(" of {} chunks", chunks) : "", 100 * (pp - 1) / (accumulation * chunks + pp - 1)));
  }
}

std::string old_gpu(const LintSetup& setup) {
  if (!setup.context.gpu.empty()) return setup.context.gpu_has_bf16 ? "" : setup.context.gpu;
  for (const auto& d : setup.documents) {
    const std::string all = lower(d->text);
    for (const char* name : {"v100", "p100", "t4", "rtx2080", "titan"}) {
      for (const char* mark : {"gpu:", "accelerators: ", "constraint=", "-c "}) {
        if (all.find(std::string(mark) + name) != std::string::npos) return name;
      }
    }
  }
  return "";
}

void plan_precision(const LintSetup& setup, const Document& d, Findings& report) {
  TextSpan at{0, 0};
  bool uses_bf16 = false;
  const auto look = [&](std::string_view path, std::string_view value) {
    const TreeNode found = node(d.root, path);
    if (!found || found.value->kind != Value::Kind::kScalar || lower(found.text()) != value) return;
    uses_bf16 = true;
    at = value_span(d, *found.value);
  };
  if (d.is(file_kind::kDeepspeed)) look("bf16.enabled", "true");
  if (d.is(file_kind::kAccelerate)) look("mixed_precision", "bf16");
  if (d.takes_training_arguments() || d.is(file_kind::kAxolotl)) look("bf16", "true");
  if (d.is(file_kind::kTorchtitan)) look("training.mixed_precision_param", "bfloat16");
  if (d.is(file_kind::kPlan)) look("precision.compute", "bf16");
  for (const ScriptPart& part : d.parts) {
    for (const LaunchLine& line : part.lines) {
      const LaunchStage* run = line.find(LaunchProgram::kScript);
      const LaunchOption* bf16 = run == nullptr ? nullptr : run->find("bf16");
      if (bf16 == nullptr || is_of_a_branch(bf16->value)) continue;
      uses_bf16 = true;
      at = bf16->span;
      const LaunchOption* fp16 = run->find("fp16");
      if (fp16 != nullptr && !is_of_a_branch(fp16->value) && is_megatron(*run))
        report.add("PLAN008", d, fp16->span, "--fp16 and --bf16 are both given, expected one of them",
                   {.error_if = doubt_of_megatron(*run)});
    }
  }
  if (!uses_bf16) return;
  if (const std::string gpu = old_gpu(setup); !gpu.empty()) report.add("PLAN009", d, at, fmt::format("{} has no bf16", gpu));
}

void plan_file(const Document& d, Findings& report) {
  const Value& root = d.root;
  const std::string target = text(root, "launch.target");
  const Result<Plan> plan = plan_from_json(d.text, d.path);
  if (plan.ok() && !target.empty()) {
    EmitOptions options;
    options.job.settings.set("container.image", "image");  // it is said when the files are made, and no plan has it
    const Result<Artifacts> files = emit(&*plan, target, options);
    for (const Diagnostic& one : files.diagnostics) {
      if (one.severity != Severity::kError || one.code != code::kNoForm) continue;
      report.add("PLAN012", d, value_span(d, *node(root, "launch.target").value),
                 fmt::format("{} cannot express this plan: {}", target, one.message), {one.help, "", {}, {}});
    }
  }
  if (text(root, "verdict") == "tight" && real(root, "micro_batch").value_or(1) > 1 &&
      real(root, "gradient_accumulation").value_or(1) == 1) {
    report.add("PLAN013", d, value_span(d, *node(root, "micro_batch").value),
               "the plan is tight, and one micro-batch is the whole batch");
  }
  const double host = real(root, "memory.host_bytes_per_node").value_or(0),
               has_host = real(root, "hardware.host_memory_bytes").value_or(0);
  if (has_host > 0 && host > 0.8 * has_host) {
    report.add("PLAN018", d, value_span(d, *node(root, "memory.host_bytes_per_node").value),
               fmt::format("offload needs {:.0f} GiB of {:.0f} GiB host memory per node", host / (1 << 30), has_host / (1 << 30)));
  }
}

void plan_deepspeed(const Document& d, Findings& report) {
  struct Changed {
    std::string_view section, key, old, now, since;
  };
  static constexpr std::array<Changed, 3> kChanged = {
      {{"bf16", "check_grad_overflow", "false", "true", "June 2026"},
       {"zero_optimization.offload_optimizer", "pin_memory", "false", "true", "August 2026"},
       {"zero_optimization.offload_param", "pin_memory", "false", "true", "August 2026"}}};
  for (const Changed& one : kChanged) {
    const TreeNode section = node(d.root, one.section);
    if (!section || section.value->kind != Value::Kind::kMap || has(*section.value, one.key)) continue;
    report.add(
        "PLAN014", d, key_span(d, section),
        fmt::format("'{}.{}' is not given: its default was {} and is {} since {}", one.section, one.key, one.old, one.now, one.since));
  }
  for (const char* section : {"offload_param", "offload_optimizer"}) {
    const TreeNode path = node(d.root, fmt::format("zero_optimization.{}.nvme_path", section));
    if (!path || path.value->kind != Value::Kind::kScalar) continue;
    for (const char* shared : {"/home", "/nfs", "/lustre", "/gpfs", "/shared", "/fsx", "/mnt/nfs", "/weka"}) {
      const bool is_shared = path.text().rfind(shared, 0) == 0;
      if (is_shared)
        report.add("PLAN017", d, value_span(d, *path.value),
                   fmt::format("'{}' looks like a shared file system, NVMe offload needs a disk of the node", path.text()));
    }
  }
}

void plan_checkpoints(const LintSetup& setup, const Document& d, const std::vector<Sizes>& all, Findings& report) {
  const Directive* limit = nullptr;
  for (const auto& other : setup.documents) {
    for (const ScriptPart& part : other->parts) {
      if (const Directive* time = part.script.directive("time")) limit = time;
    }
  }
  const double plan_limit = real(d.root, "launch.time_limit_s").value_or(0);
  const bool is_plan = d.is(file_kind::kPlan) && plan_limit > 0;
  if (limit == nullptr && !is_plan) return;
  const std::string lost = limit != nullptr ? limit->value : fmt::format("{:.0f} s", plan_limit);
  const auto say = [&](TextSpan at) {
    report.add("PLAN019", d, at, fmt::format("the job ends after {} and saves no checkpoint: all of it can be lost", lost));
  };
  for (const Sizes& in : all) {
    const bool saves = in.has("save_every") && (in.format != "torchtitan" || is_true(d.root, "checkpoint.enable"));
    if (in.format == "torchtitan" && !is_true(d.root, "checkpoint.enable")) {
      say(has(d.root, "checkpoint.enable") ? value_span(d, *node(d.root, "checkpoint.enable").value) : TextSpan{0, 1});
    } else if (in.format == "megatron" && !saves) {
      say(in.find("micro") != nullptr ? in.find("micro")->span : TextSpan{0, 1});
    } else if (in.format == "plan" && !saves && is_plan) {
      say(key_span(d, node(d.root, "checkpoint")));
    }
  }
  if (d.takes_training_arguments() && lower(text(d.root, "save_strategy")) == "no")
    say(value_span(d, *node(d.root, "save_strategy").value));
}

}  // namespace

void check_plan_level(const LintSetup& setup, const Document& d, Findings& report) {
  const std::vector<Sizes> all = sizes_of(d);
  for (const Sizes& in : all) {
    if (in.empty()) continue;
    plan_mesh(setup, in, report);
    plan_shape(in, report);
    plan_batch(setup, in, report);
  }
  plan_precision(setup, d, report);
  plan_checkpoints(setup, d, all, report);
  if (d.is(file_kind::kPlan)) plan_file(d, report);
  if (d.is(file_kind::kDeepspeed)) plan_deepspeed(d, report);
  if (d.takes_training_arguments() && is_false(d.root, "average_tokens_across_devices") &&
      real(d.root, "gradient_accumulation_steps").value_or(1) > 1) {
    report.add("PLAN020", d, key_span(d, node(d.root, "average_tokens_across_devices")),
               "the loss is averaged per micro-batch and rank: with sequences of different length the result depends on how the batch "
               "is cut");
  }
}

}  // namespace distsetup::lint
