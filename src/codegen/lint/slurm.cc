// What srun really starts, and when the shell expands what it is given. Rules of a job script as a whole are slurm_job.cc.
#include "codegen/lint/slurm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>

#include "base/names.h"
#include "codegen/lint/batch_launch.h"
#include "codegen/lint/misspelt.h"
#include "codegen/lint/pipe_status.h"
#include "codegen/lint/slurm_job.h"
#include "codegen/lint/task_ranks.h"
#include "codegen/shell/expand.h"
#include "codegen/shell/starts_training.h"
#include "codegen/tables/name_table.h"

namespace distsetup::lint {
namespace {

using NameSet = std::set<std::string, std::less<>>;

// Different on every task, so an expansion in the batch script gives everybody the head's.
// The head's own name and address (SLURMD_NODENAME) are what MASTER_ADDR is set to, and right there.
const NameSet kPerTask = {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_TASK_PID", "SLURM_GTIDS"};

// srun and nothing but options of one word each: the command stands in the next line, without a backslash before it.
void sl_no_command(const JobScript& in, const LaunchLine& line, const LaunchStage& srun) {
  const ShellCommand& command = in.command(line);
  if (command.words.size() < 2 || command.words[0].text != "srun" || !command.here.empty() || command.depth > 0) return;
  for (size_t i = 1; i < command.words.size(); ++i) {
    const std::string& word = command.words[i].text;
    const bool is_whole = word.rfind("--", 0) == 0 && word.find('=') != std::string::npos;
    if (!is_whole) return;
  }
  in.report.add("SL032", in.d, srun.span, "srun has options and no command: it stops, and the next line runs on the first node alone");
}

// torchrun without --nnodes is a job of one node, wherever and how often it is started.
void sl_one_node_each(const JobScript& in, const LaunchLine& line, const LaunchStage& srun) {
  const SrunTasks counts = tasks_of(in, srun);
  const LaunchStage* run = launcher_under(in, line);
  if (run == nullptr || run->program != LaunchProgram::kTorchrun || counts.nodes < 2 || counts.per_node != 1) return;
  if (run->has("nnodes") || run->has("standalone") || mentions(in, "PET_NNODES")) return;
  if (!is_here(in, *run) || has_unknown_words(in, *run)) return;
  for (const char* mark : {"SLURM_PROCID", "SLURM_NODEID"}) {  // a share of the work for each
    if (mentions(in, mark) && !run->has("node_rank")) return;
  }
  const bool is_to_meet = run->has("rdzv_endpoint") || run->has("master_addr");
  in.report.add("TR009", in.d, run->span,
                fmt::format("torchrun without --nnodes is a job of one node, and srun starts it on {}: {}", counts.nodes,
                            is_to_meet ? "one of them trains, the others wait" : "each of them trains a model of its own"),
                {"add --nnodes=\"$SLURM_JOB_NUM_NODES\"", "", {}, {}});
}

void sl_shapes(const JobScript& in, const LaunchLine& line, const LaunchStage& srun) {
  const SrunTasks counts = tasks_of(in, srun);
  const int64_t tasks = counts.per_node;
  const LaunchStage* launcher = launcher_under(in, line);
  if (launcher != nullptr && tasks > 1 && launcher->value("nproc_per_node") != "1") {
    // torchrun starts one process unless it is told otherwise; accelerate does what its file says.
    const std::string processes = launcher->value("nproc_per_node"), variable = variable_of(processes);
    const bool is_of_slurm = variable == "SLURM_NTASKS_PER_NODE" || variable == "SLURM_TASKS_PER_NODE" ||
                             (in.gpus > 1 && (variable == "SLURM_GPUS_ON_NODE" || variable == "SLURM_GPUS_PER_NODE"));
    const bool starts_several =
        is_of_slurm || launcher->program == LaunchProgram::kDeepspeed || processes == "gpu" || processes == "auto" ||
        number(processes).value_or(0) > 1 || number(launcher->value("num_processes")).value_or(0) > 1 ||
        (counts.nodes > 0 && node_count(in.part.script, launcher->value("num_machines"), counts.nodes) == counts.nodes);
    in.report.add(
        "SL001", in.d, srun.span,
        fmt::format("srun starts {} tasks on a node and each one starts {}: {} launchers per node", tasks, launcher->name, tasks),
        {.error_if = starts_several ? "" : "each of them starts more than one process"});
  }
  const bool is_on_one_node = counts.nodes == 1 && tasks <= 1;
  if (launcher != nullptr && launcher->program == LaunchProgram::kDeepspeed && !is_on_one_node && !launcher->has("hostfile") &&
      !launcher->has("H") && !launcher->has("no_ssh")) {
    in.report.add("SL004", in.d, is_here(in, *launcher) ? launcher->span : srun.span,
                  "deepspeed under srun without a hostfile: each node is a job of its own, master 127.0.0.1",
                  {.error_if = counts.nodes > 1 || tasks > 1 ? "" : "srun starts more than one task"});
  }
  const LaunchStage* script = line.find(LaunchProgram::kScript);
  const bool is_python = script != nullptr && script->name.size() > 3 && script->name.substr(script->name.size() - 3) == ".py";
  const bool is_helper = counts.total() == 1 && (srun.has("ntasks") || srun.has("n"));
  if (launcher == nullptr && is_python && in.gpus > 1 && tasks > 0 && tasks != in.gpus && !is_helper && !chooses_devices(*script)) {
    in.report.add("SL002", in.d, srun.span,
                  fmt::format("srun starts {} per node, the node has {} GPUs: one task per GPU is needed",
                              tasks == 1 ? "one task" : fmt::format("{} tasks", tasks), in.gpus));
  }
}

bool is_exported(const JobScript& in, std::string_view name) {
  return std::any_of(in.part.script.commands.begin(), in.part.script.commands.end(), [name](const ShellCommand& command) {
    const bool exports = !command.words.empty() && command.words[0].text == "export";
    return exports && std::any_of(command.assignments.begin(), command.assignments.end(),
                                  [name](const ShellAssignment& one) { return one.name == name; });
  });
}

// Double quotes may become single ones when nothing inside needs the batch script's own variables, and the quote is closed.
std::vector<LintEdit> to_single_quotes(const JobScript& in, const WordPart& part) {
  if (part.span.end >= in.d.text.size() || in.d.text[part.span.end] != '"') return {};
  const std::string_view inside = in.d.cut(part.span);
  if (inside.find_first_of("'\\`") != std::string_view::npos || inside.find("$(") != std::string_view::npos) return {};
  for (const auto& [name, at] : expansions(in.d.text, part.span)) {
    if (name.rfind("SLURM_", 0) != 0 && !is_exported(in, name)) return {};
  }
  return {{part.span.begin - 1, part.span.begin, "'"}, {part.span.end, part.span.end + 1, "'"}};
}

// c10d, etcd and accelerate's rendezvous by c10d give the ranks by the order of arrival: a rank that is handed over decides nothing.
bool ranks_by_arrival(std::string_view all) {
  const bool has_endpoint = all.find("rdzv_endpoint") != std::string::npos || all.find("rdzv-endpoint") != std::string::npos ||
                            all.find("main_process_ip") != std::string::npos;
  return has_endpoint && (all.find("c10d") != std::string::npos || all.find("etcd") != std::string::npos);
}

// What a command says, and the commands inside its bash -c.
std::string text_of_words(const ShellScript& script, const ShellCommand& command) {
  std::string all;
  const auto add = [&all](const ShellCommand& one) {
    for (const ShellWord& word : one.expanded) all += word.text + " ";
  };
  const TextSpan last = command.words.back().span;
  for (const ShellCommand& inner : script.commands) {
    const bool is_inside = inner.depth > command.depth && !inner.in_substitution && !inner.words.empty() &&
                           inner.words[0].span.begin >= last.begin && inner.words[0].span.end <= last.end;
    if (is_inside) add(inner);
  }
  add(command);
  return all;
}

// Whether the text in front of a place gives a rank its value: --node_rank=, RANK=. A log's name may well be the head's.
bool gives_rank(std::string_view before) {
  while (!before.empty() && std::string_view("\"'$={ \t").find(before.back()) != std::string_view::npos) before.remove_suffix(1);
  const size_t word = before.find_last_of(" \t\n\"'=;:,(");
  const std::string name = lower(before.substr(word == std::string_view::npos ? 0 : word + 1));
  return name.find("rank") != std::string::npos || name.find("node_id") != std::string::npos;
}

// One task alone has the head's values. Where the line counts the job's nodes it is meant for more of them.
bool is_for_more_nodes(std::string_view whole) {
  return whole.find("SLURM_NNODES") != std::string_view::npos || whole.find("SLURM_JOB_NUM_NODES") != std::string_view::npos;
}

// `whole`: what the range is part of, by which the rendezvous is told. alone: there is one task.
void report_early(const JobScript& in, TextSpan range, const std::vector<LintEdit>& edits, std::string_view where,
                  std::string_view whole, bool alone = false) {
  for (const auto& [name, at] : expansions(in.d.text, range)) {
    const bool is_rank = gives_rank(std::string_view(in.d.text).substr(0, at));
    if (kPerTask.count(name) == 0 || (alone && !(is_rank && is_for_more_nodes(whole)))) continue;
    const size_t length = name.size() + (in.d.text[at + 1] == '{' ? 3 : 1);
    const std::string_view effect = alone ? "right for one node; of several, each gets" : "every node gets";
    const bool is_note = alone || ranks_by_arrival(whole);
    in.report.add(
        "SL003", in.d, {at, at + length},
        fmt::format("'${}' is expanded once, on the head, before {}: {} the head's value (rank 0)", name, where, effect),
        {"", "", edits, is_note ? std::optional<Severity>(Severity::kNote) : std::nullopt, is_rank ? "" : "a rank is made of it"});
    return;
  }
}

void sl_early(const JobScript& in, const LaunchLine& line, const LaunchStage& srun) {
  const bool alone = tasks_of(in, srun).total() == 1;
  const ShellCommand& command = in.command(line);
  const std::string whole = text_of_words(in.part.script, command);
  for (const ShellWord& word : command.words) {
    if (word.span.begin < srun.span.begin) continue;
    for (const WordPart& part : word.parts) {
      if (part.quote == ShellQuote::kSingle) continue;
      report_early(in, part.span, part.quote == ShellQuote::kDouble ? to_single_quotes(in, part) : std::vector<LintEdit>{},
                   "srun starts", whole, alone);
    }
  }
  for (const ShellAssignment& one : command.assignments) report_early(in, one.span, {}, "srun starts", whole, alone);
  for (const HereDocument& here : command.here) {
    if (here.expands) report_early(in, here.body, {}, "srun starts", in.d.cut(here.body), alone);
  }
}

// Whether the text in front of a place gives the address where the nodes meet: --rdzv_endpoint=, MASTER_ADDR=.
bool gives_address(std::string_view before) {
  while (!before.empty() && std::string_view("\"'$={ ").find(before.back()) != std::string_view::npos) before.remove_suffix(1);
  const size_t word = before.find_last_of(" \t\n\"'=;,(");
  std::string name = lower(before.substr(word == std::string_view::npos ? 0 : word + 1));
  std::replace(name.begin(), name.end(), '-', '_');
  return name.ends_with("rdzv_endpoint") || name.ends_with("master_addr") || name.ends_with("main_process_ip");
}

// srun bash -c 'torchrun --rdzv_endpoint=$HOSTNAME:29500': in single quotes each node puts its own name in.
void sl_own_name(const JobScript& in, const LaunchLine& line, const LaunchStage& srun) {
  const SrunTasks counts = tasks_of(in, srun);
  if (counts.nodes < 2) return;
  const std::string_view text = in.d.text;
  for (const ShellWord& word : in.command(line).words) {
    for (const WordPart& part : word.parts) {
      if (part.quote != ShellQuote::kSingle) continue;
      for (const std::string_view own : {"$HOSTNAME", "${HOSTNAME}", "$SLURMD_NODENAME", "${SLURMD_NODENAME}", "$(hostname"}) {
        const size_t at = text.find(own, part.span.begin);
        if (at >= part.span.end || !gives_address(text.substr(0, at))) continue;
        in.report.add("TR012", in.d, {at, at + own.size()},
                      fmt::format("in single quotes '{}' is each node's own name: {} nodes wait for each other and never meet",
                                  own.starts_with("$(") ? "$(hostname)" : own, counts.nodes));
        return;
      }
    }
  }
}

// NODE_RANK=$SLURM_PROCID in the batch script: what is exported, or handed to an srun by the batch script's own expansion.
void sl_assigned(const JobScript& in, const std::vector<const LaunchLine*>& sruns) {
  if (!in.is_batch || sruns.empty() || tasks_of_job(in).total() == 1) return;
  NameSet exported, handed;
  std::string started;
  for (const ShellCommand& command : in.part.script.commands) {
    if (command.depth > 0 || command.words.empty() || command.words[0].text != "export") continue;
    for (const ShellWord& word : command.words) exported.insert(word.text);
    for (const ShellAssignment& one : command.assignments) exported.insert(one.name);
  }
  for (const LaunchLine* line : sruns) {
    started += text_of_words(in.part.script, in.command(*line));
    for (const ShellWord& word : in.command(*line).words) {
      for (const WordPart& part : word.parts) {
        if (part.quote == ShellQuote::kSingle) continue;
        for (const auto& [name, at] : expansions(in.d.text, part.span)) handed.insert(name);
      }
    }
  }
  for (const ShellCommand& command : in.part.script.commands) {
    const bool is_plain = command.words.empty() || command.words[0].text == "export";
    if (command.depth > 0 || !is_plain) continue;
    for (const ShellAssignment& one : command.assignments) {
      if (exported.count(one.name) + handed.count(one.name) == 0) continue;
      const std::string whole = std::string(in.d.cut(one.value.span)) + " " + started;
      for (const WordPart& part : one.value.parts) {  // what single quotes keep, the task's own shell expands
        if (part.quote != ShellQuote::kSingle) report_early(in, part.span, {}, "srun starts", whole);
      }
    }
  }
}

// A job script that is written by another script: cat <<EOF > job.sbatch.
void sl_written(const JobScript& in) {
  for (const ShellCommand& command : in.part.script.commands) {
    const bool is_cat = !command.words.empty() &&
                        (command.words[0].text == "cat" || command.words[0].text == "tee" || command.words[0].text == "sbatch");
    for (const HereDocument& here : command.here) {
      const bool is_job = is_cat && here.expands && in.d.cut(here.body).find("#SBATCH") != std::string_view::npos;
      if (is_job) report_early(in, here.body, {}, "the job is written", in.d.cut(here.body));
    }
  }
}

// --gpus-per-task=1 binds each task to its GPU, unless --gpu-bind or CUDA_VISIBLE_DEVICES says otherwise; of one task per node nothing
// is hidden.
void sl_binding(const JobScript& in, const LaunchLine& line, const LaunchStage& srun) {
  if (!starts_training(in, line) || tasks_of(in, srun).per_node <= 1 || in.setup.environment("CUDA_VISIBLE_DEVICES") != nullptr)
    return;
  const auto asked = [&](std::string_view option, std::string_view directive) -> std::pair<std::string, TextSpan> {
    if (const LaunchOption* own = srun.find(option)) return {own->value, own->span};
    if (const Directive* jobs = in.directive(directive)) return {jobs->value, jobs->span};
    return {"", {0, 0}};
  };
  if (asked("gres_flags", "gres-flags").first.find("allow-task-sharing") != std::string::npos) return;
  const auto [bind, bind_at] = asked("gpu_bind", "gpu-bind");
  const auto [per_task, per_task_at] = asked("gpus_per_task", "gpus-per-task");
  const bool is_single = bind.rfind("single:1", 0) == 0 || bind == "per_task:1";
  const bool is_per_task = bind.empty() && (per_task == "1" || (per_task.size() > 2 && per_task.substr(per_task.size() - 2) == ":1"));
  if (is_single || is_per_task) {
    in.report.add("SL008", in.d, is_single ? bind_at : per_task_at,
                  "each task sees its own GPU only: peers are hidden and LOCAL_RANK is no device index");
  }
}

void sl_srun_options(const JobScript& in, const LaunchLine& line, const LaunchStage& srun) {
  const std::vector<NameEntry>& known = *name_table("slurm").type("srun");
  for (const LaunchOption& option : srun.options) {
    if (option.name.empty() || takes_option(known, option.spelled, true)) continue;
    if (is_spank_option(option.spelled)) continue;
    const std::string near = misspelt_option(known, option.spelled);
    const bool may_be_a_plugins = near.empty() && option.name != "include";
    in.report.add(
        "SL021", in.d, {option.span.begin, option.span.begin + option.spelled.size()},
        fmt::format("srun has no option '{}'{}", option.spelled, may_be_a_plugins ? ", unless a plugin of the site adds it" : ""),
        {near.empty() || option.name == "include" ? "" : fmt::format("did you mean '{}'", near),
         "",
         {},
         may_be_a_plugins ? std::optional<Severity>(Severity::kWarning) : std::nullopt});
  }
  sl_binding(in, line, srun);
  const bool has_kill = srun.has("kill_on_bad_exit") || srun.has("K") || in.setup.environment("SLURM_KILL_BAD_EXIT") != nullptr;
  if (starts_training(in, line) && !has_kill && tasks_of(in, srun).total() != 1) {
    in.report.add("SL009", in.d, srun.span,
                  "srun without --kill-on-bad-exit: when one task dies the others hold the job until NCCL's timeout",
                  {"", "", {{srun.span.end, srun.span.end, " --kill-on-bad-exit=1"}}, {}});
  }
}

// "$header ... | tee log", where a branch makes header "srun torchrun ...": which one it is, the running script knows.
void sl_piped_variables(const JobScript& in) {
  std::map<std::string, std::string> launchers;  // by variable
  for (const ShellCommand& command : in.part.script.commands) {
    for (const ShellAssignment& one : command.assignments) {
      const std::string first = one.value.text.substr(0, one.value.text.find_first_of(" \t\n\\"));
      if (first == "srun" || first == "torchrun" || first == "deepspeed" || first == "accelerate") launchers.emplace(one.name, first);
    }
  }
  if (launchers.empty()) return;
  std::set<const ShellCommand*> followed;  // their variable has one value, which is looked at as what it stands for
  for (const LaunchLine& line : in.part.lines) followed.insert(&in.command(line));
  for (const ShellCommand& command : in.part.script.commands) {
    if (command.ends_with != "|" || command.in_substitution || command.words.empty() || followed.contains(&command)) continue;
    std::string name = command.words[0].text;
    if (name.rfind('$', 0) != 0) continue;
    name = name.substr(name.rfind("${", 0) == 0 ? 2 : 1);
    if (!name.empty() && name.back() == '}') name.pop_back();
    if (const auto it = launchers.find(name); it != launchers.end())
      return report_pipe(in, command, command.words[0].span, it->second);
  }
}

}  // namespace

void check_slurm(const LintSetup& setup, const Document& d, Findings& report) {
  for (const ScriptPart& part : d.parts) {
    JobScript in{setup, d, report, part, d.is(file_kind::kSbatch), 0, 0};
    in.nodes = in.count("nodes") > 0 ? in.count("nodes") : setup.nodes();
    in.gpus = setup.gpus_per_node();
    in.failures = failure_rules(d, part.script);
    std::vector<const LaunchLine*> sruns;
    for (const LaunchLine& line : part.lines) {
      const LaunchStage* srun = line.find(LaunchProgram::kSrun);
      if (in.command(line).in_substitution) continue;
      if (srun == nullptr) {
        if (const LaunchStage* launcher = launcher_of(line); launcher != nullptr && in.is_batch)
          report_pipe(in, in.command(line), launcher->span, launcher->name);
        continue;
      }
      sruns.push_back(&line);
      sl_no_command(in, line, *srun);
      sl_shapes(in, line, *srun);
      sl_one_node_each(in, line, *srun);
      sl_early(in, line, *srun);
      sl_own_name(in, line, *srun);
      sl_srun_options(in, line, *srun);
      report_pipe(in, in.command(line), srun->span, "srun");
    }
    sl_assigned(in, sruns);
    sl_written(in);
    check_task_ranks(in, sruns);
    if (!in.is_batch) continue;
    sl_piped_variables(in);
    check_job(in, sruns);
    check_batch_launch(in, sruns);
  }
}

}  // namespace distsetup::lint
