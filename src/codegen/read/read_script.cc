#include "codegen/read/read_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "base/tree_builder.h"
#include "codegen/read/batch_keys.h"
#include "codegen/read/best_table.h"
#include "codegen/read/counted_keys.h"
#include "codegen/read/job_steps.h"
#include "codegen/read/manifest.h"
#include "codegen/read/named_method.h"
#include "codegen/read/other_devices.h"
#include "codegen/read/override_keys.h"
#include "codegen/read/own_arguments.h"
#include "codegen/read/script_words.h"
#include "codegen/read/started_scripts.h"
#include "codegen/read/visible_gpus.h"
#include "codegen/read/xtuner.h"
#include "codegen/shell/starts_training.h"
#include "codegen/shell/words.h"
#include "codegen/tables/load_table.h"

namespace distsetup {
namespace {

using foreign::LaunchLine;
using foreign::LaunchOption;
using foreign::LaunchProgram;
using foreign::LaunchStage;

const std::string kDirectives = "slurm/directives.yaml", kManifest = "launchers/kubernetes.yaml", kTask = "launchers/skypilot.yaml",
                  kPbsLines = "launchers/pbs.yaml", kLsfLines = "launchers/lsf.yaml", kHosts = "launchers/hostfile.yaml",
                  kVariables = "launchers/environment.yaml";

class ScriptReader {
 public:
  ScriptReader(const TemplateSet& templates, const foreign::Document& document)
      : templates_(templates), file_(document.path), source_(document.source()), runs_(document) {}

  void directives(const foreign::ScriptPart& part) {
    const foreign::ShellScript& script = part.script;
    if (script.hetjob.end > 0) {
      diagnostics_.push_back(error(code::kUnknownValue, source_.at(script.hetjob.begin),
                                   "'#SBATCH hetjob': the parts of the job have nodes of their own, and a plan has nodes of one kind",
                                   "convert the part that trains, as a job of its own"));
    }
    const bool is_narrowed = trains_on_a_part(part) || trains_on_open_nodes(part);
    const long long gpus_of_step = gpus_of_steps(part);
    std::vector<FoundKey> keys;
    std::map<std::pair<std::string_view, bool>, const foreign::Directive*> last;
    for (const foreign::Directive& one : script.directives) {
      if (!one.is_late) last[{one.name, one.is_of_more}] = &one;
    }
    for (const foreign::Directive& one : script.directives) {
      if (one.is_late || last[{one.name, one.is_of_more}] != &one || (one.name == "nodes" && is_narrowed)) continue;
      keys.push_back(found(one.name, one.value, !one.value.empty(), one.span));
      if (one.name == "gres") keys.back().text = as_gpus(one.value);
      if (one.name == "gres" && !keys.back().text.starts_with("gpu") && one.value.find_first_of("$`") == std::string::npos)
        keys.back().unknown = "it asks for no GPU";
      const bool is_of_node = one.name == "gres" || one.name == "gpus-per-node";
      if (is_of_node && gpus_of_step > 0) keys.pop_back();  // what the step takes of them counts
      if (one.name == "gpus-per-task" || one.name == "gpus") count_gpus(script, keys.back());
    }
    gpus_of_step_ = gpus_of_step;
    if (const foreign::Directive* gpus = script.directive("gpus-per-node"); gpus != nullptr && gpus_of_step == 0) {
      const std::string count = gpus->value.substr(gpus->value.rfind(':') + 1);
      if (foreign::number(count)) gpus_of_job_ = count;
    }
    has_directives_ = !keys.empty();
    has_gpus_ = std::any_of(keys.begin(), keys.end(), [](const FoundKey& one) { return one.key.find("gpu") != std::string::npos; }) ||
                script.directive("gres") != nullptr || script.directive("gpus-per-node") != nullptr;
    if (!keys.empty()) keys_of(kDirectives, std::move(keys));
  }

  void batch(const std::string& table, std::vector<FoundKey> keys) {
    nodes_of_batch_ = std::max(nodes_of_batch_, count_of(keys, "nnodes"));
    gpus_of_batch_ = std::max(gpus_of_batch_, count_of(keys, "gpus_per_node"));
    keys_of(table, std::move(keys));
  }

  // An srun that trains nothing (srun --nodes=1 hostname) says nothing of the run.
  void lines(const foreign::ScriptPart& part) {
    constexpr size_t kMaxRuns = 16;  // what starts more than a few different runs is no configuration of one
    const bool is_under_ray = has_ray(part.script);
    std::set<std::string> seen;
    OneTraining training;
    Reading gpus;
    append(diagnostics_, undecided_commands(source_, part.script));
    append(diagnostics_, runs_.started_again(source_, part));
    for (const LaunchLine& line : part.lines) {
      if (is_server(part.script.commands[line.command]) || !runs_.is_run(part, line)) continue;
      std::string words;
      for (const foreign::ShellWord& word : part.script.commands[line.command].expanded) words += word.text + '\n';
      if (!seen.insert(std::move(words)).second || seen.size() > kMaxRuns) continue;
      const LaunchStage* srun = line.find(LaunchProgram::kSrun);
      const bool is_helper = srun != nullptr && !srun->has("multi_prog") && !foreign::starts_training(part.script, part.lines, line) &&
                             !foreign::starts_script_inside(part.script, line);
      // What summarises on one node beside what runs on all of them.
      const bool is_beside = !is_under_ray && nodes_of_part(part, line) != 0 && !trains_on_a_part(part);
      if (is_helper || is_beside) continue;
      const size_t first = readings_.size();
      for (const LaunchStage& stage : line.stages) read_stage(stage, part, line, is_under_ray);
      append(diagnostics_, training.take(source_, line, readings_, first));
      gpus = visible_gpus(source_, part, line, file_);
      tell_started(line);
    }
    if (seen.size() != 1) return;  // several runs see several sets
    const bool is_only_lost = gpus.fields.empty() && !readings_.empty();
    if (!is_only_lost) return add(std::move(gpus));
    readings_.back().lost.insert(readings_.back().lost.end(), gpus.lost.begin(), gpus.lost.end());
  }

  // bash run.sh, where nothing else trains.
  void helpers(const foreign::Document& document) {
    if (runs_.trains_here()) return;
    for (const foreign::StartedScript& one : foreign::started_scripts(document)) {
      const bool is_other_job = one.is_submitted && has_directives_;  // a job that submits others
      if (!one.is_of_launcher && !is_other_job) add_started(started_key(source_, one.path, one.at));
    }
  }

  // `has_no_defaults`: the tool that starts this one has its own.
  void keys_of(const std::string& table, std::vector<FoundKey> keys, bool has_no_defaults = false) {
    Result<Reading> reading = reading_by(templates_, table, {nullptr, std::move(keys), nullptr}, file_);
    if (reading.ok() && has_no_defaults) std::erase_if(reading->fields, [](const auto& one) { return one.second.is_assumed; });
    add(std::move(reading));
  }

  // An option that is given twice counts as it stands last. `as_spelled`: under the name with its own dashes inside.
  std::vector<FoundKey> options_of(const LaunchStage& stage, bool as_spelled = false) const {
    std::vector<FoundKey> keys;
    std::map<std::string_view, const LaunchOption*> last;
    for (const LaunchOption& option : stage.options) last[option.name] = &option;
    for (const LaunchOption& option : stage.options) {
      if (last[option.name] != &option && stage.program != LaunchProgram::kMpirun) continue;
      keys.push_back(found(option.name, option.value, option.has_value, option.span));
      if (as_spelled) keys.back().key = option.spelled.substr(std::min(option.spelled.find_first_not_of('-'), option.spelled.size()));
      if (option.more.empty()) continue;
      keys.back().items = option.more;
      keys.back().items.insert(keys.back().items.begin(), option.value);
    }
    return keys;
  }

  Result<std::vector<Reading>> take() {
    if (has_error(diagnostics_)) return diagnostics_;
    return {std::move(readings_), std::move(diagnostics_)};
  }

 private:
  FoundKey found(const std::string& key, const std::string& given, bool has_value, const foreign::TextSpan& span) const {
    const std::string& value = !gpus_of_job_.empty() && (given == "$SLURM_GPUS_PER_NODE" || given == "${SLURM_GPUS_PER_NODE}")
                                   ? gpus_of_job_  // what SLURM sets it to
                                   : given;
    FoundKey one;
    one.key = key;
    one.text = has_value ? value : "true";
    one.stands_alone = !has_value;
    one.at = source_.at(span.begin);
    if (is_placeholder(value)) one.unknown = "a placeholder that was not filled in";
    const size_t dollar = value.find_first_of("$`");
    one.is_maybe = foreign::is_of_a_branch(value);
    if (one.is_maybe) one.text = "(in a branch)", one.unknown = "only the running script knows whether it is given";
    if (dollar != std::string::npos && !one.is_maybe)
      one.unknown = fmt::format("only the running script knows {}", value.substr(dollar));
    return one;
  }

  // "train.py settings.yaml --lr 1e-5", "train.py --config settings.yaml --lr 1e-5"
  static bool names_settings(const LaunchStage& stage) {
    const auto is_file = [&stage](const foreign::ShellWord& word) {
      // "--dataset a.json b.json": the second of two files is no settings, either.
      const auto has = [&word](const LaunchOption& one) {
        return is_settings_file(one.value) && std::find(one.more.begin(), one.more.end(), word.text) != one.more.end();
      };
      return is_settings_file(word.text) && std::none_of(stage.options.begin(), stage.options.end(), has);
    };
    return is_settings_file(stage.value("config")) || is_settings_file(stage.value("config_file")) ||
           std::any_of(stage.positionals.begin(), stage.positionals.end(), is_file);
  }

  void add(Result<Reading> reading) {
    append(diagnostics_, reading.diagnostics);
    if (reading.ok() && (!reading->fields.empty() || !reading->lost.empty())) readings_.push_back(std::move(*reading));
  }

  void add_open(Reading reading, const std::vector<LostKey>& open) {
    reading.lost.insert(reading.lost.end(), open.begin(), open.end());
    add(std::move(reading));
  }

  // name=value and a.b=value behind a script's name.
  std::vector<FoundKey> overrides_of(const LaunchStage& stage) const {
    std::vector<FoundKey> keys;
    for (const foreign::ShellWord& word : stage.positionals)
      if (auto set = override_in(word.text)) keys.push_back(found(set->first, set->second, true, word.span));
    return keys;
  }

  // What the table says of the program itself.
  void add_program(const LaunchStage& stage, Reading& reading) {
    if (reading.table.empty()) return;  // of a script of one's own
    const auto table = load_read_table(templates_, reading.table, source_.at(stage.span.begin));
    if (!table.ok()) return append(diagnostics_, table.diagnostics);
    std::string_view name = stage.name;
    if (name.ends_with(".py")) name.remove_suffix(3);
    name = name.substr(name.find_last_of("/.") + 1);
    const auto& rows = (*table)->programs;
    const bool is_named = std::any_of(rows.begin(), rows.end(), [name](const ProgramRow& row) { return row.program == name; });
    for (const ProgramRow& row : rows) {
      if (row.program != (is_named ? name : "*")) continue;
      for (const auto& [field, text] : row.fields) reading.fields[field] = {Json(text), stage.name, source_.at(stage.span.begin)};
      if (row.drop.empty()) continue;
      reading.lost.push_back({"program", stage.name, row.drop, source_.at(stage.span.begin)});
      reading.fields.erase("launch.target");  // whose files start the program that the table is about
    }
  }

  // deepspeed --module openrlhf.cli.train_sft --zero_stage 3: the launcher says what the names alone leave open.
  void name_backend(const LaunchStage& stage, const LaunchLine& line, std::vector<FoundKey>& keys) const {
    const bool is_open = stage.has("zero_stage") && !stage.has("backend") && stage.name.find("openrlhf") != std::string::npos;
    if (!is_open || line.find(LaunchProgram::kDeepspeed) == nullptr) return;
    keys.push_back(found("backend", "deepspeed", true, stage.span));
    keys.back().is_assumed = true;
  }

  // What scripts of one's own under the deepspeed launcher have in common: deepspeed.add_config_arguments, and a stage beside it.
  void engine(const std::vector<FoundKey>& keys, Reading& script) {
    name_file_of_deepspeed(script);
    std::vector<FoundKey> own;
    for (const FoundKey& one : keys) {
      const bool is_stage = one.key == "zero_stage" && one.unknown.empty(), is_switch = one.key == "deepspeed" || one.key == "offload";
      if (is_stage || (is_switch && one.stands_alone)) own.push_back(one);
    }
    if (std::none_of(own.begin(), own.end(), [](const FoundKey& one) { return one.key == "deepspeed"; })) return;
    // DeepSpeed-Chat's --offload moves what its stage can move (dschat/utils/ds_utils.py, get_train_ds_config); another's may be
    // anything.
    const auto has = [&keys](std::string_view key) {
      return std::any_of(keys.begin(), keys.end(), [key](const FoundKey& one) { return one.key == key; });
    };
    const bool is_chat = has("data_split") || has("num_padding_at_beginning") || (has("max_seq_len") && has("num_warmup_steps"));
    if (!is_chat) std::erase_if(own, [](const FoundKey& one) { return one.key == "offload"; });
    std::erase_if(script.lost, [&own](const LostKey& lost) {
      return std::any_of(own.begin(), own.end(), [&lost](const FoundKey& one) { return one.key == lost.key; });
    });
    keys_of("launchers/deepspeed.yaml", std::move(own));
  }

  void tell_started(const LaunchLine& line) {
    if (std::optional<LostKey> lost = started_script(source_, line)) add_started(std::move(*lost));
  }
  void add_started(LostKey lost) {
    if (readings_.empty() || readings_.back().tool != lost.text) readings_.push_back(unread({}, file_, lost.text));
    readings_.back().lost.push_back(std::move(lost));
  }

  void read_stage(const LaunchStage& stage, const foreign::ScriptPart& part, const LaunchLine& line, bool is_under_ray) {
    std::vector<FoundKey> keys = options_of(stage);
    if (stage.program == LaunchProgram::kOther) return add(unread(keys, file_, stage.name));
    const bool has_own_names = stage.name.ends_with("llamafactory-cli");  // key=value is one of its arguments, over those of its file
    if (stage.program == LaunchProgram::kScript && has_own_names) {
      for (FoundKey& one : overrides_of(stage)) {
        if (one.text != "null") keys.push_back(std::move(one));
      }
    } else if (stage.program == LaunchProgram::kScript) {
      if (const std::vector<FoundKey> overrides = overrides_of(stage); !overrides.empty()) {
        Result<Reading> over = reading_of_overrides(templates_, stage.name, overrides, file_);
        if (over.ok() && stage.options.empty())
          append(diagnostics_, apply_named_method(stage, overrides, source_.at(stage.span.begin), *over));
        add(std::move(over));
      }
    }
    if (stage.program == LaunchProgram::kSrun && !has_gpus_) count_gpus_of_step(keys);
    if (stage.program == LaunchProgram::kSrun && is_step_of_one_node(line)) std::erase_if(keys, is_count_of_step);
    if (stage.program == LaunchProgram::kSrun && !has_directives_) count_nodes_of_step(keys);
    if (stage.program == LaunchProgram::kSrun && gpus_of_step_ > 0) {
      const auto per_task = std::find_if(keys.begin(), keys.end(), [](const FoundKey& one) { return one.key == "gpus_per_task"; });
      if (per_task != keys.end()) per_task->key = "gpus_per_node", per_task->text = std::to_string(gpus_of_step_);
    }
    const bool is_jsrun = stage.program == LaunchProgram::kMpirun && stage.name.ends_with("jsrun");
    if (is_jsrun) count_resource_sets(keys, nodes_of_batch_);
    if (stage.program == LaunchProgram::kMpirun && !is_jsrun) count_launchers(part, line, gpus_of_batch_, keys);
    if (stage.program == LaunchProgram::kDeepspeed) count_included(keys);
    if (stage.program == LaunchProgram::kAccelerate) count_processes_of_machine(part.script, keys);
    for (const LaunchOption& one : stage.defaults) keys.push_back(found(one.name, one.value, true, one.span));
    if (has_directives_) std::erase_if(keys, [](const FoundKey& one) { return is_of_actor(one.key); });
    if (is_under_ray && stage.program == LaunchProgram::kSrun) keys.clear();
    if (const foreign::ShellWord* file = file_of_tool(stage, line); file != nullptr)
      keys.push_back(found("config", file->text, true, file->span));
    if (is_xtuner(stage)) return add(reading_of_xtuner(stage, keys, file_, source_.at(stage.span.begin)));
    const std::vector<LostKey> open = open_words(source_, stage);
    const std::string table = table_of(stage.program);
    if (!table.empty() && !keys.empty()) keys_of(table, std::move(keys), stage.name.ends_with("llamafactory-cli"));
    if (!table.empty() || keys.empty()) {
      if (line.stages.size() > 1 && !open.empty()) add_open(unread({}, file_, stage.name), open);
      return;
    }
    name_backend(stage, line, keys);
    Result<Reading> best = reading_of_program(templates_, stage.name, keys, file_);
    const bool is_read = !best.ok() || !best->tool.empty();
    // What a file beside the flags leaves to its tool's defaults is not known here.
    const bool is_part = names_settings(stage) || may_set_more(open);
    if (best.ok() && is_part) {
      drop_assumed(*best);
      best->is_over_file = names_settings(stage);
      if (best->is_over_file) best->given = keys;
    }
    if (best.ok() && is_read) add_program(stage, *best);
    if (best.ok() && is_read && !is_part) name_plain_trainer(line, source_.at(stage.span.begin), *best);
    if (best.ok() && is_read) append(diagnostics_, apply_named_method(stage, keys, source_.at(stage.span.begin), *best));
    const bool is_deepspeeds = line.find(LaunchProgram::kDeepspeed) != nullptr || stage.has("deepspeed_config");
    if (best.ok() && best->table.empty() && is_deepspeeds) engine(keys, *best);
    append(diagnostics_, best.diagnostics);
    if (!best.ok()) return;
    if (is_read) tell_words_behind(source_, stage, *best);
    if (is_read) return add_open(std::move(*best), open);
    // python -m verl.trainer.main_ppo --config-name grpo: the name of the program is all that is known of it.
    Reading other = unread(keys, file_, stage.name);
    if (names_settings(stage)) other.given = keys;
    if (stage.has("config_name")) append(diagnostics_, apply_named_method(stage, keys, source_.at(stage.span.begin), other));
    add_open(std::move(other), open);
  }

  const TemplateSet& templates_;
  std::string file_;
  const SourceText& source_;
  RunLines runs_;
  bool has_directives_ = false;                       // of SLURM
  long long nodes_of_batch_ = 0, gpus_of_batch_ = 0;  // of PBS and LSF
  bool has_gpus_ = false;                             // by a directive
  std::string gpus_of_job_;                           // of a node, by --gpus-per-node
  long long gpus_of_step_ = 0;                        // GPUs of a node, where the steps that train take others than the job has
  std::vector<Reading> readings_;
  Diagnostics diagnostics_;
};

}  // namespace

Result<std::vector<Reading>> read_script(const TemplateSet& templates, const foreign::Document& document) {
  if (Diagnostics other = other_devices(document); has_error(other)) return other;
  ScriptReader reader(templates, document);
  for (const foreign::ScriptPart& part : document.parts) {
    reader.directives(part);
    if (!part.script.pbs.empty()) reader.batch(kPbsLines, keys_of_pbs(document, part.script.pbs));
    if (!part.script.lsf.empty()) reader.batch(kLsfLines, keys_of_lsf(document, part.script.lsf));
    reader.lines(part);
  }
  reader.helpers(document);
  return with_what_is_unread(document, reader.take());
}

Result<std::vector<Reading>> read_lines(const TemplateSet& templates, const foreign::Document& document) {
  ScriptReader reader(templates, document);
  if (document.is(file_kind::kHostfile)) reader.keys_of(kHosts, keys_of_hostfile(document));
  if (document.is(file_kind::kEnvironment)) reader.keys_of(kVariables, keys_of_environment(document));
  return reader.take();
}

Result<std::vector<Reading>> read_manifest(const TemplateSet& templates, const foreign::Document& document) {
  if (has_error(document.broken)) return document.broken;
  if (const Value* tpus = tpus_in(document)) {
    return error(code::kConflict, tpus->location,
                 fmt::format("'{}' is of TPUs or of Trainium, expected GPUs: no plan has them", tpus->text));
  }
  ScriptReader reader(templates, document);
  const bool is_task = document.is(file_kind::kSkypilot);
  reader.keys_of(is_task ? kTask : kManifest, is_task ? keys_of_task(document) : keys_of_manifest(document));
  for (const foreign::ScriptPart& part : document.parts) reader.lines(part);
  reader.helpers(document);
  return reader.take();
}

Result<std::vector<Reading>> read_arguments(const TemplateSet& templates, const foreign::Document& document,
                                            const std::string& table) {
  const ScriptReader reader(templates, document);
  std::vector<FoundKey> keys;
  for (const foreign::ScriptPart& part : document.parts) {
    for (const LaunchLine& line : part.lines) {
      for (const LaunchStage& stage : line.stages) {
        for (FoundKey& one : reader.options_of(stage, true)) keys.push_back(std::move(one));
      }
    }
  }
  Result<Reading> best = table.empty() ? best_reading(templates, tables_of(templates, {"arguments", "json", "yaml"}),
                                                      {nullptr, keys, nullptr}, document.path)
                                       : reading_by(templates, table, {nullptr, keys, nullptr}, document.path);
  if (!best.ok()) return best.diagnostics;
  std::vector<Reading> out;
  if (!best->table.empty()) out.push_back(std::move(*best));
  return {std::move(out), std::move(best.diagnostics)};
}

}  // namespace distsetup
