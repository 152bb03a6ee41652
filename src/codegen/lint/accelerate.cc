// accelerate's configuration file outside fsdp_config: machines, rendezvous, parallelism_config, deepspeed_config.
#include "codegen/lint/accelerate.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "base/text.h"

namespace distsetup::lint {
namespace {

const std::vector<std::string> kDistributedTypes = {"NO",         "MULTI_CPU",   "MULTI_GPU", "MULTI_NPU",    "MULTI_MLU",
                                                    "MULTI_SDAA", "MULTI_MUSA",  "MULTI_XPU", "DEEPSPEED",    "FSDP",
                                                    "XLA",        "MEGATRON_LM", "MULTI_HPU", "MULTI_NEURON", "TP"};

// Whether an `accelerate launch` of the set-up has the flag; nothing when there is no such line.
std::optional<bool> launch_gives(const LintSetup& setup, std::string_view flag) {
  std::optional<bool> gives;
  for (const auto& other : setup.documents) {
    for (const ScriptPart& part : other->parts) {
      for (const LaunchLine& line : part.lines) {
        const LaunchStage* launch = line.find(LaunchProgram::kAccelerate);
        if (launch != nullptr) gives = gives.value_or(false) || launch->has(flag);
      }
    }
  }
  return gives;
}

void acc_machines(const LintSetup& setup, const Document& d, Findings& report) {
  const Value& root = d.root;
  const auto machines = real(root, "num_machines"), processes = real(root, "num_processes");
  if (processes && *processes < 1) {
    report.add(
        "ACC011", d, value_span(d, *node(root, "num_processes").value),
        fmt::format("num_processes is {}, expected at least 1", *processes),
        {.help = "write a number from 1 on",
         .error_if = launch_gives(setup, "num_processes").value_or(true) ? "accelerate launch is given no --num_processes" : ""});
  } else if (processes && setup.world() > 0 && static_cast<int64_t>(*processes) != setup.world() &&
             !launch_gives(setup, "num_processes").value_or(false)) {
    report.add("ACC001", d, value_span(d, *node(root, "num_processes").value),
               fmt::format("num_processes is {:.0f}, the job has {} nodes × {} GPUs = {}: it is the total of all machines", *processes,
                           setup.nodes(), setup.gpus_per_node(), setup.world()));
  }
  // The last machine is one below their number; torchrun's rank of a node beyond it joins nobody. pdsh asks for no rank.
  const auto rank = real(root, "machine_rank");
  const std::string starter = text(root, "deepspeed_config.deepspeed_multinode_launcher");
  const bool is_ranked = text(root, "distributed_type") != "DEEPSPEED" || starter == "standard";
  const bool is_said_there =
      launch_gives(setup, "machine_rank").value_or(false) || launch_gives(setup, "num_machines").value_or(false);
  if (rank && machines && *machines > 1 && *rank >= *machines && is_ranked) {
    report.add("ACC021", d, value_span(d, *node(root, "machine_rank").value),
               fmt::format("machine_rank is {:.0f}, and {:.0f} machines are counted from 0", *rank, *machines),
               {.error_if = is_said_there ? "accelerate launch is given neither --machine_rank nor --num_machines" : ""});
  }
  if (!machines || *machines <= 1) return;
  const std::optional<bool> address = launch_gives(setup, "main_process_ip");
  const bool by_hostfile = has(root, "deepspeed_config.deepspeed_hostfile");
  if (!has(root, "main_process_ip") && !by_hostfile && !address.value_or(false)) {
    report.add("ACC002", d, value_span(d, *node(root, "num_machines").value),
               fmt::format("{:.0f} machines and no main_process_ip", *machines),
               {"", "", {}, address ? std::optional<Severity>() : Severity::kWarning});
  }
  for (const auto& other : setup.documents) {
    if (other.get() == &d) break;
    if (!other->is(file_kind::kAccelerate) || !has(root, "machine_rank") ||
        text(other->root, "machine_rank") != text(root, "machine_rank"))
      continue;
    report.add("ACC003", d, value_span(d, *node(root, "machine_rank").value),
               fmt::format("machine_rank {} is also that of '{}'", text(root, "machine_rank"), other->path));
  }
}

// "0,1,3": the launcher sets CUDA_VISIBLE_DEVICES to it and starts num_processes divided by num_machines processes on the machine.
void acc_devices(const LintSetup& setup, const Document& d, Findings& report) {
  const TreeNode ids = node(d.root, "gpu_ids");
  const auto processes = real(d.root, "num_processes");
  if (!ids || ids.value->kind != Value::Kind::kScalar || !processes || is_true(d.root, "use_cpu")) return;
  const std::vector<std::string> devices = split_words(ids.text(), ',');
  const bool are_numbers = std::all_of(devices.begin(), devices.end(), [](const std::string& one) { return number(one).has_value(); });
  const double on_machine = *processes / std::max(1.0, real(d.root, "num_machines").value_or(1));
  if (devices.empty() || !are_numbers || on_machine <= static_cast<double>(devices.size())) return;
  if (launch_gives(setup, "num_processes").value_or(false) || launch_gives(setup, "gpu_ids").value_or(false)) return;
  report.add(
      "ACC016", d, value_span(d, *ids.value),
      fmt::format("gpu_ids names {} GPUs of a machine, and num_processes starts {:.0f} processes on it", devices.size(), on_machine));
}

void acc_mesh(const LintSetup& setup, const Document& d, Findings& report) {
  const TreeNode section = node(d.root, "parallelism_config");
  if (!section || section.value->kind != Value::Kind::kMap) return;
  const auto size = [&](std::string_view axis) {
    return real(*section.value, fmt::format("parallelism_config_{}_size", axis)).value_or(1);
  };
  const TextSpan at = key_span(d, section);
  double product = 1;
  for (const char* axis : {"dp_replicate", "dp_shard", "tp", "cp", "sp"}) {
    const double n = size(axis);
    if (n < 1) {
      report.add("ACC005", d, value_span(d, *node(*section.value, fmt::format("parallelism_config_{}_size", axis)).value),
                 fmt::format("'{}' is {}, expected at least 1", axis, n), {"", "parse", {}, {}});
      return;
    }
    product *= n;
  }
  if (size("cp") > 1 && size("sp") > 1) {
    report.add("ACC005", d, at, "illegal mesh: cp and sp are two ways to split a sequence, expected one of them",
               {"", "parse", {}, {}});
  }
  if ((size("tp") > 1 || size("cp") > 1) && size("dp_replicate") > 1 && size("dp_shard") <= 1) {
    report.add("ACC005", d, at, "illegal mesh: tp or cp with dp_replicate needs dp_shard above 1", {"", "parse", {}, {}});
  }
  const std::string backend = text(*section.value, "parallelism_config_sp_backend");
  if (!backend.empty() && backend != "deepspeed") {
    report.add("ACC005", d, value_span(d, *node(*section.value, "parallelism_config_sp_backend").value),
               fmt::format("illegal mesh: sp_backend '{}', expected deepspeed", backend), {"", "parse", {}, {}});
  }
  const auto processes = real(d.root, "num_processes");
  const std::string type = text(d.root, "distributed_type");
  if (processes && product != *processes && type != "DEEPSPEED") {
    const bool may_differ = launch_gives(setup, "num_processes").value_or(true);
    report.add("ACC005", d, at, fmt::format("the mesh has {:.0f} ranks, num_processes is {:.0f}", product, *processes),
               {.error_if = may_differ ? "accelerate launch is given no --num_processes" : ""});
  }
  const auto version = real(d.root, "fsdp_config.fsdp_version");
  if (type == "FSDP" && version.value_or(1) != 2) {
    // With shards alone, version 1 does what is asked for.
    const bool asks_for_more = product > size("dp_shard");
    report.add("ACC006", d, at, "parallelism_config needs FSDP version 2; in a file it is silently ignored with version 1",
               {"", "", {}, asks_for_more ? std::nullopt : std::optional<Severity>(Severity::kWarning)});
  }
}

// Below stage 3 (2 where none is given) parameters are whole on every rank.
void acc_offload(const Document& d, const Value& section, Findings& report) {
  const TreeNode device = node(section, "offload_param_device");
  const double stage = real(section, "zero_stage").value_or(2);
  if (!device || (device.text() != "cpu" && device.text() != "nvme") || stage >= 3) return;
  report.add(
      "ACC015", d, key_span(d, device),
      fmt::format("'offload_param_device' is silently ignored: parameter offload works in stage 3 only, the stage is {}", stage));
}

void acc_deepspeed(const Document& d, Findings& report) {
  const TreeNode section = node(d.root, "deepspeed_config");
  const std::string type = text(d.root, "distributed_type");
  if (!section || (!type.empty() && type != "DEEPSPEED")) return;
  if (section.value->kind == Value::Kind::kList || (section.value->kind == Value::Kind::kScalar && !section.text().empty())) {
    const bool names_file = section.text().find(".json") != std::string::npos;
    report.add("ACC020", d, value_span(d, *section.value), "'deepspeed_config' is a section of keys, and here it has none",
               {.help = names_file ? fmt::format("write deepspeed_config: {{deepspeed_config_file: {}}}", section.text()) : ""});
    return;
  }
  if (!has(*section.value, "deepspeed_config_file")) return acc_offload(d, *section.value, report);
  for (const char* name : {"zero_stage", "offload_optimizer_device", "offload_param_device", "offload_optimizer_nvme_path",
                           "offload_param_nvme_path", "gradient_accumulation_steps", "gradient_clipping", "zero3_save_16bit_model"}) {
    const TreeNode at = node(*section.value, name);
    if (at)
      report.add("ACC004", d, key_span(d, at),
                 fmt::format("'{}' belongs in the DeepSpeed JSON once deepspeed_config_file is given", name));
  }
  const std::string precision = text(d.root, "mixed_precision");
  if (!precision.empty() && precision != "no" && precision != "false") {
    report.add("ACC004", d, key_span(d, node(d.root, "mixed_precision")),
               "'mixed_precision' belongs in the DeepSpeed JSON once deepspeed_config_file is given");
  }
}

std::string last_part(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

// "fp16" or "bf16" as a script's own flags say it, and where; empty: they do not, or they say both.
std::pair<std::string, TextSpan> precision_of(const LaunchStage& script) {
  const auto is_on = [&script](std::string_view name) {
    const LaunchOption* one = script.find(name);
    const std::string word = one == nullptr ? "" : lower(one->value);
    return one != nullptr && (!one->has_value || word == "true" || word == "1" || word == "yes");
  };
  if (is_on("fp16") != is_on("bf16")) {
    const char* name = is_on("fp16") ? "fp16" : "bf16";
    return {name, script.find(name)->span};
  }
  const LaunchOption* own = script.find("mixed_precision");
  const bool is_one = own != nullptr && (own->value == "fp16" || own->value == "bf16") && !script.has("fp16") && !script.has("bf16");
  return is_one ? std::pair(own->value, own->span) : std::pair(std::string(), TextSpan{0, 0});
}

// The command's own word, else that of the configuration that it names.
std::string precision_of_launch(const LintSetup& setup, const LaunchStage& launch, std::string& where) {
  if (launch.has("mixed_precision")) {
    where = "accelerate launch";
    return lower(launch.value("mixed_precision"));
  }
  const std::string name = last_part(launch.value("config_file"));
  for (const auto& other : setup.documents) {
    if (name.empty() || !other->is(file_kind::kAccelerate) || last_part(other->path) != name) continue;
    where = "'" + other->path + "'";
    return lower(text(other->root, "mixed_precision"));
  }
  return "";
}

// fp16 here and bf16 there: the Trainer puts its own flag over the launcher's word (training_args.py).
void acc_precisions(const LintSetup& setup, const Document& d, Findings& report) {
  for (const ScriptPart& part : d.parts) {
    for (const LaunchLine& line : part.lines) {
      const LaunchStage *launch = line.find(LaunchProgram::kAccelerate), *script = line.find(LaunchProgram::kScript);
      if (launch == nullptr || script == nullptr) continue;
      std::string where;
      const std::string outer = precision_of_launch(setup, *launch, where);
      if (outer != "fp16" && outer != "bf16") continue;
      if (const auto [own, at] = precision_of(*script); !own.empty() && own != outer)
        report.add("ACC017", d, at, fmt::format("the script asks for {}, {} says {}", own, where, outer));
      for (const auto& other : setup.documents) {
        const bool is_named =
            other->takes_training_arguments() &&
            std::any_of(part.script.commands[line.command].expanded.begin(), part.script.commands[line.command].expanded.end(),
                        [&](const ShellWord& word) { return last_part(word.text) == last_part(other->path); });
        const std::string name = outer == "fp16" ? "bf16" : "fp16";
        if (is_named && is_true(other->root, name) && !is_true(other->root, outer))
          report.add("ACC017", *other, key_span(*other, node(other->root, name)),
                     fmt::format("the script asks for {}, {} says {}", name, where, outer));
      }
    }
  }
}

// --config_file takes accelerate's own file; DeepSpeed's is named in it, or by --deepspeed_config_file.
void acc_others_file(const LintSetup& setup, const Document& d, Findings& report) {
  for (const ScriptPart& part : d.parts) {
    for (const LaunchLine& line : part.lines) {
      const LaunchStage* launch = line.find(LaunchProgram::kAccelerate);
      const LaunchOption* file = launch == nullptr ? nullptr : launch->find("config_file");
      if (file == nullptr || file->value.empty()) continue;
      const bool is_deepspeeds = std::any_of(setup.documents.begin(), setup.documents.end(), [&](const auto& other) {
        return other->is(file_kind::kDeepspeed) && last_part(other->path) == last_part(file->value);
      });
      if (is_deepspeeds) report.add("ACC019", d, file->span, fmt::format("'{}' is DeepSpeed's own configuration", file->value));
    }
  }
}

// "--use_fsdp" and "--use_fsdp true"; of a variable nobody knows here what it says.
bool is_on_line(const LaunchOption* option) { return option != nullptr && (!option->has_value || lower(option->value) == "true"); }

void acc_two_ways(const Document& d, Findings& report) {
  for (const ScriptPart& part : d.parts) {
    for (const LaunchLine& line : part.lines) {
      const LaunchStage* launch = line.find(LaunchProgram::kAccelerate);
      const LaunchOption* first = nullptr;
      for (const std::string_view name : {"cpu", "multi_gpu", "tpu", "use_deepspeed", "use_fsdp"}) {
        const LaunchOption* one = launch == nullptr ? nullptr : launch->find(name);
        if (!is_on_line(one)) continue;
        if (first != nullptr)
          report.add("ACC022", d, one->span, fmt::format("accelerate launch takes one of {} and {}", first->spelled, one->spelled));
        if (first == nullptr) first = one;
      }
    }
  }
}

bool is_yaml_no(const Value& root) {
  const TreeNode at = node(root, "distributed_type");
  const std::string text = lower(at.text());
  return !at.value->quoted && (text == "no" || text == "false" || text == "off");
}

}  // namespace

void check_accelerate(const LintSetup& setup, const Document& d, Findings& report) {
  acc_precisions(setup, d, report);
  acc_others_file(setup, d, report);
  acc_two_ways(d, report);
  if (!d.is(file_kind::kAccelerate)) return;
  const Value& root = d.root;
  const std::string type = text(root, "distributed_type");
  if (text(root, "compute_environment") == "AMAZON_SAGEMAKER") return;  // other types, other keys
  const TextSpan top{d.offset(root.location), d.offset(root.location) + 1};
  if (type.empty()) {
    report.add("ACC009", d, top, "distributed_type is not given");
  } else if (is_yaml_no(root)) {
    // YAML makes false of it, and the launcher starts one process, as for NO.
  } else if (nearest_name(type, kDistributedTypes) != type ||
             std::find(kDistributedTypes.begin(), kDistributedTypes.end(), type) == kDistributedTypes.end()) {
    report.add("ACC009", d, value_span(d, *node(root, "distributed_type").value), fmt::format("unknown distributed_type '{}'", type),
               {suggest(type, kDistributedTypes), "", {}, {}, type == "TPU" ? "accelerate is 0.27 or later" : ""});
  }
  static const std::set<std::string> kPrecisions = {"no", "fp16", "bf16", "fp8", "false", "False", "null", ""};
  const std::string precision = text(root, "mixed_precision");
  if (kPrecisions.count(precision) == 0) {
    report.add(
        "ACC011", d, value_span(d, *node(root, "mixed_precision").value),
        fmt::format("unknown mixed_precision '{}', expected no, fp16, bf16 or fp8", precision),
        {.help = precision == "bfloat16" || precision == "float16" ? fmt::format("write {}", precision[0] == 'b' ? "bf16" : "fp16")
                                                                   : "write no, fp16, bf16 or fp8"});
  }
  if (const TreeNode at = node(root, "mixed_precision"); at && !at.value->quoted && at.text() == "no") {
    const TextSpan span = value_span(d, *at.value);
    report.add("ACC007", d, span, "'mixed_precision: no' without quotes is false to a YAML reader",
               {"", "", {{span.begin, span.end, "'no'"}}, {}});
  }
  // A key given twice is FIL002's: accelerate's reader takes the last, and the first says nothing.
  const bool is_type_twice = std::any_of(d.broken.begin(), d.broken.end(), [](const Diagnostic& one) {
    return one.code == code::kDuplicateKey && one.message.find("'distributed_type'") != std::string::npos;
  });
  for (const auto& [section, wanted] : {std::pair("fsdp_config", "FSDP"), std::pair("deepspeed_config", "DEEPSPEED"),
                                        std::pair("megatron_lm_config", "MEGATRON_LM")}) {
    const TreeNode at = node(root, section);
    const bool is_empty = !at || (at.value->entries.empty() && at.value->kind != Value::Kind::kScalar);
    if (is_empty || type.empty() || type == wanted || is_type_twice) continue;
    // One process has nothing to split, and stage 0 and NO_SHARD split nothing: the section is left over from another run.
    const Value& inside = *at.value;
    const bool is_whole = real(inside, "zero_stage").value_or(1) == 0 || real(inside, "zero_optimization.stage").value_or(1) == 0 ||
                          text(inside, "fsdp_sharding_strategy") == "NO_SHARD";
    const bool is_alone = real(root, "num_processes").value_or(2) <= 1 || is_whole;
    const std::string flag = "use_" + lower(wanted == std::string_view("MEGATRON_LM") ? "megatron_lm" : wanted);
    report.add("ACC012", d, key_span(d, at),
               fmt::format("'{}' is silently ignored: distributed_type is {}, not {}", section, type, wanted),
               {"",
                "",
                {},
                is_alone ? std::optional<Severity>(Severity::kWarning) : std::nullopt,
                launch_gives(setup, flag).value_or(false) ? "no accelerate launch is given --" + flag : ""});
  }
  acc_machines(setup, d, report);
  acc_devices(setup, d, report);
  acc_mesh(setup, d, report);
  acc_deepspeed(d, report);
}

}  // namespace distsetup::lint
