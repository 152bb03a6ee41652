// A job script as a whole: what the scheduler reads, logs, requeues, signals, addresses.
#include "codegen/lint/slurm_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "codegen/lint/batch_launch.h"
#include "codegen/lint/job_text.h"
#include "codegen/shell/starts_training.h"

namespace distsetup::lint {
namespace {

void sl_logs(const JobScript& in) {
  std::vector<const Directive*> late;
  for (const Directive& one : in.part.script.directives) {
    if (one.is_late) late.push_back(&one);
  }
  if (!late.empty()) {
    // What is reported, and where to, decides nothing about the job.
    static const std::set<std::string, std::less<>> kTalk = {"job-name",  "output",  "error",     "mail-type",
                                                             "mail-user", "comment", "open-mode", "verbose"};
    const bool is_harmless = std::all_of(late.begin(), late.end(), [](const Directive* one) { return kTalk.count(one->name) > 0; });
    const std::string others = late.size() == 1 ? "stands" : fmt::format("and {} more stand", late.size() - 1);
    in.report.add("SL005", in.d, late[0]->span,
                  fmt::format("'--{}' {} behind the first command: sbatch silently ignores {}", late[0]->name, others,
                              late.size() == 1 ? "it" : "them"),
                  {"", "", {}, is_harmless ? std::optional<Severity>(Severity::kWarning) : std::nullopt});
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
    if (is_made) continue;
    const bool is_of_job = folder.find("%j") != std::string::npos || folder.find("%A") != std::string::npos;
    in.report.add(
        "SL006", in.d, log->span,
        is_of_job
            ? fmt::format("SLURM makes the folder '{}', named after the job's number, from 23.02 on: in older releases nobody can",
                          folder)
            : fmt::format("SLURM makes the folder '{}' from 23.02 on: in older releases a job without it fails without a log", folder),
        {is_of_job ? "put the number into the file's name" : "", "", {}, is_of_job ? std::optional<Severity>() : Severity::kNote});
    break;
  }
  const Directive *tasks = in.directive("ntasks"), *gpus = in.directive("gres");
  const bool is_of_one = tasks != nullptr && tasks->value == "1" && gpus != nullptr && gpus->value == "gpu:1";
  if (output != nullptr && error_log != nullptr && output->value == error_log->value && !is_of_one) {
    in.report.add("SL007", in.d, error_log->span, "output and error go to one file: tracebacks of many ranks interleave");
  }
}

bool traps_a_signal(const JobScript& in) {
  return std::any_of(in.part.script.commands.begin(), in.part.script.commands.end(), [](const ShellCommand& command) {
    return command.words.size() >= 3 && command.words[0].text == "trap" &&
           std::any_of(command.words.begin() + 2, command.words.end(), [](const ShellWord& word) {
             return word.text.find("USR") != std::string::npos || word.text.find("TERM") != std::string::npos || word.text == "10" ||
                    word.text == "12" || word.text == "15";
           });
  });
}

void sl_requeue(const JobScript& in) {
  const Directive* requeue = in.directive("requeue");
  size_t own = std::string::npos;
  TextSpan own_span{0, 0};
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
  const TextSpan at = own != std::string::npos ? own_span : requeue->span;
  const Directive* mode = in.directive("open-mode");
  if (mode == nullptr || mode->value.rfind("append", 0) != 0) {
    std::vector<LintEdit> edits;
    if (requeue != nullptr && mode == nullptr) edits.push_back({requeue->line_end, requeue->line_end, "\n#SBATCH --open-mode=append"});
    in.report.add("SL013", in.d, at, "a requeued job truncates the log of its first attempt", {"", "", edits, {}});
  }
  if (own == std::string::npos) return;          // --requeue alone: SLURM does it after a node's failure or preemption
  const bool is_on_signal = traps_a_signal(in);  // at the time limit, not when it fails
  const bool has_marker =
      mentions(in, "[ -f ") || mentions(in, "[[ -f ") || mentions(in, "[ -e ") || mentions(in, "[[ -e ") || mentions(in, "test -f");
  if (!mentions(in, "SLURM_RESTART_COUNT") && !has_marker && !is_on_signal) {
    in.report.add("SL014", in.d, at, "the job is requeued without a limit and without a mark that it has finished: an endless loop",
                  {"", "", {}, {}});
  }
}

void sl_signals(const JobScript& in, const std::vector<const LaunchLine*>& sruns) {
  const Directive* signal = in.directive("signal");
  const bool to_batch = signal != nullptr && signal->value.rfind("B:", 0) == 0;
  // A step whose shell ignores it hands it on ignored to what it starts.
  const std::string name = signal == nullptr ? "" : signal->value.substr(0, signal->value.find('@'));
  const bool is_ignored = mentions(in, "trap \"\" " + name) || mentions(in, "trap '' " + name);
  if (signal != nullptr && !to_batch && !is_ignored) {
    for (const LaunchLine* line : sruns) {
      const LaunchStage* launcher = launcher_under(in, *line);
      const bool is_torchrun = launcher != nullptr && launcher->program != LaunchProgram::kDeepspeed;
      if (!is_torchrun) continue;
      // torchrun has handlers for the four that ask it to end, and hands them on.
      const bool is_handled = name == "TERM" || name == "SIGTERM" || name == "15" || name == "INT" || name == "SIGINT" ||
                              name == "2" || name == "HUP" || name == "SIGHUP" || name == "QUIT" || name == "SIGQUIT";
      in.report.add("SL011", in.d, signal->span,
                    fmt::format("the signal goes to every process of the step, and {} dies of it", launcher->name),
                    {"", "", {}, is_handled ? std::optional<Severity>(Severity::kNote) : std::nullopt});
      break;
    }
  }
  for (const ShellCommand& command : in.part.script.commands) {
    const bool is_trap = command.words.size() >= 3 && command.words[0].text == "trap";
    const bool is_exit = is_trap && std::all_of(command.words.begin() + 2, command.words.end(), [](const ShellWord& word) {
                           return word.text == "EXIT" || word.text == "ERR" || word.text == "0";
                         });
    const bool is_of_task = command.depth > 0;                           // set inside what srun starts
    const bool only_ignores = is_trap && command.words[1].text.empty();  // trap '' USR1
    if (!is_trap || is_exit || is_of_task || only_ignores) continue;
    for (const LaunchLine* line : sruns) {
      const ShellCommand& srun = in.command(*line);
      if (srun.ends_with == "&" || srun.depth > 0 || !starts_training(in, *line)) continue;
      const bool ends_anyway = std::any_of(command.words.begin() + 2, command.words.end(),
                                           [](const ShellWord& word) { return word.text == "EXIT" || word.text == "0"; });
      in.report.add("SL012", in.d, command.words[0].span, "the trap runs only after srun has ended: srun stands in the foreground",
                    {.error_if = to_batch && !ends_anyway ? "" : "the job asks for a signal ahead of its end (--signal=B:)"});
    }
  }
  const Document* plan = in.setup.first(file_kind::kPlan);
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

// "$NAME" or "${NAME" on a line that is no comment; npos: nowhere.
size_t place_of_use(std::string_view text, std::string_view name) {
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const bool is_used = at > 0 && (text[at - 1] == '$' || (at > 1 && text[at - 1] == '{' && text[at - 2] == '$'));
    const size_t line = at == 0 ? 0 : text.rfind('\n', at) + 1;
    if (is_used && text[text.find_first_not_of(" \t", line)] != '#') return at;
  }
  return std::string_view::npos;
}

// A launcher that counts its processes by the empty variable starts none.
void sl_gpus_per_node(const JobScript& in) {
  constexpr std::string_view kName = "SLURM_GPUS_PER_NODE";
  const ShellAssignment* own = in.part.script.assignment(kName);
  const size_t at = place_of_use(in.d.text, kName);
  if (own != nullptr || at == std::string::npos) return;
  const std::string_view behind = std::string_view(in.d.text).substr(at + kName.size(), 2);
  if (behind == ":-" || behind.substr(0, 1) == "-" || behind == ":=") return;
  bool counts_processes = false;
  for (const LaunchLine& line : in.part.lines) {
    const LaunchStage* run = line.find(LaunchProgram::kTorchrun);
    const std::string value = run == nullptr ? "" : run->value("nproc_per_node");
    counts_processes = counts_processes || value == "$SLURM_GPUS_PER_NODE" || value == "${SLURM_GPUS_PER_NODE}";
  }
  in.report.add("SL018", in.d, {at, at + kName.size()},
                counts_processes ? "--gres=gpu:N does not set SLURM_GPUS_PER_NODE: --nproc_per_node is empty, and torchrun stops"
                                 : "SLURM_GPUS_PER_NODE is not set by --gres=gpu:N",
                {"", "", {}, counts_processes ? std::optional<Severity>(Severity::kError) : std::nullopt});
}

// Whether all launchers are told where to meet, and not by MASTER_ADDR.
bool meets_elsewhere(const JobScript& in) {
  bool has_launcher = false;
  for (const LaunchLine& line : in.part.lines) {
    const LaunchStage* launcher = launcher_of(line);
    if (launcher == nullptr) continue;
    has_launcher = true;
    bool is_told = false;
    for (const char* option_name : {"rdzv_endpoint", "master_addr", "main_process_ip"}) {
      const LaunchOption* option = launcher->find(option_name);
      is_told = is_told || (option != nullptr && in.d.cut(option->span).find("MASTER_ADDR") == std::string_view::npos);
    }
    if (!is_told) return false;
  }
  return has_launcher;
}

void sl_addresses(const JobScript& in) {
  const bool is_exclusive = in.directive("exclusive") != nullptr;
  for (const EnvironmentSetting& one : in.d.environment) {
    if (one.name == "MASTER_PORT" && number(one.value) && in.is_batch && !is_exclusive) {
      in.report.add("SL015", in.d, one.span, fmt::format("port {} for every job: two jobs on a shared node meet there", one.value));
    }
    const std::string_view text = in.d.cut(one.span);
    const bool is_looked_up = text.find("=$(") != std::string_view::npos || text.find("=`") != std::string_view::npos;
    const bool is_local = (text.find("localhost") != std::string_view::npos || text.find("127.0.0.1") != std::string_view::npos) &&
                          (!is_looked_up || text.find("|| echo") != std::string_view::npos);
    const bool is_fallback = is_looked_up || text.find(":-") != std::string_view::npos || text.find(":=") != std::string_view::npos;
    const auto is_set_again = [&one](const EnvironmentSetting& other) { return other.name == one.name && &other != &one; };
    const bool is_only = std::none_of(in.d.environment.begin(), in.d.environment.end(), is_set_again);
    if (one.name == "MASTER_ADDR" && is_local && in.nodes > 1 && is_only) {
      in.report.add("SL016", in.d, one.span,
                    fmt::format("MASTER_ADDR can be localhost: then {} nodes train {} jobs of their own", in.nodes, in.nodes),
                    {"", "", {}, is_fallback || meets_elsewhere(in) ? std::nullopt : std::optional<Severity>(Severity::kError)});
    }
  }
  const Directive* gres = in.directive("gres");
  if (gres != nullptr && gres->value.rfind("gpu", 0) == 0 && in.directive("gpus-per-node") == nullptr) sl_gpus_per_node(in);
  const Directive* gpus = in.directive("gpus-per-node") != nullptr ? in.directive("gpus-per-node") : gres;
  const bool is_whole_node = in.gpus >= 8 || (in.setup.context.gpus_per_node > 0 && in.gpus == in.setup.context.gpus_per_node);
  // A job that asks for its cores or its memory has them, whoever else is there.
  const bool asks_for_share = in.directive("cpus-per-task") != nullptr || in.directive("cpus-per-gpu") != nullptr ||
                              in.directive("mem") != nullptr || in.directive("mem-per-gpu") != nullptr ||
                              in.directive("mem-per-cpu") != nullptr;
  if (gpus != nullptr && is_whole_node && !is_exclusive && !asks_for_share) {
    in.report.add("SL020", in.d, gpus->span,
                  fmt::format("{} GPUs of a node without --exclusive: other jobs may share its memory and network", in.gpus));
  }
}

void sl_environment(const JobScript& in, const std::vector<const LaunchLine*>& sruns) {
  const Directive* cpus = in.directive("cpus-per-task");
  // A script that gives one step its cores knows the rule; its other steps only print or look at the job.
  const bool is_passed = mentions(in, "SRUN_CPUS_PER_TASK") || in.setup.environment("SRUN_CPUS_PER_TASK") != nullptr ||
                         std::any_of(sruns.begin(), sruns.end(), [](const LaunchLine* line) {
                           const LaunchStage* srun = line->find(LaunchProgram::kSrun);
                           return srun->has("cpus_per_task") || srun->has("c");
                         });
  if (cpus != nullptr && !is_passed) {
    const ShellCommand& first = in.command(*sruns[0]);
    size_t begin = first.words[0].span.begin;
    if (!first.assignments.empty()) begin = std::min(begin, first.assignments[0].span.begin);
    const TextSpan line = line_span(in.d, begin);
    const bool starts_line = in.d.text.find_first_not_of(" \t", line.begin) == begin;
    std::vector<LintEdit> edits;
    if (starts_line && first.depth == 0)
      edits.push_back({line.begin, line.begin, "export SRUN_CPUS_PER_TASK=\"$SLURM_CPUS_PER_TASK\"\n"});
    in.report.add("SL017", in.d, cpus->span, "srun does not take over --cpus-per-task since SLURM 22.05: its tasks get one core each",
                  {"", "", edits, {}});
  }
}

// nodes=$(scontrol show hostnames …); nodes_array=("$nodes"): quoted, the list is one item with all names in it.
void sl_node_names(const JobScript& in) {
  if (in.count("nodes") == 1) return;
  for (const ShellCommand& command : in.part.script.commands) {
    for (const ShellAssignment& one : command.assignments) {
      const bool is_single = one.is_array && !one.appends && one.array.size() == 1 && one.array[0].parts.size() == 1;
      if (!is_single || one.array[0].parts[0].quote != ShellQuote::kDouble) continue;
      const std::string& quoted = one.array[0].parts[0].text;
      const ShellAssignment* behind = in.part.script.assignment(variable_of(quoted));
      const std::string_view names = behind == nullptr ? std::string_view(quoted) : in.d.cut(behind->span);
      const bool is_list = names.find("$(") != std::string_view::npos &&
                           names.find("scontrol show hostname") != std::string_view::npos &&
                           names.find("head") == std::string_view::npos && names.find("sed") == std::string_view::npos;
      const std::string item = "${" + one.name + "[";
      size_t at = in.d.text.find(item);
      while (at != std::string::npos && (in.d.text[at + item.size()] == '@' || in.d.text[at + item.size()] == '*'))
        at = in.d.text.find(item, at + 1);
      if (!is_list || at == std::string::npos) continue;
      const TextSpan span = one.array[0].parts[0].span;
      in.report.add("SL039", in.d, one.span,
                    fmt::format("'{}' has one item, the names of all nodes: quotes keep them together", one.name),
                    {"",
                     "",
                     {{span.begin - 1, span.begin, ""}, {span.end, span.end + 1, ""}},
                     {},
                     in.count("nodes") > 1 ? "" : "the job has several nodes"});
    }
  }
}

}  // namespace

void check_job(const JobScript& in, const std::vector<const LaunchLine*>& sruns) {
  sl_logs(in);
  sl_requeue(in);
  sl_signals(in, sruns);
  sl_addresses(in);
  sl_node_names(in);
  check_job_text(in);
  if (!sruns.empty()) sl_environment(in, sruns);
}

}  // namespace distsetup::lint
