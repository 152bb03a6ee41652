// Job scripts: what the scheduler reads, when the shell expands, and what srun really starts.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/names.h"
#include "codegen/lint/report.h"

namespace distsetup::lint {
namespace {

using NameSet = std::set<std::string, std::less<>>;

// Different on every task, so an expansion in the batch script gives everybody the head's.
const NameSet kPerTask = {"SLURM_PROCID",    "SLURM_LOCALID",           "SLURM_NODEID",
                          "SLURMD_NODENAME", "SLURM_TASK_PID",          "SLURM_LAUNCH_NODE_IPADDR",
                          "SLURM_GTIDS",     "SLURM_CPUS_ON_NODE_TASK", "SLURM_TOPOLOGY_ADDR"};

// srun(1), SLURM 22.05 to 24.11, and pyxis.
const NameSet kSrunOptions = {"accel_bind",
                              "account",
                              "acctg_freq",
                              "allocation",
                              "A",
                              "bb",
                              "bbf",
                              "bcast",
                              "begin",
                              "b",
                              "cluster_constraint",
                              "clusters",
                              "M",
                              "comment",
                              "compress",
                              "constraint",
                              "C",
                              "container",
                              "container_id",
                              "contiguous",
                              "core_spec",
                              "S",
                              "cores_per_socket",
                              "cpu_bind",
                              "cpu_freq",
                              "cpus_per_gpu",
                              "cpus_per_task",
                              "c",
                              "deadline",
                              "delay_boot",
                              "dependency",
                              "d",
                              "chdir",
                              "D",
                              "disable_status",
                              "X",
                              "distribution",
                              "m",
                              "epilog",
                              "error",
                              "e",
                              "exact",
                              "exclude",
                              "x",
                              "exclusive",
                              "export",
                              "external",
                              "extra",
                              "extra_node_info",
                              "B",
                              "gid",
                              "gpu_bind",
                              "gpu_freq",
                              "gpus",
                              "G",
                              "gpus_per_node",
                              "gpus_per_socket",
                              "gpus_per_task",
                              "gres",
                              "gres_flags",
                              "het_group",
                              "help",
                              "h",
                              "hint",
                              "hold",
                              "H",
                              "immediate",
                              "I",
                              "input",
                              "i",
                              "interactive",
                              "job_name",
                              "J",
                              "jobid",
                              "kill_on_bad_exit",
                              "K",
                              "label",
                              "l",
                              "licenses",
                              "L",
                              "mail_type",
                              "mail_user",
                              "mcs_label",
                              "mem",
                              "mem_bind",
                              "mem_per_cpu",
                              "mem_per_gpu",
                              "mincpus",
                              "mpi",
                              "msg_timeout",
                              "multi_prog",
                              "network",
                              "nice",
                              "no_allocate",
                              "Z",
                              "no_kill",
                              "k",
                              "nodefile",
                              "F",
                              "nodelist",
                              "w",
                              "nodes",
                              "N",
                              "ntasks",
                              "n",
                              "ntasks_per_core",
                              "ntasks_per_gpu",
                              "ntasks_per_node",
                              "ntasks_per_socket",
                              "ntasks_per_tres",
                              "open_mode",
                              "output",
                              "o",
                              "overcommit",
                              "O",
                              "overlap",
                              "oversubscribe",
                              "s",
                              "partition",
                              "p",
                              "power",
                              "prefer",
                              "preserve_env",
                              "E",
                              "priority",
                              "profile",
                              "prolog",
                              "propagate",
                              "pty",
                              "qos",
                              "q",
                              "quiet",
                              "Q",
                              "quit_on_interrupt",
                              "reboot",
                              "relative",
                              "r",
                              "resv_port",
                              "resv_ports",
                              "reservation",
                              "send_libs",
                              "signal",
                              "slurmd_debug",
                              "sockets_per_node",
                              "spread_job",
                              "stepmgr",
                              "switches",
                              "task_epilog",
                              "task_prolog",
                              "test_only",
                              "thread_spec",
                              "threads",
                              "T",
                              "threads_per_core",
                              "time",
                              "t",
                              "time_min",
                              "tree_width",
                              "treewidth",
                              "tres_bind",
                              "tres_per_task",
                              "uid",
                              "unbuffered",
                              "u",
                              "usage",
                              "use_min_nodes",
                              "verbose",
                              "v",
                              "version",
                              "V",
                              "wait",
                              "W",
                              "wckey",
                              "whole",
                              "x11",
                              "container_image",
                              "container_mounts",
                              "container_workdir",
                              "container_name",
                              "container_save",
                              "container_mount_home",
                              "no_container_mount_home",
                              "container_remap_root",
                              "no_container_remap_root",
                              "container_entrypoint",
                              "no_container_entrypoint",
                              "container_entrypoint_log",
                              "container_writable",
                              "container_readonly",
                              "container_env"};

struct JobScript {
  const Setup& setup;
  const Document& d;
  Report& report;
  const ScriptPart& part;
  bool is_batch = false;
  int64_t nodes = 0, gpus = 0;

  const ShellCommand& command(const Line& line) const { return part.script.commands[line.command]; }
  const Directive* directive(std::string_view name) const { return part.script.directive(name); }
  int64_t count(std::string_view name) const {
    const Directive* found = directive(name);
    return found == nullptr ? 0 : number(found->value).value_or(0);
  }
};

Span words_span(const ShellCommand& command) {
  if (command.words.empty()) return {0, 0};
  return {command.words.front().span.begin, command.words.back().span.end};
}

// The lines that an srun starts: inside its bash -c, or of a script of the set-up that it names.
std::vector<const Line*> inner_lines(const JobScript& in, const Line& line) {
  std::vector<const Line*> out;
  const Span outer = words_span(in.command(line));
  for (const Line& other : in.part.lines) {
    const Span span = words_span(in.command(other));
    const bool is_inside = &other != &line && in.command(other).depth > in.command(line).depth && !in.command(other).in_substitution &&
                           span.begin >= outer.begin && span.end <= outer.end;
    if (is_inside) out.push_back(&other);
  }
  for (const ShellWord& word : in.command(line).words) {
    const std::string base = word.text.substr(word.text.rfind('/') + 1);
    for (const auto& other : in.setup.documents) {
      const bool is_named = other.get() != &in.d && !base.empty() && other->path.substr(other->path.rfind('/') + 1) == base;
      if (!is_named) continue;
      for (const ScriptPart& inner : other->parts) {
        for (const Line& one : inner.lines) out.push_back(&one);
      }
    }
  }
  return out;
}

const Stage* launcher_of(const Line& line) {
  for (const Program program : {Program::kTorchrun, Program::kDeepspeed, Program::kAccelerate}) {
    if (const Stage* stage = line.find(program)) return stage;
  }
  return nullptr;
}

const Stage* launcher_under(const JobScript& in, const Line& line) {
  if (const Stage* stage = launcher_of(line)) return stage;
  for (const Line* inner : inner_lines(in, line)) {
    if (const Stage* stage = launcher_of(*inner)) return stage;
  }
  return nullptr;
}

bool starts_training(const JobScript& in, const Line& line) {
  if (line.find(Program::kScript) != nullptr || launcher_under(in, line) != nullptr) return true;
  const std::vector<const Line*> inner = inner_lines(in, line);
  return std::any_of(inner.begin(), inner.end(), [](const Line* one) { return one->find(Program::kScript) != nullptr; });
}

void sl_shapes(const JobScript& in, const Line& line, const Stage& srun) {
  int64_t tasks = in.count("ntasks-per-node");
  if (tasks == 0) tasks = in.directive("ntasks") != nullptr && in.nodes > 0 ? in.count("ntasks") / in.nodes : 1;
  if (const auto own = number(srun.value("ntasks_per_node"))) tasks = *own;
  for (const char* name : {"ntasks", "n"}) {
    const Option* own = srun.find(name);
    if (own == nullptr) continue;
    const auto n = number(own->value);
    tasks = n && in.nodes > 0 ? *n / in.nodes : n ? *n : 1;
  }
  const Stage* launcher = launcher_under(in, line);
  if (launcher != nullptr && tasks > 1) {
    in.report.add(
        "SL001", in.d, srun.span,
        fmt::format("srun starts {} tasks on a node and each one starts {}: {} launchers per node", tasks, launcher->name, tasks));
  }
  if (launcher != nullptr && launcher->program == Program::kDeepspeed && !launcher->has("hostfile") && !launcher->has("H") &&
      !launcher->has("no_ssh")) {
    in.report.add("SL004", in.d, launcher->span,
                  "deepspeed under srun without a hostfile: each node is a job of its own, master 127.0.0.1");
  }
  const Stage* script = line.find(Program::kScript);
  const bool is_python = script != nullptr && script->name.size() > 3 && script->name.substr(script->name.size() - 3) == ".py";
  if (launcher == nullptr && is_python && in.gpus > 1 && tasks != in.gpus) {
    in.report.add("SL002", in.d, srun.span,
                  fmt::format("srun starts {} per node, the node has {} GPUs: one task per GPU is needed",
                              tasks == 1 ? "one task" : fmt::format("{} tasks", tasks), in.gpus));
  }
}

bool is_exported(const JobScript& in, std::string_view name) {
  return std::any_of(in.part.script.commands.begin(), in.part.script.commands.end(), [name](const ShellCommand& command) {
    const bool exports = !command.words.empty() && command.words[0].text == "export";
    return exports && std::any_of(command.assignments.begin(), command.assignments.end(),
                                  [name](const Assignment& one) { return one.name == name; });
  });
}

// Double quotes may become single ones when nothing inside needs the batch script's own variables.
std::vector<LintEdit> to_single_quotes(const JobScript& in, const WordPart& part) {
  const std::string_view inside = in.d.cut(part.span);
  if (inside.find_first_of("'\\`") != std::string_view::npos || inside.find("$(") != std::string_view::npos) return {};
  for (const auto& [name, at] : expansions(in.d.text, part.span)) {
    if (name.rfind("SLURM_", 0) != 0 && !is_exported(in, name)) return {};
  }
  return {{part.span.begin - 1, part.span.begin, "'"}, {part.span.end, part.span.end + 1, "'"}};
}

void report_early(const JobScript& in, Span range, const std::vector<LintEdit>& edits, std::string_view where) {
  for (const auto& [name, at] : expansions(in.d.text, range)) {
    if (kPerTask.count(name) == 0) continue;
    const size_t length = name.size() + (in.d.text[at + 1] == '{' ? 3 : 1);
    in.report.add(
        "SL003", in.d, {at, at + length},
        fmt::format("'${}' is expanded once, on the head, before {}: every node gets the head's value (rank 0)", name, where),
        {"", "", edits, {}});
    return;
  }
}

void sl_early(const JobScript& in, const Line& line, const Stage& srun) {
  const ShellCommand& command = in.command(line);
  for (const ShellWord& word : command.words) {
    if (word.span.begin < srun.span.begin) continue;
    for (const WordPart& part : word.parts) {
      if (part.quote == Quote::kSingle) continue;
      report_early(in, part.span, part.quote == Quote::kDouble ? to_single_quotes(in, part) : std::vector<LintEdit>{}, "srun starts");
    }
  }
  for (const Assignment& one : command.assignments) report_early(in, one.span, {}, "srun starts");
  for (const HereDocument& here : command.here) {
    if (here.expands) report_early(in, here.body, {}, "srun starts");
  }
}

void sl_exports(const JobScript& in, bool has_srun) {
  if (!in.is_batch || !has_srun) return;
  for (const ShellCommand& command : in.part.script.commands) {
    const bool exports = command.depth == 0 && !command.words.empty() && command.words[0].text == "export";
    for (const Assignment& one : command.assignments) {
      if (exports) report_early(in, {one.value.span.begin, one.value.span.end}, {}, "srun starts");
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
      if (is_job) report_early(in, here.body, {}, "the job is written");
    }
  }
}

void sl_srun_options(const JobScript& in, const Line& line, const Stage& srun) {
  static const std::vector<std::string> kSpelled = [] {
    std::vector<std::string> names;
    for (const std::string& one : kSrunOptions) names.push_back(one);
    return names;
  }();
  for (const Option& option : srun.options) {
    if (kSrunOptions.count(option.name) > 0 || option.name.empty()) continue;
    std::string near = nearest_name(option.name, kSpelled);
    std::replace(near.begin(), near.end(), '_', '-');
    in.report.add("SL021", in.d, {option.span.begin, option.span.begin + option.spelled.size()},
                  fmt::format("srun has no option '{}'", option.spelled),
                  {near.empty() ? "" : fmt::format("did you mean '--{}'", near), "", {}, {}});
  }
  const Option* bind = srun.find("gpu_bind");
  const Option* per_task = srun.find("gpus_per_task");
  if (starts_training(in, line) && (per_task != nullptr || (bind != nullptr && bind->value.rfind("single", 0) == 0))) {
    in.report.add("SL008", in.d, (per_task != nullptr ? per_task : bind)->span,
                  "each task sees its own GPU only: peers are hidden and LOCAL_RANK is no device index");
  }
  const bool has_kill = srun.has("kill_on_bad_exit") || srun.has("K") || in.setup.environment("SLURM_KILL_BAD_EXIT") != nullptr;
  if (starts_training(in, line) && !has_kill) {
    in.report.add("SL009", in.d, srun.span,
                  "srun without --kill-on-bad-exit: when one task dies the others hold the job until NCCL's timeout",
                  {"", "", {{srun.span.end, srun.span.end, " --kill-on-bad-exit=1"}}, {}});
  }
}

bool mentions(const JobScript& in, std::string_view what) { return in.d.text.find(what) != std::string::npos; }

void sl_logs(const JobScript& in) {
  for (const Directive& one : in.part.script.directives) {
    if (one.is_late)
      in.report.add("SL005", in.d, one.span,
                    fmt::format("'--{}' stands behind the first command: sbatch silently ignores it", one.name));
  }
  const Directive* output = in.directive("output");
  const Directive* error_log = in.directive("error");
  for (const Directive* log : {output, error_log}) {
    const size_t slash = log == nullptr ? std::string::npos : log->value.rfind('/');
    if (slash == std::string::npos || slash == 0) continue;
    const std::string folder = log->value.substr(0, slash);
    const auto exists = in.setup.context.is_directory;
    if (folder == "." || folder == "/tmp" || (exists != nullptr && exists(folder))) continue;
    const bool is_made = std::any_of(in.setup.documents.begin(), in.setup.documents.end(), [&](const auto& other) {
      return other.get() != &in.d && other->text.find("mkdir") != std::string::npos && other->text.find(folder) != std::string::npos;
    });
    if (!is_made)
      in.report.add("SL006", in.d, log->span,
                    fmt::format("the folder '{}' has to be there before the job starts: else it fails without a log", folder));
  }
  if (output != nullptr && error_log != nullptr && output->value == error_log->value) {
    in.report.add("SL007", in.d, error_log->span, "output and error go to one file: tracebacks of many ranks interleave");
  }
}

void sl_requeue(const JobScript& in) {
  const Directive* requeue = in.directive("requeue");
  size_t own = std::string::npos;
  Span own_span{0, 0};
  for (const ShellCommand& command : in.part.script.commands) {
    const bool is_requeue = command.words.size() >= 2 && command.words[0].text == "scontrol" && command.words[1].text == "requeue";
    if (is_requeue) {
      own = command.words[0].span.begin;
      own_span = {own, command.words[1].span.end};
    }
  }
  if (requeue == nullptr && own == std::string::npos) {
    // A trap's text: trap 'scontrol requeue $SLURM_JOB_ID' USR1
    own = in.d.text.find("scontrol requeue");
    if (own != std::string::npos) own_span = {own, own + 16};
  }
  if (requeue == nullptr && own == std::string::npos) return;
  const Span at = own != std::string::npos ? own_span : requeue->span;
  const Directive* mode = in.directive("open-mode");
  if (mode == nullptr || mode->value.rfind("append", 0) != 0) {
    std::vector<LintEdit> edits;
    if (requeue != nullptr && mode == nullptr) edits.push_back({requeue->line_end, requeue->line_end, "\n#SBATCH --open-mode=append"});
    in.report.add("SL013", in.d, at, "a requeued job truncates the log of its first attempt", {"", "", edits, {}});
  }
  const bool has_marker =
      mentions(in, "[ -f ") || mentions(in, "[[ -f ") || mentions(in, "[ -e ") || mentions(in, "[[ -e ") || mentions(in, "test -f");
  if (!mentions(in, "SLURM_RESTART_COUNT") && !has_marker) {
    in.report.add("SL014", in.d, at, "the job is requeued without a limit and without a mark that it has finished: an endless loop",
                  {"", "", {}, own != std::string::npos ? std::optional<Severity>() : Severity::kWarning});
  }
}

void sl_signals(const JobScript& in, const std::vector<const Line*>& sruns) {
  const Directive* signal = in.directive("signal");
  const bool to_batch = signal != nullptr && signal->value.rfind("B:", 0) == 0;
  if (signal != nullptr && !to_batch) {
    for (const Line* line : sruns) {
      const Stage* launcher = launcher_under(in, *line);
      const bool is_torchrun = launcher != nullptr && launcher->program != Program::kDeepspeed;
      if (!is_torchrun) continue;
      in.report.add("SL011", in.d, signal->span,
                    fmt::format("the signal goes to every process of the step, and {} dies of it", launcher->name));
      break;
    }
  }
  for (const ShellCommand& command : in.part.script.commands) {
    const bool is_trap = command.words.size() >= 3 && command.words[0].text == "trap";
    const bool is_exit = is_trap && std::all_of(command.words.begin() + 2, command.words.end(), [](const ShellWord& word) {
                           return word.text == "EXIT" || word.text == "ERR" || word.text == "0";
                         });
    if (!is_trap || is_exit) continue;
    for (const Line* line : sruns) {
      const ShellCommand& srun = in.command(*line);
      if (srun.ends_with == "&" || srun.depth > 0 || !starts_training(in, *line)) continue;
      in.report.add("SL012", in.d, command.words[0].span, "the trap runs only after srun has ended: srun stands in the foreground");
    }
  }
  const Document* plan = in.setup.first(FileKind::kPlan);
  if (signal == nullptr || plan == nullptr) return;
  const auto lead = number(signal->value.substr(signal->value.rfind('@') + 1));
  const double step = real(plan->root, "time.step_s").value_or(0);
  const double bytes = real(plan->root, "memory.checkpoint_bytes").value_or(0);
  const double needed = step + bytes / 1e9 / std::max<double>(1, static_cast<double>(in.nodes));
  if (lead && static_cast<double>(*lead) < needed) {
    in.report.add(
        "SL019", in.d, signal->span,
        fmt::format("the warning comes {} s before the end; a step ({:.0f} s) and a checkpoint (at 1 GB/s per node) take {:.0f} s",
                    *lead, step, needed));
  }
}

void sl_addresses(const JobScript& in) {
  const bool is_exclusive = in.directive("exclusive") != nullptr;
  for (const EnvironmentSetting& one : in.d.environment) {
    if (one.name == "MASTER_PORT" && number(one.value) && in.is_batch && !is_exclusive) {
      in.report.add("SL015", in.d, one.span, fmt::format("port {} for every job: two jobs on a shared node meet there", one.value));
    }
    const std::string_view text = in.d.cut(one.span);
    const bool is_local = text.find("localhost") != std::string_view::npos || text.find("127.0.0.1") != std::string_view::npos;
    if (one.name == "MASTER_ADDR" && is_local && in.nodes > 1) {
      in.report.add("SL016", in.d, one.span,
                    fmt::format("MASTER_ADDR can be localhost: then {} nodes train {} jobs of their own", in.nodes, in.nodes));
    }
  }
  const Directive* gres = in.directive("gres");
  if (gres != nullptr && gres->value.rfind("gpu", 0) == 0 && in.directive("gpus-per-node") == nullptr) {
    if (const size_t at = in.d.text.find("SLURM_GPUS_PER_NODE"); at != std::string::npos) {
      in.report.add("SL018", in.d, {at, at + 19}, "SLURM_GPUS_PER_NODE is not set by --gres=gpu:N");
    }
  }
  const Directive* gpus = in.directive("gpus-per-node") != nullptr ? in.directive("gpus-per-node") : gres;
  const bool is_whole_node = in.gpus >= 8 || (in.setup.context.gpus_per_node > 0 && in.gpus == in.setup.context.gpus_per_node);
  if (gpus != nullptr && is_whole_node && !is_exclusive) {
    in.report.add("SL020", in.d, gpus->span,
                  fmt::format("{} GPUs of a node without --exclusive: other jobs may share its memory and network", in.gpus));
  }
  for (const char* name : {"gpus-per-task", "gpu-bind"}) {
    const Directive* one = in.directive(name);
    if (one == nullptr || (std::string_view(name) == "gpu-bind" && one->value.rfind("single", 0) != 0)) continue;
    in.report.add("SL008", in.d, one->span, "each task sees its own GPU only: peers are hidden and LOCAL_RANK is no device index");
  }
}

void sl_environment(const JobScript& in, const std::vector<const Line*>& sruns) {
  const Directive* cpus = in.directive("cpus-per-task");
  const bool is_passed =
      in.setup.environment("SRUN_CPUS_PER_TASK") != nullptr || std::all_of(sruns.begin(), sruns.end(), [](const Line* line) {
        const Stage* srun = line->find(Program::kSrun);
        return srun->has("cpus_per_task") || srun->has("c");
      });
  if (cpus != nullptr && !is_passed) {
    const ShellCommand& first = in.command(*sruns[0]);
    size_t begin = first.words[0].span.begin;
    if (!first.assignments.empty()) begin = std::min(begin, first.assignments[0].span.begin);
    const Span line = line_span(in.d, begin);
    const bool starts_line = in.d.text.find_first_not_of(" \t", line.begin) == begin;
    std::vector<LintEdit> edits;
    if (starts_line && first.depth == 0)
      edits.push_back({line.begin, line.begin, "export SRUN_CPUS_PER_TASK=\"$SLURM_CPUS_PER_TASK\"\n"});
    in.report.add("SL017", in.d, cpus->span, "srun does not take over --cpus-per-task since SLURM 22.05: its tasks get one core each",
                  {"", "", edits, {}});
  }
}

void sl_activation(const JobScript& in) {
  for (const ShellCommand& command : in.part.script.commands) {
    const bool activates = command.words.size() >= 2 && (command.words[0].text == "source" || command.words[0].text == ".") &&
                           command.words[1].text == "activate";
    if (activates)
      in.report.add("SL022", in.d, {command.words[0].span.begin, command.words[1].span.end},
                    "'source activate' needs a shell that conda has set up, which a job has not");
  }
}

void sl_pipes(const JobScript& in, const Line& line, const Stage& srun) {
  const bool has_pipefail =
      std::any_of(in.part.script.commands.begin(), in.part.script.commands.end(), [](const ShellCommand& command) {
        const bool is_set = !command.words.empty() && (command.words[0].text == "set" || command.words[0].text == "shopt");
        return is_set &&
               std::any_of(command.words.begin(), command.words.end(), [](const ShellWord& word) { return word.text == "pipefail"; });
      });
  if (in.command(line).ends_with == "|" && !has_pipefail && in.part.script.shebang.find("pipefail") == std::string::npos) {
    in.report.add("SL010", in.d, srun.span, "the pipe hides srun's exit code: a failed job counts as done");
  }
}

}  // namespace

void check_slurm(const Setup& setup, const Document& d, Report& report) {
  for (const ScriptPart& part : d.parts) {
    JobScript in{setup, d, report, part, d.kind == FileKind::kSbatch, 0, 0};
    in.nodes = in.count("nodes") > 0 ? in.count("nodes") : setup.nodes();
    in.gpus = setup.gpus_per_node();
    std::vector<const Line*> sruns;
    for (const Line& line : part.lines) {
      const Stage* srun = line.find(Program::kSrun);
      if (srun == nullptr || in.command(line).in_substitution) continue;
      sruns.push_back(&line);
      sl_shapes(in, line, *srun);
      sl_early(in, line, *srun);
      sl_srun_options(in, line, *srun);
      sl_pipes(in, line, *srun);
    }
    sl_exports(in, !sruns.empty());
    sl_written(in);
    if (!in.is_batch) continue;
    sl_logs(in);
    sl_requeue(in);
    sl_signals(in, sruns);
    sl_addresses(in);
    sl_activation(in);
    if (!sruns.empty()) sl_environment(in, sruns);
  }
}

}  // namespace distsetup::lint
