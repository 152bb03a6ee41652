// Unknown options of launchers, of trainers' command lines and of job scripts, by the tables of names. What an option's value may be
// is the rules' matter.
#include "codegen/lint/check_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/names.h"
#include "codegen/lint/megatron.h"
#include "codegen/lint/misspelt.h"
#include "codegen/lint/trainer_match.h"
#include "codegen/lint/unknown_names.h"
#include "codegen/tables/name_table.h"
#include "codegen/tables/other_releases.h"

namespace distsetup::lint {
namespace {

void report_option(const Document& d, const NameTable& table, const std::vector<NameEntry>& known, TextSpan at,
                   const std::string& spelled, const std::string& error_if, Findings& report) {
  const std::string near = nearest_option(known, spelled);
  report.add(table.code, d, at, says_unknown(table, spelled),
             {near.empty() ? "" : fmt::format("did you mean '{}'", near), table.unknown, {}, {}, error_if});
}

// What keeps an option of a launcher from being one for sure: no program behind it that is known here, or another release's.
std::string doubt_of_option(const LaunchLine& line, const std::vector<NameEntry>& known, std::string_view table,
                            const LaunchOption& option) {
  const LaunchStage* script = line.find(LaunchProgram::kScript);
  if (script == nullptr || script->name.find_first_of("$`") != std::string::npos) return "it stands before the program's name";
  const bool changes = table == "accelerate-launch";  // options come and go; torchrun's and deepspeed's stay
  const bool is_others = changes && (takes_option(*name_table("torchrun").type(""), option.spelled, false) ||
                                     takes_option(*name_table("deepspeed-launcher").type(""), option.spelled, false));
  const bool is_abbreviated = takes_option(known, option.spelled, true);  // which accelerate's parser does not take
  return changes && !is_others && !is_abbreviated && misspelt_option(known, option.spelled).empty()
             ? "the release that is used lacks it"
             : "";
}

bool is_plain_option(std::string_view spelled) { return spelled.find_first_of("$`()|<>;&\\\"'{}*") == std::string_view::npos; }

// `is_ruled`: options that a rule of their own speaks of.
void options_of(const Document& d, const LaunchLine& line, const LaunchStage& stage, std::string_view table_name,
                std::string_view type, std::initializer_list<std::string_view> is_ruled, Findings& report) {
  const NameTable& table = name_table(table_name);
  const std::vector<NameEntry>* known = table.type(type);
  if (known == nullptr) return;
  for (const LaunchOption& option : stage.options) {
    if (option.spelled.find_first_of("()|`") != std::string::npos) break;  // a piece of $( ): what follows may be its own
    const bool is_variable = !is_plain_option(option.spelled);             // --$NAME
    const bool is_said = std::find(is_ruled.begin(), is_ruled.end(), option.name) != is_ruled.end();
    if (option.name.empty() || is_variable || is_said || takes_option(*known, option.spelled, table.takes_prefixes)) continue;
    report_option(d, table, *known, {option.span.begin, option.span.begin + option.spelled.size()}, option.spelled,
                  doubt_of_option(line, *known, table_name, option), report);
  }
}

UnknownNames no_names_yet(const NameTable& table, const LaunchStage& run) {
  return {table.code, table.tool, table.unknown, "", "", run.span, {}};
}

void add_option(UnknownNames& names, const NameTable& table, const std::vector<NameEntry>& known, const LaunchStage& run,
                const LaunchOption& option) {
  std::string near = misspelt_option(known, option.spelled);
  const bool is_given_too = !near.empty() && run.has(near.substr(std::min(near.find_first_not_of('-'), near.size())));
  if (is_given_too) near.clear();
  names.all.push_back(
      {option.spelled, {option.span.begin, option.span.begin + option.spelled.size()}, near, says_unknown(table, option.spelled)});
}

// Forks have parsers of their own, and so may the script.
void options_of_megatron(const Document& d, const LaunchStage& run, Findings& report) {
  const NameTable& table = name_table("megatron-lm");
  const std::vector<NameEntry>& known = *table.type("");
  UnknownNames names = no_names_yet(table, run);
  for (const LaunchOption& option : run.options) {
    const bool is_removed = option.name == "batch_size" || option.name == "model_parallel_size" || option.name == "warmup";  // MEG009
    const bool is_long = option.spelled.rfind("--", 0) == 0 && is_plain_option(option.spelled);
    if (is_long && !is_removed && !takes_option(known, option.spelled, false)) add_option(names, table, known, run, option);
  }
  const bool is_own_script = run.name.find("pretrain_gpt") == std::string::npos;
  names.is_own_parser = is_own_script;
  if (is_own_script) std::erase_if(names.all, [](const UnknownName& one) { return one.near.empty(); });
  report_unknown_names(d, names, NamesOf::kExtendedParser, report);
}

// OpenRLHF since 0.10.2: dotted flags. Flat ones are ORL001's and ORL003's.
void options_of_openrlhf(const LintSetup& setup, const Document& d, const LaunchStage& run, Findings& report) {
  const bool is_dotted = std::any_of(run.options.begin(), run.options.end(),
                                     [](const LaunchOption& one) { return one.name.find('.') != std::string::npos; });
  if (!is_dotted) return;
  const std::string module = run.name.substr(run.name.rfind('.') + 1);
  static const std::set<std::string, std::less<>> kRuled = {"pretrain",         "zero_stage",        "micro_train_batch_size",
                                                            "train_batch_size", "max_len",           "fsdp_tensor_parallel_size",
                                                            "use_hf_tp_plan",   "sequence_parallel", "backend"};
  const NameTable& table = name_table("openrlhf");
  const std::vector<NameEntry>* known = table.type(module);
  if (known == nullptr) return;
  UnknownNames names = no_names_yet(table, run);
  names.version = setup.version("openrlhf");
  for (const LaunchOption& option : run.options) {
    const bool is_said = option.name.empty() || !is_plain_option(option.spelled) || kRuled.count(option.name) > 0;
    if (!is_said && !takes_option(*known, option.spelled, table.takes_prefixes)) add_option(names, table, *known, run, option);
  }
  report_unknown_names(d, names, NamesOf::kOneRelease, report);
}

// Of a tool whose arguments are fields of dataclasses (transformers' HfArgumentParser): --field, and --no_field of a switch.
void options_of_dataclasses(const Document& d, const LaunchStage& script, std::string_view tool, std::string_view type, NamesOf whose,
                            Findings& report) {
  const NameTable& table = name_table(tool);
  const std::vector<NameEntry>& entries = *table.type(type);
  UnknownNames names = no_names_yet(table, script);
  names.table = std::string(tool) + (type.empty() ? "" : "-" + std::string(type));  // ms-swift-megatron
  names.is_own_parser = whose == NamesOf::kExtendedParser;
  const std::vector<std::string> known = spellings(entries);
  for (const LaunchOption& option : script.options) {
    if (option.spelled.rfind("--", 0) != 0 || !is_plain_option(option.spelled) || option.name == "config" ||
        option.name == "accelerate_config")
      continue;
    const bool is_no = option.name.rfind("no_", 0) == 0 && find_name(entries, option.name.substr(3)) != nullptr;
    if (is_no || find_name(entries, option.name) != nullptr) continue;
    // `trl` hands accelerate what is accelerate's.
    if (tool == "trl" && takes_option(*name_table("accelerate-launch").type(""), option.spelled, false)) continue;
    const std::string near = misspelt_name(option.name, known);
    names.all.push_back({option.name,
                         {option.span.begin, option.span.begin + option.spelled.size()},
                         near.empty() ? "" : "--" + near,
                         says_unknown(table, option.spelled)});
  }
  report_unknown_names(d, names, whose, report);
}

// LLaMA-Factory works with old names, too; the examples for Flax and TensorFlow have classes of arguments of their own.
bool may_have_gone_names(const LaunchStage& script) {
  if (!script.name.ends_with(".py") || script.has("stage") || script.has("finetuning_type")) return true;
  if (script.name.find("flax") != std::string::npos || script.name.find("_tf") != std::string::npos) return true;
  const bool is_trainers = takes_training_arguments(script) || (script.has("output_dir") && script.has("evaluation_strategy"));
  return !is_trainers || !script.has("per_device_train_batch_size");
}

// Of TrainingArguments only names of releases that are past: a script may declare more. A file is of one release, whatever it starts.
void gone_options_of_trainer(const LintSetup& setup, const Document& d, Findings& report) {
  const NameTable& table = name_table("trainer");
  UnknownNames names{table.code, table.tool, table.unknown, "trainer", setup.version("transformers"), {0, 1}, {}};
  names.is_own_parser = true;
  std::set<std::string> seen;
  for (const ScriptPart& part : d.parts) {
    for (const LaunchLine& line : part.lines) {
      const LaunchStage* script = line.find(LaunchProgram::kScript);
      if (script == nullptr || may_have_gone_names(*script)) continue;
      for (const LaunchOption& one : script->options) {
        const bool is_gone = one.spelled.starts_with("--") && is_plain_option(one.spelled) && !gone_since("trainer", one.name).empty();
        if (is_gone && seen.insert(one.name).second)
          names.all.push_back({one.name, {one.span.begin, one.span.begin + one.spelled.size()}, "", says_unknown(table, one.spelled)});
      }
    }
  }
  report_unknown_names(d, names, NamesOf::kOneRelease, report);
}

void options_of_line(const LintSetup& setup, const Document& d, const LaunchLine& line, Findings& report) {
  if (const LaunchStage* run = line.find(LaunchProgram::kTorchrun)) {
    const bool is_launch = run->name == "torch.distributed.launch";  // which has one more
    options_of(d, line, *run, "torchrun", "", {"rdzv_timeout", is_launch ? "use_env" : ""}, report);
  }
  if (const LaunchStage* run = line.find(LaunchProgram::kDeepspeed)) options_of(d, line, *run, "deepspeed-launcher", "", {}, report);
  if (const LaunchStage* run = line.find(LaunchProgram::kAccelerate)) options_of(d, line, *run, "accelerate-launch", "", {}, report);
  const LaunchStage* script = line.find(LaunchProgram::kScript);
  if (script == nullptr) return;
  if (script->name.find("openrlhf") != std::string::npos) options_of_openrlhf(setup, d, *script, report);
  if (is_megatron(*script)) options_of_megatron(d, *script, report);
  const std::string base = script->name.substr(script->name.rfind('/') + 1);
  const std::string task = script->positionals.empty() ? "" : script->positionals[0].text;
  if (base == "trl" && !task.empty() && task != "vllm-serve" && task != "env")
    options_of_dataclasses(d, *script, "trl", "", NamesOf::kOneRelease, report);
  const bool is_swift = (base == "swift" || base == "megatron") && (task == "sft" || task == "pt" || task == "rlhf");
  if (!is_swift) return;
  const bool is_told_only = lower(script->value("ignore_args_error")) == "true";
  options_of_dataclasses(d, *script, "ms-swift", base == "megatron" ? base : "",
                         is_told_only ? NamesOf::kExtendedParser : NamesOf::kOneRelease, report);
}

// A site's plugins (SPANK) may add options, so one that is near to none is a warning.
void sbatch_options(const Document& d, const ScriptPart& part, Findings& report) {
  const NameTable& table = name_table("slurm");
  const std::vector<NameEntry>& known = *table.type("sbatch");
  for (const Directive& one : part.script.directives) {
    if (one.is_late || is_spank_option(one.spelled) || takes_option(known, one.spelled, table.takes_prefixes)) continue;
    const std::string near = misspelt_option(known, one.spelled);
    const bool may_be_a_plugins = near.empty();
    report.add(table.code, d, {one.span.begin, one.span.begin + one.spelled.size()},
               may_be_a_plugins
                   ? fmt::format("sbatch has no option '{}': it refuses the job unless a plugin of the site takes it", one.spelled)
                   : says_unknown(table, one.spelled),
               {may_be_a_plugins ? "" : fmt::format("did you mean '{}'", near),
                table.unknown,
                {},
                may_be_a_plugins ? std::optional<Severity>(Severity::kWarning) : std::nullopt});
  }
}

// Lines that look like directives and are comments: "# SBATCH --nodes=2", "#SBTACH --nodes=2". Two marks (##SBATCH) are left alone: so
// people take a directive out, and some do with a blank, beside directives that they leave in.
void comments_like_directives(const Document& d, std::string_view mark, std::string_view code, std::string_view tool,
                              Findings& report) {
  for (size_t at = 0; at < d.text.size();) {
    const size_t end = std::min(d.text.find('\n', at), d.text.size());
    const std::string_view line = std::string_view(d.text).substr(at, end - at);
    const TextSpan span{at, end};
    at = end + 1;
    const size_t word = line.find_first_not_of("# \t");
    if (line.empty() || line[0] != '#' || word == std::string_view::npos || line.rfind("##", 0) == 0) continue;
    const size_t stop = std::min(line.find_first_of(" \t", word), line.size());
    const size_t dash = line.find_first_not_of(" \t", stop);
    if (dash == std::string_view::npos || line[dash] != '-') continue;
    const std::string name(line.substr(word, stop - word));
    const std::vector<std::string> names = {std::string(mark)};
    const bool is_exact = word == 1 && name == mark;
    const bool is_out = name == mark && d.text.find(fmt::format("\n#{} -", mark)) != std::string::npos;  // beside some that are in
    const bool is_upper = std::none_of(name.begin(), name.end(), [](char c) { return c >= 'a' && c <= 'z'; });
    if (is_exact || !is_upper || name.size() + 1 < mark.size() || nearest_name(name, names).empty()) continue;
    report.add(code, d, {span.begin, span.begin + stop},
               fmt::format("'{}' is silently ignored: {} takes it for a comment", line.substr(0, stop), tool),
               {fmt::format("write #{}", mark), "silent", {}, is_out ? std::optional<Severity>(Severity::kNote) : std::nullopt});
  }
}

void pbs_options(const Document& d, const ScriptPart& part, Findings& report) {
  const NameTable& table = name_table("pbs");
  const std::vector<NameEntry>& known = *table.type("");
  const std::vector<NameEntry>& resources = *table.type("resources");
  const std::vector<std::string> names = spellings(resources);
  for (const Directive& one : part.script.pbs) {
    if (one.is_late) {
      report.add("PBS002", d, one.span, fmt::format("'{}' stands behind the first command: qsub silently ignores it", one.spelled));
      continue;
    }
    if (find_name(known, one.spelled) == nullptr) {
      report_option(d, table, known, {one.span.begin, one.span.begin + one.spelled.size()}, one.spelled, "", report);
      continue;
    }
    if (one.name != "l") continue;
    // select=2:ncpus=8:ngpus=8,walltime=1:00:00: a site may define resources, so only what is near to a name is said.
    for (size_t at = 0; at < one.value.size();) {
      const size_t end = std::min(one.value.find_first_of(":,+", at), one.value.size());
      const size_t equals = std::min(one.value.find('=', at), end);
      const std::string resource = one.value.substr(at, equals - at);
      at = end + 1;
      if (equals == end) continue;  // a value: -l filesystems=home:scratch
      const bool is_number = number(resource).has_value();
      const std::string near = is_number || find_name(resources, resource) != nullptr ? "" : nearest_name(resource, names);
      if (near.empty()) continue;
      report.add("PBS003", d, one.span,
                 fmt::format("'{}' is no resource of PBS: the server refuses the job unless the site has defined it", resource),
                 {fmt::format("did you mean '{}'", near), "", {}, {}});
    }
  }
}

void lsf_options(const Document& d, const ScriptPart& part, Findings& report) {
  const NameTable& table = name_table("lsf");
  const std::vector<NameEntry>& known = *table.type("");
  for (const Directive& one : part.script.lsf) {
    const bool joins_number = one.spelled.size() > 2 && one.spelled[2] >= '0' && one.spelled[2] <= '9';  // -n4
    if (find_name(known, one.spelled) != nullptr || (joins_number && find_name(known, one.spelled.substr(0, 2)) != nullptr)) continue;
    const std::string near = nearest_name(one.name, [&known] {
      std::vector<std::string> names;
      for (const NameEntry& entry : known) names.push_back(entry.name.substr(1));
      return names;
    }());
    report.add(table.code, d, {one.span.begin, one.span.begin + one.spelled.size()}, says_unknown(table, one.spelled),
               {near.empty() ? "" : fmt::format("did you mean '-{}'", near),
                table.unknown,
                {},
                {},
                near.empty() ? "the site's LSF lacks it" : ""});
  }
}

}  // namespace

void check_options(const LintSetup& setup, const Document& d, Findings& report) {
  for (const ScriptPart& part : d.parts) {
    for (const LaunchLine& line : part.lines) options_of_line(setup, d, line, report);
    sbatch_options(d, part, report);
    pbs_options(d, part, report);
    lsf_options(d, part, report);
  }
  gone_options_of_trainer(setup, d, report);
  if (d.is(file_kind::kSbatch)) comments_like_directives(d, "SBATCH", "SL024", "sbatch", report);
  if (d.is(file_kind::kPbs)) comments_like_directives(d, "PBS", "PBS004", "qsub", report);
  if (d.is(file_kind::kLsf)) comments_like_directives(d, "BSUB", "LSF002", "bsub", report);
}

}  // namespace distsetup::lint
