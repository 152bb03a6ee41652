// torchrun, the deepspeed launcher and its hostfiles, wherever a command starts them.
#include "codegen/lint/launchers.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/names.h"
#include "codegen/lint/allocation.h"
#include "codegen/lint/batch_launch.h"
#include "codegen/lint/caller_values.h"
#include "codegen/lint/job_script.h"

namespace distsetup::lint {
namespace {

// Kinds whose controller starts pods and sets nothing in them.
bool sets_no_variables(const Document& d) {
  if (d.text.find("envFrom") != std::string::npos || d.text.find("PET_") != std::string::npos) return false;
  return std::all_of(d.roots.begin(), d.roots.end(), [](const Value& root) {
    const std::string kind = text(root, "kind"), api = text(root, "apiVersion");
    return kind == "JobSet" || kind == "Pod" || (kind == "Job" && api == "batch/v1") || !has(root, "spec");
  });
}

void tr_rendezvous(const LintSetup& setup, const Document& d, const ShellScript& script, const LaunchStage& run, Findings& report) {
  const std::string in_pod =
      knows_its_cluster(d, script) || setup.context.nodes > 1 || (d.is(file_kind::kKubernetes) && sets_no_variables(d))
          ? ""
          : "no operator or platform sets PET_ variables";
  const std::string backend = run.value("rdzv_backend");
  const bool is_dynamic = backend == "c10d" || backend == "etcd" || backend == "etcd-v2";
  const LaunchOption* standalone = run.find("standalone");
  const bool is_alone = standalone != nullptr && !is_of_a_branch(standalone->value);
  const std::string nnodes = run.value("nnodes");
  for (const char* name : {"node_rank", "master_addr", "master_port"}) {
    const LaunchOption* option = run.find(name);
    if (option == nullptr || is_of_a_branch(option->value) || !(is_dynamic || is_alone)) continue;
    // With an endpoint the nodes meet all the same, and one node meets itself.
    const bool is_harmless = is_alone || run.has("rdzv_endpoint") || nnodes == "1" || nnodes.empty();
    const Directive* of_job = script.directive("nodes");
    const int64_t num_nodes = node_count(script, nnodes, of_job == nullptr ? 0 : number(of_job->value).value_or(0));
    const bool is_counted =
        num_nodes > 1 && (variable_of(nnodes).rfind("SLURM_", 0) == 0 || !comes_from_caller(d, script, *run.find("nnodes")));
    report.add("TR001", d, option->span,
               fmt::format("'{}' is silently ignored with {}", option->spelled, is_alone ? "--standalone" : "rdzv_backend " + backend),
               {"",
                "",
                {},
                is_harmless ? std::optional<Severity>(Severity::kNote) : std::nullopt,
                is_counted ? in_pod : "there are several nodes"});
  }
  if (const LaunchOption* id = run.find("rdzv_id"); id != nullptr && is_dynamic) {
    const bool is_fixed = id->value.find_first_of("$`") == std::string::npos && !comes_from_caller(d, script, *id);
    const bool meets_elsewhere = run.value("rdzv_endpoint").find_first_of("$`") != std::string::npos;  // a head of its own per job
    if (is_fixed)
      report.add("TR002", d, id->span, fmt::format("the rendezvous id '{}' is the same in every job", id->value),
                 {"", "", {}, meets_elsewhere ? std::optional<Severity>(Severity::kNote) : std::nullopt});
  }
  if (const size_t colon = nnodes.find(':'); colon != std::string::npos && (backend.empty() || backend == "static") && !is_alone) {
    const auto least = number(nnodes.substr(0, colon)), most = number(nnodes.substr(colon + 1));
    if (least && most && *least != *most)
      report.add("TR005", d, run.find("nnodes")->span,
                 fmt::format("'{}' nodes is an elastic range, and static rendezvous has a fixed number", nnodes));
  }
  if (const LaunchOption* timeout = run.find("rdzv_timeout")) {
    std::vector<LintEdit> edits;
    if (!run.has("rdzv_conf") && number(timeout->value))
      edits.push_back({timeout->span.begin, timeout->span.end, "--rdzv_conf=timeout=" + timeout->value});
    report.add("TR007", d, timeout->span, "torchrun has no flag --rdzv_timeout",
               {fmt::format("write --rdzv_conf=timeout={}", timeout->value), "", edits, {}});
  }
  const auto nodes = number(nnodes);
  if (!nodes || *nodes < 2 || is_alone) return;
  const bool is_open = comes_from_caller(d, script, *run.find("nnodes"));
  const char* skypilots = "add --master_addr=\"$(echo \"$SKYPILOT_NODE_IPS\" | head -n1)\" --node_rank=\"$SKYPILOT_NODE_RANK\"";
  const FindingDetails where{.help = d.is(file_kind::kSkypilot) ? skypilots : "",
                             .error_if = is_open ? "the number of nodes stays as it is here" : in_pod};
  if (is_dynamic && !run.has("rdzv_endpoint")) {
    report.add("TR010", d, run.span,
               fmt::format("{} nodes with rdzv_backend {} and no --rdzv_endpoint: they cannot meet", *nodes, backend), where);
  }
  // Also where a step's own shell sets it: srun bash -c 'export PET_NODE_RANK=$SLURM_NODEID; exec "$@"' node torchrun …
  const auto sets = [&](const char* name) {
    return setup.environment(name) != nullptr || (d.is(file_kind::kKubernetes) && !sets_no_variables(d)) ||
           d.text.find(fmt::format("{}=", name)) != std::string::npos;
  };
  const bool env_addr = sets("PET_MASTER_ADDR");
  if (!is_dynamic && !run.has("master_addr") && !run.has("rdzv_endpoint") && !env_addr) {
    report.add("TR010", d, run.span, fmt::format("{} nodes and no --master_addr: every node waits for itself on 127.0.0.1", *nodes),
               where);
  }
  if (!is_dynamic && !run.has("node_rank") && !sets("PET_NODE_RANK")) {
    report.add("TR010", d, run.span, fmt::format("{} nodes and no --node_rank: every node is node 0", *nodes), where);
  }
}

// One srun starts the same words on every node.
void tr_same_rank(const LaunchLine& line, const Document& d, const ScriptPart& part, const LaunchStage& run, Findings& report) {
  const LaunchStage* srun = line.find(LaunchProgram::kSrun);
  const LaunchOption* rank = run.find("node_rank");
  const Directive* of_job = part.script.directive("nodes");
  const int64_t nodes = node_count(part.script, run.value("nnodes"), of_job == nullptr ? 0 : number(of_job->value).value_or(0));
  if (srun == nullptr || rank == nullptr || !number(rank->value) || nodes < 2 || run.has("rdzv_backend")) return;
  for (const char* name : {"nodes", "N", "nodelist", "w", "relative", "r"}) {
    if (srun->has(name)) return;  // a part of the job, which others join
  }
  report.add("TR010", d, rank->span, fmt::format("'{}' on each of {} nodes: every node is node {}", rank->spelled, nodes, rank->value),
             {.error_if = comes_from_caller(d, part.script, *rank) ? "the rank stays as it is here" : ""});
}

void tr_flags(const LintSetup& setup, const Document& d, const LaunchLine& line, const LaunchStage& run, Findings& report) {
  const auto per_node = number(run.value("nproc_per_node"));
  const bool sets_threads = std::any_of(setup.documents.begin(), setup.documents.end(), [](const auto& other) {
    return other->text.find("OMP_NUM_THREADS") != std::string::npos;  // also what tmux -e or a container's --env hands over
  });
  if ((!per_node || *per_node > 1) && run.has("nproc_per_node") && !sets_threads) {
    report.add("TR004", d, run.span, "OMP_NUM_THREADS is not set: torchrun makes it 1, and data loading and CPU Adam crawl");
  }
  const auto restarts = number(run.value("max_restarts"));
  const LaunchStage* script = line.find(LaunchProgram::kScript);
  if (restarts && *restarts > 0 && script != nullptr) {
    for (const LaunchOption& option : script->options) {
      const bool uses_rank = option.value.find("$RANK") != std::string::npos || option.value.find("${RANK") != std::string::npos ||
                             option.value.find("{rank}") != std::string::npos;
      if (uses_rank)
        report.add(
            "TR006", d, option.span,
            fmt::format("'{}' is named after the rank, and ranks move when torchrun restarts ({} times)", option.value, *restarts));
    }
  }
}

// Without a scheduler that runs the file on every node, each of them is given a copy, or the number of another.
bool is_by_hand(const Document& d, const ScriptPart& part, const LaunchLine& line) {
  return !d.is(file_kind::kKubernetes) && !d.is(file_kind::kSkypilot) && !knows_its_cluster(d, part.script) &&
         part.script.directives.empty() && part.script.pbs.empty() && part.script.lsf.empty() &&
         line.find(LaunchProgram::kSrun) == nullptr && line.find(LaunchProgram::kMpirun) == nullptr &&
         part.script.commands[line.command].depth == 0;
}

// A line or a file for each node: several launch lines, or a file that is called after one.
bool is_of_one_node(const Document& d, const ScriptPart& part) {
  const auto num = std::count_if(part.lines.begin(), part.lines.end(),
                                 [](const LaunchLine& one) { return one.find(LaunchProgram::kTorchrun) != nullptr; });
  const std::string file = lower(d.path.substr(d.path.rfind('/') + 1));
  const auto is_of_node = [&file](std::string_view word) { return file.find(word) != std::string::npos; };
  return num != 1 || is_of_node("master") || is_of_node("worker") || is_of_node("node0") || is_of_node("node1") || is_of_node("head");
}

void tr_fixed_rank(const Document& d, const ScriptPart& part, const LaunchLine& line, const LaunchStage& run, Findings& report) {
  const LaunchOption *rank = run.find("node_rank"), *nnodes = run.find("nnodes");
  const std::string backend = run.value("rdzv_backend");
  const bool is_static = !run.has("standalone") && (backend.empty() || backend == "static");
  if (rank == nullptr || nnodes == nullptr || !is_static || !is_by_hand(d, part, line)) return;
  const auto n = number(nnodes->value);
  if (!n || *n < 2 || !number(rank->value) || d.cut(rank->span).find('$') != std::string_view::npos ||
      comes_from_caller(d, part.script, *rank) || comes_from_caller(d, part.script, *nnodes))
    return;
  if (is_of_one_node(d, part)) return;
  report.add("TR014", d, rank->span, fmt::format("every node that runs this file is node {} of {}", rank->value, *n));
}

// Where a text stands that another shell expands later: in single quotes of a command around it, or with a backslash in front.
bool is_expanded_later(const Document& d, const ScriptPart& part, const LaunchLine& line, size_t dollar) {
  const int depth = part.script.commands[line.command].depth;
  if (dollar > 0 && d.text[dollar - 1] == '\\') return depth > 0;
  for (const ShellCommand& outer : part.script.commands) {
    if (outer.depth >= depth) continue;
    for (const ShellWord& word : outer.words) {
      for (const WordPart& one : word.parts) {
        if (one.quote == ShellQuote::kSingle && one.span.begin <= dollar && dollar < one.span.end) return true;
      }
    }
  }
  return false;
}

// Nodes that the one who starts the file counts ("--nnodes $NNODES"), with no default that says one.
bool may_be_several(const LaunchStage& run) {
  const std::string nnodes = run.value("nnodes");
  return nnodes.find('$') != std::string::npos && nnodes.find("-1}") == std::string::npos;
}

// --rdzv_endpoint=$HOSTNAME:29500 in what srun starts on every node, in every pod, or in a file that is started on each node.
void tr_own_name(const Document& d, const ScriptPart& part, const LaunchLine& line, const LaunchStage& run, Findings& report) {
  const LaunchOption* where = run.find("rdzv_endpoint") != nullptr ? run.find("rdzv_endpoint") : run.find("master_addr");
  if (where == nullptr) return;
  const bool is_manifest = d.is(file_kind::kKubernetes);
  const Directive* of_job = part.script.directive("nodes");
  const int64_t job_nodes = is_manifest         ? manifest_count(d, "nodes").value_or(0)
                            : of_job == nullptr ? 0
                                                : number(of_job->value).value_or(0);
  const int64_t nodes = run.has("nnodes") ? node_count(part.script, run.value("nnodes"), job_nodes) : job_nodes;
  const bool is_each_by_hand = is_by_hand(d, part, line) && !is_of_one_node(d, part) && d.text.find("HOSTNAME=") == std::string::npos;
  const bool is_open = nodes == 0 && is_each_by_hand && may_be_several(run);
  if (nodes < 2 && !is_open) return;
  for (const std::string_view name : {"$HOSTNAME", "${HOSTNAME}", "$(hostname", "`hostname"}) {
    const size_t at = d.text.find(name, where->span.begin);
    if (at >= where->span.end) continue;
    const bool is_on_each =
        is_manifest ? sets_no_variables(d) : is_each_by_hand || (is_under_srun(part, line) && is_expanded_later(d, part, line, at));
    if (!is_on_each) return;
    if (!is_manifest && is_each_by_hand) {
      report.add("TR015", d, where->span, "every node that runs this file meets at its own name: none of them finds another",
                 {.help = "give all of them the name of one node", .severity = Severity::kWarning});
      return;
    }
    report.add("TR015", d, where->span,
               fmt::format("each of {} {} meets at its own name: none of them finds another", nodes, is_manifest ? "pods" : "nodes"));
    return;
  }
}

// Pods of a controller that sets no variables: where they are told to meet, one of them alone is not meant.
void tr_pods(const Document& d, const LaunchStage& run, Findings& report) {
  if (!d.is(file_kind::kKubernetes) || !sets_no_variables(d) || run.has("nnodes") || run.has("standalone")) return;
  const LaunchOption* where = run.find("rdzv_endpoint") != nullptr ? run.find("rdzv_endpoint") : run.find("master_addr");
  const auto pods = manifest_count(d, "nodes");
  if (where == nullptr || !pods || *pods < 2 || where->value.find("localhost") != std::string::npos ||
      where->value.find("127.0.0.1") != std::string::npos)
    return;
  report.add("TR009", d, run.span,
             fmt::format("torchrun without --nnodes is a job of one node, and {} pods start it: each trains alone", *pods),
             {fmt::format("add --nnodes={} and a --node_rank", *pods), "", {}, {}});
}

void dl_command(const Document& d, const ScriptPart& part, const LaunchStage& run, Findings& report) {
  const LaunchOption* include = run.find("include") != nullptr ? run.find("include") : run.find("i");
  const LaunchOption* exclude = run.find("exclude") != nullptr ? run.find("exclude") : run.find("e");
  const bool has_hostfile = run.has("hostfile") || run.has("H");
  if (include != nullptr && include->value.find(':') == std::string::npos) {
    report.add("DL001", d, include->span,
               fmt::format("deepspeed launcher: '{}' without slots starts nothing on that host in some releases", include->value),
               {.severity = Severity::kWarning});
  }
  if (include != nullptr && exclude != nullptr)
    report.add("DL001", d, exclude->span, "deepspeed launcher: --include and --exclude exclude each other");
  for (const char* name : {"num_gpus", "num_nodes"}) {
    const LaunchOption* chosen = include != nullptr ? include : exclude;
    if (chosen == nullptr || number(run.value(name)).value_or(-1) < 0) continue;
    report.add("DL001", d, run.find(name)->span,
               fmt::format("deepspeed launcher: {} and {} exclude each other", run.find(name)->spelled, chosen->spelled));
  }
  const auto nodes = number(run.value("num_nodes"));
  if (nodes && *nodes > 1 && !has_hostfile && !run.has("launcher") && !run.has("no_ssh")) {
    // Machines of one's own may have the launcher's default, /job/hostfile; nodes that a scheduler chooses do not stand in one.
    const bool is_scheduled = !part.script.directives.empty() && d.text.find("hostfile") == std::string::npos;
    report.add("DL001", d, run.find("num_nodes")->span, fmt::format("deepspeed launcher: {} nodes need a hostfile", *nodes),
               {.error_if = is_scheduled ? "" : "the first machine has no /job/hostfile"});
  }
  const bool is_chosen = include != nullptr || exclude != nullptr || run.has("num_gpus") || (nodes && *nodes > 1);
  if (is_chosen) {
    for (const EnvironmentSetting& one : d.environment) {
      // CUDA_VISIBLE_DEVICES=0,1 and --include localhost:$CUDA_VISIBLE_DEVICES: the choice is made of it.
      if (one.name == "CUDA_VISIBLE_DEVICES" && d.text.find("$CUDA_VISIBLE_DEVICES") == std::string::npos &&
          d.text.find("${CUDA_VISIBLE_DEVICES") == std::string::npos)
        report.add("DL002", d, one.span, "CUDA_VISIBLE_DEVICES is silently ignored once GPUs are chosen on deepspeed's command line");
    }
  }
  if (run.value("launcher") == "slurm")
    report.add("DL003", d, run.find("launcher")->span, "deepspeed's slurm launcher passes options that srun lacks and needs mpi4py");
  const size_t status = d.text.find("$?");
  const bool requeues = d.text.find("scontrol requeue") != std::string::npos || d.text.find("sbatch \"$0\"") != std::string::npos;
  if (requeues && status != std::string::npos && status > run.span.end) {
    report.add("DL004", d, {status, status + 2},
               "deepspeed ends with 0 when a signal stops it: its exit status says nothing about a requeue");
  }
}

void dl_hostfile(const Document& d, Findings& report) {
  std::vector<std::string> seen;
  bool has_host = false;
  for (size_t at = 0; at < d.text.size();) {
    const size_t end = std::min(d.text.find('\n', at), d.text.size());
    std::string line = d.text.substr(at, end - at);
    const TextSpan span{at, end};
    at = end + 1;
    if (const size_t hash = line.find('#'); hash != std::string::npos) line.erase(hash);
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r' || line.back() == '\t')) line.pop_back();
    if (line.empty()) continue;
    has_host = true;
    const size_t blank = line.find_first_of(" \t");
    const std::string host = line.substr(0, blank);
    const std::string rest = blank == std::string::npos ? "" : line.substr(line.find_first_not_of(" \t", blank));
    const auto slots = rest.rfind("slots=", 0) == 0 ? number(rest.substr(6)) : std::nullopt;
    if (!slots) {
      report.add("DL001", d, span, fmt::format("deepspeed launcher: '{}' is no line of a hostfile, expected 'host slots=8'", line));
    } else if (*slots < 1) {
      report.add("DL001", d, span, fmt::format("deepspeed launcher: '{}' has no slots, nothing starts there", host),
                 {"", "silent", {}, {}});
    }
    if (std::find(seen.begin(), seen.end(), host) != seen.end())
      report.add("DL001", d, span, fmt::format("deepspeed launcher: '{}' is listed twice", host));
    seen.push_back(host);
  }
  if (!has_host) report.add("DL001", d, {0, 0}, "deepspeed launcher: the hostfile is empty");
}

}  // namespace

void check_launchers(const LintSetup& setup, const Document& d, Findings& report) {
  if (d.is(file_kind::kHostfile)) return dl_hostfile(d, report);
  for (const ScriptPart& part : d.parts) {
    for (const LaunchLine& line : part.lines) {
      if (const LaunchStage* run = line.find(LaunchProgram::kTorchrun)) {
        tr_rendezvous(setup, d, part.script, *run, report);
        tr_flags(setup, d, line, *run, report);
        tr_same_rank(line, d, part, *run, report);
        tr_fixed_rank(d, part, line, *run, report);
        tr_own_name(d, part, line, *run, report);
        tr_pods(d, *run, report);
      }
      if (const LaunchStage* run = line.find(LaunchProgram::kDeepspeed)) dl_command(d, part, *run, report);
    }
  }
}

}  // namespace distsetup::lint
