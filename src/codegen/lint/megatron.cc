// Megatron-LM's arguments, in a launch script or a list of their own. Sizes are plan_level.cc.
#include "codegen/lint/megatron.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/names.h"
#include "codegen/lint/caller_values.h"
#include "codegen/lint/misspelt.h"
#include "codegen/tables/name_table.h"

namespace distsetup::lint {
namespace {

constexpr std::string_view kIsMegatron = "the script is Megatron-LM's own, of a recent release";

void meg_overlap(const Document& d, const LaunchStage& run, Findings& report) {
  const bool is_fsdp = run.has("use_megatron_fsdp");
  if (const LaunchOption* gather = run.find("overlap_param_gather"); gather != nullptr && !is_fsdp) {
    std::string missing;
    if (!run.has("use_distributed_optimizer")) missing = "--use-distributed-optimizer";
    if (!run.has("overlap_grad_reduce")) missing += missing.empty() ? "--overlap-grad-reduce" : " and --overlap-grad-reduce";
    if (!missing.empty())
      report.add("MEG003", d, gather->span, fmt::format("--overlap-param-gather also needs {}", missing),
                 {"add " + missing, "", {}, {}, doubt_of_megatron(run)});
  }
  const std::string granularity = run.value("recompute_granularity");
  const bool has_method = run.has("recompute_method");
  if (granularity == "full" && (!has_method || !run.has("recompute_num_layers")) && !is_megatron_fork(run)) {
    report.add("MEG004", d, run.find("recompute_granularity")->span, "full recomputation needs a method and a number of layers",
               {.error_if = has_method ? std::string(kIsMegatron) : doubt_of_megatron(run)});  // the number had a default
  }
  if (granularity == "selective" && has_method) {
    report.add("MEG004", d, run.find("recompute_method")->span, "selective recomputation takes modules, no method",
               {.error_if = doubt_of_megatron(run)});
  }
  const bool is_tp_known = !run.has("tensor_model_parallel_size") || number(run.value("tensor_model_parallel_size")).has_value();
  const long long tp = number(run.value("tensor_model_parallel_size")).value_or(1);
  const long long ep = number(run.value("expert_model_parallel_size")).value_or(1);
  if (run.has("sequence_parallel") && is_tp_known && tp == 1) {
    report.add("MEG005", d, run.find("sequence_parallel")->span, "--sequence-parallel is silently ignored with tensor parallel 1");
  }
  if (run.has("num_experts") && tp > 1 && ep > 1 && !run.has("sequence_parallel")) {
    report.add("MEG006", d, run.find("expert_model_parallel_size")->span,
               "experts with tensor and expert parallelism need --sequence-parallel", {.error_if = doubt_of_megatron(run)});
  }
}

// Only Megatron-LM of recent years asks for it; a fork's parser, or an older one's, is told by its flags.
void meg_connections(const LintSetup& setup, const Document& d, const LaunchStage& run, Findings& report) {
  if (is_megatron_fork(run)) return;
  const bool is_fsdp = run.has("use_megatron_fsdp") || run.has("use_torch_fsdp2");
  const bool splits =
      number(run.value("tensor_model_parallel_size")).value_or(1) > 1 || number(run.value("context_parallel_size")).value_or(1) > 1;
  const EnvironmentSetting* set = setup.environment("CUDA_DEVICE_MAX_CONNECTIONS");
  const std::string& gpu = setup.context.gpu;
  const bool is_blackwell = gpu.find("B200") != std::string::npos || gpu.find("B300") != std::string::npos || gpu.find("GB") == 0;
  const bool is_script = d.is_script();
  if (set == nullptr && d.text.find("CUDA_DEVICE_MAX_CONNECTIONS") != std::string::npos)
    return;  // a container's --env, a comment on it
  if (splits && !is_fsdp && !is_blackwell && is_script && (set == nullptr || set->value != "1")) {
    report.add("MEG007", d, set != nullptr ? set->span : run.span,
               "CUDA_DEVICE_MAX_CONNECTIONS must be 1 for tensor or context parallelism before Blackwell");
  }
}

void meg_engines(const Document& d, const LaunchStage& run, Findings& report) {
  const auto refuse = [&](std::string_view engine, const LaunchOption* option, std::string_view supported) {
    if (option != nullptr)
      report.add("MEG008", d, option->span, fmt::format("{} does not support {}; supported: {}", engine, option->spelled, supported),
                 {.error_if = doubt_of_megatron(run)});
  };
  const auto above_one = [&](std::string_view name) { return number(run.value(name)).value_or(1) > 1 ? run.find(name) : nullptr; };
  const LaunchOption* format = run.find("ckpt_format");
  if (run.has("use_torch_fsdp2")) {
    constexpr std::string_view kSupported = "bf16 with tensor and context parallelism";
    refuse("torch FSDP2", above_one("pipeline_model_parallel_size"), kSupported);
    refuse("torch FSDP2", above_one("expert_model_parallel_size"), kSupported);
    refuse("torch FSDP2", run.find("use_distributed_optimizer"), kSupported);
    refuse("torch FSDP2", run.find("fp16"), kSupported);
    if (format != nullptr && format->value != "torch_dist" && format->value != "torch_dcp")
      refuse("torch FSDP2", format, "--ckpt-format torch_dist or torch_dcp");
  }
  if (run.has("use_megatron_fsdp") && (format == nullptr || format->value != "fsdp_dtensor")) {
    report.add("MEG008", d, format != nullptr ? format->span : run.find("use_megatron_fsdp")->span,
               fmt::format("Megatron-FSDP does not support --ckpt-format {}; supported: fsdp_dtensor",
                           format != nullptr ? format->value : "torch_dist (the default)"),
               {"add --ckpt-format fsdp_dtensor", "", {}, {}, doubt_of_megatron(run)});
  }
}

// megatron/training/arguments.py, validate_args.
void meg_positions(const Document& d, const ScriptPart& part, const LaunchStage& run, Findings& report) {
  const LaunchOption *length = run.find("seq_length"), *positions = run.find("max_position_embeddings");
  if (length == nullptr || positions == nullptr) return;
  const auto tokens = number(length->value), most = number(positions->value);
  if (!tokens || !most || *tokens <= *most) return;
  const bool is_open = comes_from_caller(d, part.script, *length) || comes_from_caller(d, part.script, *positions);
  report.add("MEG011", d, positions->span, fmt::format("--seq-length {} is more than --max-position-embeddings {}", *tokens, *most),
             {.error_if = is_open ? "the two stay as they are here" : doubt_of_megatron(run)});
}

// The schedule is counted over the decay's own number of iterations (megatron/core/optimizer_param_scheduler.py, get_lr). A few
// hundred iterations are a trial, whatever they are a part of.
void meg_decay(const Document& d, const LaunchStage& run, Findings& report) {
  constexpr long long kTrial = 1000, kManyTimes = 8;
  const LaunchOption* decay = run.find("lr_decay_iters");
  const auto steps = number(run.value("train_iters"));
  const std::string style = run.value("lr_decay_style");
  const auto over = decay == nullptr ? std::nullopt : number(decay->value);
  const bool falls = style.empty() || style == "linear" || style == "cosine";
  if (!over || !steps || *steps < kTrial || *over / *steps < kManyTimes || !falls) return;
  report.add("MEG012", d, decay->span,
             fmt::format("--lr-decay-iters {} is {} times --train-iters {}: the rate hardly falls", *over, *over / *steps, *steps));
}

// Without --kv-channels a head is hidden / heads wide (megatron/training/arguments.py, validate_args).
void meg_heads(const Document& d, const ScriptPart& part, const LaunchStage& run, Findings& report) {
  const LaunchOption *hidden = run.find("hidden_size"), *heads = run.find("num_attention_heads");
  if (hidden == nullptr || heads == nullptr || run.has("kv_channels")) return;
  const auto width = number(hidden->value), num = number(heads->value);
  if (!width || !num || *num < 1 || *width < 1 || *width % *num == 0) return;
  const bool is_open = comes_from_caller(d, part.script, *hidden) || comes_from_caller(d, part.script, *heads);
  report.add("MEG013", d, heads->span, fmt::format("{} heads do not divide the hidden size {}", *num, *width),
             {.error_if = is_open ? "the two stay as they are here" : doubt_of_megatron(run)});
}

// Its parser still takes it, and validate_args ends the program, in some releases with exit code 0. Megatron-DeepSpeed has kept it,
// and up to 2022 it was the name.
void meg_checkpointing(const Document& d, const LaunchStage& run, Findings& report) {
  const LaunchOption* option = run.find("checkpoint_activations");
  const std::string program = run.name.substr(run.name.rfind('/') + 1);
  const bool is_named = program.starts_with("pretrain_") && program.ends_with(".py");  // others have taken over its flags
  if (option == nullptr || !is_named || (option->has_value && lower(option->value) != "true")) return;
  for (const char* name : {"deepspeed", "deepspeed_config", "zero_stage", "deepspeed_activation_checkpointing", "ds_inference"}) {
    if (run.has(name)) return;
  }
  static constexpr std::array<std::string_view, 9> kLater = {
      "recompute_granularity", "recompute_activations", "use_distributed_optimizer", "use_mcore_models", "transformer_impl",
      "use_flash_attn",        "group_query_attention", "position_embedding_type",   "sequence_parallel"};
  const bool is_later = std::any_of(kLater.begin(), kLater.end(), [&run](std::string_view one) { return run.has(one); });
  report.add("MEG009", d, {option->span.begin, option->span.begin + option->spelled.size()},
             fmt::format("'{}' was removed: the program ends at once", option->spelled),
             {.help = "write --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
              .severity = is_later && program == "pretrain_gpt.py" ? std::optional<Severity>() : Severity::kWarning});
}

// megatron/training/arguments.py, validate_args: "can only specify one of lr-warmup-fraction and lr-warmup-iters".
void meg_warmup(const Document& d, const LaunchStage& run, Findings& report) {
  const LaunchOption* part = run.find("lr_warmup_fraction");
  for (const char* name : {"lr_warmup_iters", "lr_warmup_samples"}) {
    const LaunchOption* steps = run.find(name);
    const bool is_both = part != nullptr && steps != nullptr && !part->value.empty() && number(steps->value).value_or(0) > 0;
    if (!is_both) continue;
    report.add("MEG015", d, part->span,
               fmt::format("'{}' stands beside '{}': the program takes one of them", part->spelled, steps->spelled),
               {.help = "take one of them out", .error_if = doubt_of_megatron(run)});
  }
}

void meg_removed(const Document& d, const LaunchStage& run, Findings& report) {
  struct Removed {
    std::string_view old, now;
  };
  static constexpr std::array<Removed, 3> kRemoved = {{{"batch_size", "--micro-batch-size"},
                                                       {"model_parallel_size", "--tensor-model-parallel-size"},
                                                       {"warmup", "--lr-warmup-fraction"}}};
  for (const Removed& one : kRemoved) {
    const LaunchOption* option = run.find(one.old);
    if (option == nullptr) continue;
    const TextSpan at{option->span.begin, option->span.begin + option->spelled.size()};
    // Scripts of the old release have all of its names.
    const bool is_recent = run.has("micro_batch_size") || run.has("tensor_model_parallel_size") || run.has("lr_warmup_fraction");
    const bool may_have_it = is_megatron_fork(run) || run.name.find("pretrain_gpt") == std::string::npos || !is_recent;
    report.add("MEG009", d, at, fmt::format("'{}' was removed", option->spelled),
               {fmt::format("use {}", one.now),
                "",
                {{at.begin, at.end, std::string(one.now)}},
                may_have_it ? std::optional<Severity>(Severity::kWarning) : std::nullopt});
  }
}

// Its parser has no arguments by place: what no option takes ends the program. Of another script's parser that is not known.
void meg_words(const Document& d, const LaunchStage& run, Findings& report) {
  const std::vector<NameEntry>& known = *name_table("megatron-lm").type("");
  const std::string program = run.name.substr(run.name.rfind('/') + 1);
  if (!program.starts_with("pretrain_") || !program.ends_with(".py")) return;  // ms-swift takes --sequence_parallel true
  const bool is_own = doubt_of_megatron(run).empty();
  for (const LaunchOption& option : run.options) {
    const NameEntry* entry = find_name(known, option.spelled);
    const bool takes_several = entry == nullptr || entry->type.empty() || entry->type.back() == '*' || entry->type.back() == '?';
    const bool is_plain = option.value.find_first_of("$`(){}<>|") == std::string::npos;
    // Megatron-DeepSpeed's takes a number for each group of layers (its arguments.py: nargs='+').
    const bool is_of_deepspeed = option.name.starts_with("num_experts") && run.has("deepspeed");
    if (takes_several || is_of_deepspeed || !option.has_value || !is_plain) continue;
    std::string words = fmt::format("{}", fmt::join(option.more, " "));
    const bool is_flag = entry->type == "flag";
    if (is_flag) words = option.value + (words.empty() ? "" : " ") + words;
    if (words.empty() || (is_flag && !is_own)) continue;
    report.add("MEG014", d, option.span,
               fmt::format("{} takes {}: the parser stops at '{}'", option.spelled, is_flag ? "no value" : "one value", words),
               {.help = is_flag ? "take it out" : "quote a value with blanks in it", .error_if = doubt_of_megatron(run)});
  }
}

}  // namespace

bool is_megatron(const LaunchStage& stage) {
  if (stage.program != LaunchProgram::kScript) return false;
  int marks = 0;
  for (const char* name : {"tensor_model_parallel_size", "pipeline_model_parallel_size", "use_distributed_optimizer",
                           "num_attention_heads", "micro_batch_size", "use_megatron_fsdp", "use_torch_fsdp2", "recompute_granularity",
                           "sequence_parallel", "ckpt_format", "lr_decay_style"}) {
    marks += stage.has(name) ? 1 : 0;
  }
  const std::string program = stage.name.substr(stage.name.rfind('/') + 1);
  const bool is_named = program.rfind("pretrain_", 0) == 0 || stage.name.find("megatron") != std::string::npos;
  return marks >= 2 || (is_named && marks >= 1) || (is_named && stage.has("model_parallel_size")) ||
         (is_named && stage.has("batch_size"));
}

bool is_megatron_fork(const LaunchStage& run) {
  for (const char* name :
       {"deepspeed", "deepspeed_config", "zero_stage", "data_impl", "moe_expert_parallel_size", "tokenizer_name_or_path",
        "pp_partition_method", "no_pipeline_parallel", "pipe_parallel_size", "model_parallel_size", "checkpoint_activations"}) {
    if (run.has(name)) return true;
  }
  const std::vector<NameEntry>& known = *name_table("megatron-lm").type("");
  const auto num_own = std::count_if(run.options.begin(), run.options.end(), [&known](const LaunchOption& one) {
    const bool is_long = one.spelled.rfind("--", 0) == 0 && one.spelled.find('$') == std::string::npos;
    return is_long && !takes_option(known, one.spelled, false) && misspelt_option(known, one.spelled).empty();
  });
  return num_own > 0;
}

std::string doubt_of_megatron(const LaunchStage& run) {
  static constexpr std::array<std::string_view, 7> kScripts = {"pretrain_gpt.py",   "pretrain_bert.py", "pretrain_t5.py",
                                                               "pretrain_mamba.py", "pretrain_vlm.py",  "pretrain_retro.py",
                                                               "pretrain_ict.py"};
  const std::string program = run.name.substr(run.name.rfind('/') + 1);
  const bool is_own = std::find(kScripts.begin(), kScripts.end(), program) != kScripts.end();
  return is_own && !is_megatron_fork(run) ? "" : std::string(kIsMegatron);
}

void check_megatron(const LintSetup& setup, const Document& d, Findings& report) {
  for (const ScriptPart& part : d.parts) {
    for (const LaunchLine& line : part.lines) {
      const LaunchStage* run = line.find(LaunchProgram::kScript);
      if (run == nullptr || !is_megatron(*run)) continue;
      meg_overlap(d, *run, report);
      meg_connections(setup, d, *run, report);
      meg_engines(d, *run, report);
      meg_positions(d, part, *run, report);
      meg_decay(d, *run, report);
      meg_heads(d, part, *run, report);
      meg_checkpointing(d, *run, report);
      meg_removed(d, *run, report);
      meg_warmup(d, *run, report);
      meg_words(d, *run, report);
    }
  }
}

}  // namespace distsetup::lint
