// DeepSpeed's JSON: "auto", batch arithmetic and the values of single keys, as DeepSpeedConfig takes them.
#include "codegen/lint/deepspeed_values.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

namespace distsetup::lint {
namespace {

// Filled in by the Hugging Face integration (transformers, integrations/deepspeed.py, trainer_config_process).
const std::set<std::string, std::less<>> kFilledByHf = {"train_batch_size",
                                                        "train_micro_batch_size_per_gpu",
                                                        "gradient_accumulation_steps",
                                                        "gradient_clipping",
                                                        "optimizer.params.lr",
                                                        "optimizer.params.betas",
                                                        "optimizer.params.eps",
                                                        "optimizer.params.weight_decay",
                                                        "scheduler.params.warmup_min_lr",
                                                        "scheduler.params.warmup_max_lr",
                                                        "scheduler.params.warmup_num_steps",
                                                        "scheduler.params.total_num_steps",
                                                        "fp16.enabled",
                                                        "bf16.enabled",
                                                        "amp.enabled",
                                                        "amp.opt_level",
                                                        "zero_optimization.reduce_bucket_size",
                                                        "zero_optimization.stage3_prefetch_bucket_size",
                                                        "zero_optimization.stage3_param_persistence_threshold"};
// And by accelerate (accelerate, utils/dataclasses.py DeepSpeedPlugin).
const std::set<std::string, std::less<>> kFilledByAccelerate = {"steps_per_print",
                                                                "zero_optimization.stage",
                                                                "zero_optimization.offload_optimizer.device",
                                                                "zero_optimization.offload_param.device",
                                                                "zero_optimization.offload_optimizer.nvme_path",
                                                                "zero_optimization.offload_param.nvme_path",
                                                                "zero_optimization.stage3_gather_16bit_weights_on_model_save"};
// Where DeepSpeed itself means something by the word.
const std::set<std::string, std::less<>> kOwnAuto = {
    "zero_optimization.zenflow.select_strategy", "zero_optimization.zenflow.select_interval",
    "zero_optimization.zenflow.update_interval", "expert_parallel.score_func", "pipeline.stages"};

bool starts_with(std::string_view text, std::string_view head) { return text.substr(0, head.size()) == head; }

// What plain DeepSpeed makes of "auto".
std::string auto_bites(std::string_view path) {
  const bool is_batch =
      path == "train_batch_size" || path == "train_micro_batch_size_per_gpu" || path == "gradient_accumulation_steps";
  if (is_batch) return "parse";
  const bool is_dropped = starts_with(path, "zero_optimization.") || starts_with(path, "fp16.") || starts_with(path, "bf16.");
  return is_dropped ? "silent" : "start";
}

struct Auto {
  std::string path;
  const Value* value;
};

void find_autos(const Value& value, const std::string& path, std::vector<Auto>& out) {
  if (value.kind == Value::Kind::kScalar && value.text == "auto") out.push_back({path, &value});
  for (const auto& [key, child] : value.entries) find_autos(child, path.empty() ? key : path + "." + key, out);
}

void check_autos(const LintSetup& setup, const Document& d, Findings& report) {
  std::vector<Auto> autos;
  find_autos(d.root, "", autos);
  const std::string consumer = setup.consumer(d);
  const bool is_said = !setup.context.consumer.empty() || consumer == "lightning";
  bool said = false;
  for (const Auto& one : autos) {
    if (kOwnAuto.count(one.path) > 0) continue;
    const TextSpan at = value_span(d, *one.value);
    const bool is_hf = kFilledByHf.count(one.path) > 0;
    const bool is_accelerate = is_hf || kFilledByAccelerate.count(one.path) > 0;
    if (!is_accelerate || (consumer == "hf" && !is_hf)) {
      report.add("DSJ002", d, at,
                 fmt::format("nothing fills '{}': \"auto\" is {}", one.path, is_accelerate ? "accelerate's here" : "no value of it"),
                 // A script of one's own may fill it.
                 {"",
                  auto_bites(one.path),
                  {},
                  consumer.empty() || is_accelerate ? std::nullopt : std::optional<Severity>(Severity::kError)});
    } else if (consumer == "deepspeed" || consumer == "lightning") {
      const std::string bites = auto_bites(one.path);
      const std::string what =
          bites == "silent" ? "is silently ignored by DeepSpeed itself, which takes its default" : "is no value for DeepSpeed itself";
      report.add("DSJ001", d, at, fmt::format("\"auto\" of '{}' {}", one.path, what),
                 {"", bites, {}, {}, is_said ? "" : "the script does not fill it in"});
    } else if (consumer.empty() && !said) {
      said = true;
      report.add("DSJ001", d, at,
                 "\"auto\": this file is for the Hugging Face Trainer or accelerate, which fill it; DeepSpeed alone does not",
                 {"check it for a script of your own with --consumer deepspeed", auto_bites(one.path), {}, Severity::kNote});
    }
  }
}

std::optional<long long> batch_key(const Value& root, std::string_view key) {
  const TreeNode at = node(root, key);
  if (!at || at.value->kind != Value::Kind::kScalar || at.value->quoted) return std::nullopt;
  return number(at.text());
}

// deepspeed --num_gpus 2 train.py --deepspeed_config FILE: the GPUs of a node, where one number of them is said for this file.
long long gpus_of_launcher(const LintSetup& setup, const Document& file) {
  const std::string base = file.path.substr(file.path.rfind('/') + 1);
  long long gpus = 0;
  for (const auto& d : setup.documents) {
    for (const ScriptPart& part : d->parts) {
      for (const LaunchLine& line : part.lines) {
        const LaunchStage *run = line.find(LaunchProgram::kDeepspeed), *script = line.find(LaunchProgram::kScript);
        if (run == nullptr || script == nullptr) continue;
        const std::string named = script->has("deepspeed_config") ? script->value("deepspeed_config") : script->value("deepspeed");
        if (named.substr(named.rfind('/') + 1) != base) continue;
        const long long here = number(run->value("num_gpus")).value_or(0);
        if (here < 1 || (gpus != 0 && here != gpus)) return 0;
        gpus = here;
      }
    }
  }
  return gpus;
}

void check_batch(const LintSetup& setup, const Document& d, Findings& report) {
  const Value& root = d.root;
  const bool has_auto = text(root, "train_batch_size") == "auto" || text(root, "train_micro_batch_size_per_gpu") == "auto" ||
                        text(root, "gradient_accumulation_steps") == "auto";
  const bool is_elastic = is_true(root, "elasticity.enabled");
  const auto train = batch_key(root, "train_batch_size"), micro = batch_key(root, "train_micro_batch_size_per_gpu"),
             accumulation = batch_key(root, "gradient_accumulation_steps");
  for (const char* key : {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}) {
    const auto n = batch_key(root, key);
    if (n && *n < 1) {
      report.add("PLAN003", d, value_span(d, *node(root, key).value), fmt::format("'{}' is {}, expected at least 1", key, *n),
                 {"", "parse", {}, {}, setup.consumer(d).empty() ? "no script puts another number in" : ""});
      return;
    }
  }
  const std::string consumer = setup.consumer(d);
  if (!has(root, "train_batch_size") && !has(root, "train_micro_batch_size_per_gpu") && !is_elastic && consumer != "lightning") {
    report.add("DSJ043", d, {d.offset(root.location), d.offset(root.location) + 1},
               "neither 'train_batch_size' nor 'train_micro_batch_size_per_gpu' is given: DeepSpeed stops",
               {.error_if = setup.context.consumer == "deepspeed" ? "" : "no script or trainer puts one in"});
    return;
  }
  int64_t ranks = setup.world();
  if (const auto sequence = real(root, "sequence_parallel_size"); sequence && *sequence >= 1) ranks /= static_cast<int64_t>(*sequence);
  if (has_auto || is_elastic || !train) return;
  const TextSpan at = value_span(d, *node(root, "train_batch_size").value);
  const auto is_not = [&](const std::string& what) {
    report.add("PLAN002", d, at, fmt::format("train_batch_size {} is {}", *train, what), {"", "parse", {}, {}});
  };
  if (ranks < 1) {  // nobody says how many there are
    int64_t of_rank = 0;
    const bool is_small = micro && accumulation && !__builtin_mul_overflow(*micro, *accumulation, &of_rank);
    if (is_small && *train % of_rank != 0)
      return is_not(fmt::format("no multiple of micro {} × accumulation {}, whatever the number of ranks", *micro, *accumulation));
    const long long gpus = has(root, "sequence_parallel_size") ? 0 : gpus_of_launcher(setup, d);
    int64_t of_node = 0;
    if (is_small && gpus > 0 && !__builtin_mul_overflow(of_rank, gpus, &of_node) && *train % of_node != 0) {
      is_not(fmt::format("no multiple of micro {} × accumulation {} × the {} GPUs of a node, however many nodes there are", *micro,
                         *accumulation, gpus));
    }
    return;
  }
  const auto wrong = [&](const std::string& product) { is_not(fmt::format("not {} × {} data ranks", product, ranks)); };
  if (micro && accumulation && *train != *micro * *accumulation * ranks)
    wrong(fmt::format("micro {} × accumulation {}", *micro, *accumulation));
  if (micro && !accumulation && *train % (*micro * ranks) != 0) wrong(fmt::format("a multiple of micro {}", *micro));
  if (!micro && accumulation && *train % (*accumulation * ranks) != 0)
    wrong(fmt::format("a multiple of accumulation {}", *accumulation));
  if (!micro && !accumulation && *train % ranks != 0) wrong("a whole number of sequences");
}

void check_buckets(const Document& d, Findings& report) {
  for (const char* name : {"reduce_bucket_size", "allgather_bucket_size"}) {
    const TreeNode at = node(d.root, fmt::format("zero_optimization.{}", name));
    if (!at || at.value->kind != Value::Kind::kScalar || at.text() == "auto") continue;
    const auto n = real_of(*at.value);
    const bool is_text = at.value->quoted && at.text().find_first_not_of("0123456789") != std::string::npos;
    if (!n || is_text || *n != std::floor(*n) || *n < 0) {
      report.add("DSJ021", d, value_span(d, *at.value),
                 fmt::format("'{}' is '{}', expected a whole number of elements from 0 on", name, at.text()), {"", "parse", {}, {}});
    } else if (std::string_view(name) == "allgather_bucket_size" && std::fmod(*n, 2) != 0) {
      report.add("DSJ021", d, value_span(d, *at.value), fmt::format("'{}' is {}, expected an even number", name, at.text()),
                 {"", "start", {}, {}});
    }
  }
}

void check_precision(const Document& d, Findings& report) {
  const Value& root = d.root;
  const std::string bf16 = has(root, "bf16") ? "bf16" : "bfloat16";
  const bool has_zero = real(root, "zero_optimization.stage").value_or(0) >= 1 || is_true(root, "zero_optimization");
  if (is_true(root, bf16 + ".enabled") && is_true(root, "fp16.enabled")) {
    report.add("PLAN008", d, key_span(d, node(root, "fp16.enabled")), "fp16 and bf16 are both enabled, expected one of them",
               {"", "parse", {}, {}});
  }
  if (is_true(root, bf16 + ".bf16_master_weights_and_grads") && !has_zero) {
    report.add("DSJ046", d, key_span(d, node(root, bf16 + ".bf16_master_weights_and_grads")),
               "'bf16_master_weights_and_grads' needs ZeRO stage 1, 2 or 3");
  }
  if (is_true(root, "fp16.fp16_master_weights_and_grads") && !has_zero) {
    report.add("DSJ046", d, key_span(d, node(root, "fp16.fp16_master_weights_and_grads")),
               "'fp16_master_weights_and_grads' needs ZeRO stage 1, 2 or 3");
  }
  if (is_true(root, bf16 + ".bf16_optimizer_states") && !is_true(root, bf16 + ".bf16_master_weights_and_grads")) {
    report.add("DSJ046", d, key_span(d, node(root, bf16 + ".bf16_optimizer_states")),
               "'bf16_optimizer_states' needs 'bf16_master_weights_and_grads'");
  }
  if (text(root, "gradient_allreduce_op") == "sum" && real(root, "zero_optimization.stage").value_or(0) == 3) {
    report.add("DSJ047", d, value_span(d, *node(root, "gradient_allreduce_op").value),
               "gradients are averaged in stage 3, 'sum' is refused");
  }
}

}  // namespace

void check_deepspeed_values(const LintSetup& setup, const Document& d, Findings& report) {
  if (!d.is(file_kind::kDeepspeed)) return;
  check_autos(setup, d, report);
  check_batch(setup, d, report);
  check_buckets(d, report);
  check_precision(d, report);
}

}  // namespace distsetup::lint
