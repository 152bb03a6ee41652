// Environment variables, wherever they are set: scripts, srun and mpirun options, manifests, lists.
#include "codegen/lint/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/names.h"
#include "codegen/job/secrets.h"
#include "codegen/lint/megatron.h"
#include "codegen/lint/misspelt.h"
#include "codegen/shell/starts_training.h"
#include "codegen/shell/words.h"

namespace distsetup::lint {
namespace {

struct RenamedVariable {
  std::string_view old, now, since;
};

// "torch 2.9" says the first release with the new name, and the files pin an earlier one.
bool is_of_earlier_release(const LintSetup& setup, const RenamedVariable& one) {
  const size_t blank = one.since.find(' ');
  const std::string package = lower(one.since.substr(0, blank)), pinned = setup.version(package);
  const std::string_view release = one.since.substr(blank + 1);
  return !pinned.empty() && compare_versions(pinned, release.substr(0, release.find(','))) < 0;
}
constexpr std::array<RenamedVariable, 8> kRenamedVariables = {
    {{"NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "torch 2.2"},
     {"NCCL_BLOCKING_WAIT", "TORCH_NCCL_BLOCKING_WAIT", "torch 2.2"},
     {"NCCL_DESYNC_DEBUG", "TORCH_NCCL_DESYNC_DEBUG", "torch 2.2"},
     {"TORCH_NCCL_AVOID_RECORD_STREAMS", "", "torch 2.9, where it is the default"},
     {"TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE", "torch 2.9"},
     {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE", "torch 2.9"},
     {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "torch 2.9"},
     {"TRANSFORMERS_CACHE", "HF_HOME", "Transformers 5"}}};

// NVIDIA NCCL documentation, Environment Variables (2.30), and ncclParam names of its sources (src/*.cc, NCCL_PARAM).
const std::vector<std::string> kNcclNames = {
    "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "NCCL_SOCKET_RETRY_CNT", "NCCL_SOCKET_RETRY_SLEEP_MSEC", "NCCL_SOCKET_NTHREADS",
    "NCCL_NSOCKS_PERTHREAD", "NCCL_CROSS_NIC", "NCCL_IB_HCA", "NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT", "NCCL_IB_GID_INDEX",
    "NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE", "NCCL_IB_ROCE_VERSION_NUM", "NCCL_IB_SL", "NCCL_IB_TC", "NCCL_IB_FIFO_TC",
    "NCCL_IB_RETURN_ASYNC_EVENTS", "NCCL_OOB_NET_ENABLE", "NCCL_OOB_NET_IFNAME", "NCCL_UID_STAGGER_THRESHOLD", "NCCL_UID_STAGGER_RATE",
    "NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN", "NCCL_ENV_PLUGIN", "NCCL_IGNORE_CPU_AFFINITY",
    "NCCL_CONF_FILE", "NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_TIMESTAMP_FORMAT",
    "NCCL_DEBUG_TIMESTAMP_LEVELS", "NCCL_COLLNET_ENABLE", "NCCL_COLLNET_NODE_THRESHOLD", "NCCL_CTA_POLICY", "NCCL_NETDEVS_POLICY",
    "NCCL_TOPO_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_FILE", "NCCL_GRAPH_DUMP_FILE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL",
    "NCCL_P2P_DIRECT_DISABLE", "NCCL_SHM_DISABLE", "NCCL_BUFFSIZE", "NCCL_NTHREADS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_CTAS", "NCCL_MIN_CTAS", "NCCL_CHECKS_DISABLE", "NCCL_CHECK_POINTERS", "NCCL_LAUNCH_MODE", "NCCL_IB_DISABLE",
    "NCCL_IB_AR_THRESHOLD", "NCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_SPLIT_DATA_ON_QPS", "NCCL_IB_PCI_RELAXED_ORDERING",
    "NCCL_IB_ADAPTIVE_ROUTING", "NCCL_IB_ECE_ENABLE", "NCCL_IB_MERGE_NICS", "NCCL_IB_MERGE_VFS", "NCCL_IB_DATA_DIRECT", "NCCL_IB_PKEY",
    "NCCL_IB_USE_INLINE", "NCCL_MEM_SYNC_DOMAIN", "NCCL_CUMEM_ENABLE", "NCCL_CUMEM_HOST_ENABLE", "NCCL_NET_GDR_LEVEL",
    "NCCL_NET_GDR_READ", "NCCL_NET_GDR_C2C", "NCCL_NET_SHARED_BUFFERS", "NCCL_NET_SHARED_COMMS", "NCCL_NET_MERGE_LEVEL",
    "NCCL_NET_FORCE_MERGE", "NCCL_NET_FORCE_FLUSH", "NCCL_NET_DISABLE_INTRA", "NCCL_NET_OVERHEAD", "NCCL_NET_OPTIONAL_RECV_COMPLETION",
    "NCCL_ALGO", "NCCL_PROTO", "NCCL_NVB_DISABLE", "NCCL_NVB_PREUSE", "NCCL_PXN_DISABLE", "NCCL_PXN_C2C", "NCCL_P2P_PXN_LEVEL",
    "NCCL_RUNTIME_CONNECT", "NCCL_GRAPH_REGISTER", "NCCL_LOCAL_REGISTER", "NCCL_LEGACY_CUDA_REGISTER", "NCCL_WIN_ENABLE",
    "NCCL_SET_STACK_SIZE", "NCCL_SET_CPU_STACK_SIZE", "NCCL_GRAPH_MIXING_SUPPORT", "NCCL_DMABUF_ENABLE", "NCCL_P2P_NET_CHUNKSIZE",
    "NCCL_P2P_PCI_CHUNKSIZE", "NCCL_P2P_NVL_CHUNKSIZE", "NCCL_P2P_LL_THRESHOLD", "NCCL_P2P_USE_CUDA_MEMCPY", "NCCL_P2P_READ_ENABLE",
    "NCCL_ALLOC_P2P_NET_LL_BUFFERS", "NCCL_COMM_BLOCKING", "NCCL_CGA_CLUSTER_SIZE", "NCCL_MNNVL_ENABLE", "NCCL_MNNVL_UUID",
    "NCCL_MNNVL_CLIQUE_ID", "NCCL_RAS_ENABLE", "NCCL_RAS_ADDR", "NCCL_RAS_TIMEOUT_FACTOR", "NCCL_LAUNCH_RACE_FATAL",
    "NCCL_LAUNCH_ORDER_IMPLICIT", "NCCL_NVLS_ENABLE", "NCCL_NVLS_NCHANNELS", "NCCL_NVLS_CHUNKSIZE", "NCCL_NVLSTREE_MAX_CHUNKSIZE",
    "NCCL_ABORT_ON_ERROR", "NCCL_HOSTID", "NCCL_PROXY_APPEND_BATCH_SIZE", "NCCL_PROXY_DUMP_SIGNAL", "NCCL_PROXY_CPUSET",
    "NCCL_PROGRESS_APPENDOP_FREQ", "NCCL_REPORT_CONNECT_PROGRESS", "NCCL_SINGLE_PROC_MEM_REG_ENABLE", "NCCL_SYM_KERNEL",
    "NCCL_SYM_CTAS", "NCCL_COMM_SHRINK_SHARE_RESOURCES", "NCCL_COMM_SPLIT_SHARE_RESOURCES", "NCCL_COMM_ID",
    "NCCL_NCHANNELS_PER_NET_PEER", "NCCL_MAX_P2P_NCHANNELS", "NCCL_MIN_P2P_NCHANNELS", "NCCL_WORK_FIFO_BYTES", "NCCL_WORK_ARGS_BYTES",
    "NCCL_DISABLE_GRAPH_REGISTER", "NCCL_L1_SHARED_MEMORY_CARVEOUT", "NCCL_BYPASS_RING", "NCCL_NO_CACHE", "NCCL_TOPO_FILE_RANK",
    "NCCL_IGNORE_DISABLED_P2P", "NCCL_SHM_USE_CUDA_MEMCPY", "NCCL_SHM_MEMCPY_MODE", "NCCL_SHM_LOCALITY",
    "NCCL_SHARP_GROUP_SIZE_THRESH", "NCCL_THREAD_THRESHOLDS", "NCCL_GDRCOPY_ENABLE", "NCCL_GDRCOPY_FIFO_ENABLE",
    "NCCL_GDRCOPY_SYNC_ENABLE", "NCCL_GDRCOPY_FLUSH_ENABLE", "NCCL_GDR_FLUSH_DISABLE", "NCCL_FASTRAK_CTRL_DEV",
    "NCCL_WORK_FIFO_DEPTH",  // of releases before WORK_FIFO_BYTES
    // Of plugins, of nccl-tests and of images.
    "NCCL_TESTS_SPLIT", "NCCL_VERSION", "NCCL_HOME", "NCCL_DIR", "NCCL_ROOT", "NCCL_LIB_DIR", "NCCL_INCLUDE_DIR",
    "NCCL_SHARP_DISABLE"};

// The same page says since when they are gone.
constexpr std::array<RenamedVariable, 7> kRemovedVariables = {{{"NCCL_TREE_THRESHOLD", "NCCL_ALGO", "2.5"},
                                                               {"NCCL_LL_THRESHOLD", "NCCL_PROTO", "2.5"},
                                                               {"NCCL_SINGLE_RING_THRESHOLD", "", "2.3"},
                                                               {"NCCL_MAX_NRINGS", "NCCL_MAX_NCHANNELS", "2.5"},
                                                               {"NCCL_MIN_NRINGS", "NCCL_MIN_NCHANNELS", "2.5"},
                                                               {"NCCL_RINGS", "NCCL_GRAPH_FILE", "2.4"},
                                                               {"NCCL_IB_CUDA_SUPPORT", "NCCL_NET_GDR_LEVEL", "2.4"}}};

const std::vector<std::string_view> kDebugSwitches = {"NCCL_IB_DISABLE",    "NCCL_P2P_DISABLE",         "NCCL_SHM_DISABLE",
                                                      "NCCL_BLOCKING_WAIT", "TORCH_NCCL_BLOCKING_WAIT", "CUDA_LAUNCH_BLOCKING",
                                                      "NCCL_LAUNCH_MODE",   "NCCL_CHECKS_DISABLE",      "TORCH_DISTRIBUTED_DEBUG"};

bool is_plugin_name(std::string_view name) {
  for (const std::string_view head : {"NCCL_FASTRAK_", "NCCL_GPUDIRECTTCPX_", "NCCL_PLUGIN_", "NCCL_OFI_", "NCCL_UCX_", "NCCL_SHARP_",
                                      "NCCL_GIN_", "NCCL_RMA_", "NCCL_IBEXT_", "NCCL_SHIMNET_", "NCCL_TUNER_CONFIG_"}) {
    if (name.substr(0, head.size()) == head) return true;
  }
  return false;
}

// NCCL's own InfiniBand transport is for nothing where a plugin moves the bytes: EFA and Slingshot go through libfabric.
bool has_other_transport(const Document& d) {
  return std::any_of(d.environment.begin(), d.environment.end(), [](const EnvironmentSetting& one) {
    const bool is_fabric = one.name == "FI_PROVIDER" && (one.value.rfind("efa", 0) == 0 || one.value == "cxi");
    return is_fabric || one.name.rfind("FI_CXI_", 0) == 0 || one.name.rfind("FI_EFA_", 0) == 0 ||
           (one.name == "NCCL_NET" && (lower(one.value) == "ofi" || lower(one.value).find("libfabric") != std::string::npos));
  });
}

// Names that are long enough for a slip of the pen to be a mistake, and of which nothing tells that they were not read.
const std::vector<std::string> kCommonNames = {"CUDA_VISIBLE_DEVICES",    "HIP_VISIBLE_DEVICES",
                                               "ROCR_VISIBLE_DEVICES",    "CUDA_DEVICE_MAX_CONNECTIONS",
                                               "CUDA_DEVICE_ORDER",       "CUDA_LAUNCH_BLOCKING",
                                               "OMP_NUM_THREADS",         "TOKENIZERS_PARALLELISM",
                                               "GLOO_SOCKET_IFNAME",      "TORCH_DISTRIBUTED_DEBUG",
                                               "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
                                               "PYTORCH_HIP_ALLOC_CONF",  "HF_DATASETS_OFFLINE",
                                               "TRANSFORMERS_OFFLINE",    "HF_HUB_OFFLINE",
                                               "SRUN_CPUS_PER_TASK",      "TORCH_NCCL_ASYNC_ERROR_HANDLING"};

bool is_read_here(const Document& d, const std::string& name) {
  return d.text.find("$" + name) != std::string::npos || d.text.find("${" + name) != std::string::npos ||
         d.text.find("\"" + name + "\"]") != std::string::npos;
}

void env_misspelt(const Document& d, const EnvironmentSetting& one, Findings& report) {
  if (std::find(kCommonNames.begin(), kCommonNames.end(), one.name) != kCommonNames.end()) return;
  const std::string name = misspelt_name(one.name, kCommonNames);
  if (name.empty() || is_read_here(d, one.name)) return;  // which reads all of the text
  report.add("ENV009", d, one.name_span, fmt::format("nothing reads {}: it is silently ignored", one.name),
             {fmt::format("did you mean {}", name), "", {{one.name_span.begin, one.name_span.end, name}}, {}});
}

// Plugins of clouds read names of their own, and tune NCCL by names that it documents nowhere.
bool reads_plugin_names(const Document& d) {
  return std::any_of(d.environment.begin(), d.environment.end(), [](const EnvironmentSetting& one) {
    const auto begins = [&one](std::string_view head) { return one.name.rfind(head, 0) == 0; };
    return begins("NCCL_FASTRAK_") || begins("NCCL_GPUDIRECTTCPX_") || begins("NCCL_SHIMNET_") || begins("NCCL_TUNER_") ||
           one.name == "NCCL_NET_PLUGIN";
  });
}

// A script of which another branch leaves InfiniBand on has found out whether there is any.
bool also_leaves_infiniband_on(const Document& d) {
  return std::any_of(d.environment.begin(), d.environment.end(),
                     [](const EnvironmentSetting& one) { return one.name == "NCCL_IB_DISABLE" && one.value == "0"; });
}

void env_names(const LintSetup& setup, const Document& d, const EnvironmentSetting& one, bool has_plugin, Findings& report) {
  for (const RenamedVariable& renamed : kRenamedVariables) {
    if (one.name != renamed.old) continue;
    if (is_of_earlier_release(setup, renamed)) return;
    std::vector<LintEdit> edits;
    if (!renamed.now.empty()) edits.push_back({one.name_span.begin, one.name_span.end, std::string(renamed.now)});
    report.add("ENV001", d, one.name_span, fmt::format("{} is an old name since {}", one.name, renamed.since),
               {renamed.now.empty() ? "remove it" : fmt::format("use {}", renamed.now), "", edits, {}});
    return;
  }
  for (const RenamedVariable& removed : kRemovedVariables) {
    if (one.name != removed.old) continue;
    report.add("ENV008", d, one.name_span,
               fmt::format("{} is silently ignored: NCCL has it no more since {}", one.name, removed.since),
               {removed.now.empty() ? "remove it" : fmt::format("remove it; {} is near to it", removed.now), "", {}, {}});
    return;
  }
  const bool is_off = one.value == "0" || one.value.empty() || one.value == "OFF";
  const bool is_debugging = std::find(kDebugSwitches.begin(), kDebugSwitches.end(), one.name) != kDebugSwitches.end() && !is_off;
  const bool is_verbose = one.name == "NCCL_DEBUG" && (same_name(one.value, "INFO") || same_name(one.value, "TRACE"));
  const bool is_without_meaning = one.name == "NCCL_IB_DISABLE" && (has_other_transport(d) || also_leaves_infiniband_on(d));
  // Only DETAIL compares the ranks' calls of every collective; INFO says once how DDP was made (PyTorch's distributed.rst).
  const bool logs_once = one.name == "TORCH_DISTRIBUTED_DEBUG" && !same_name(one.value, "DETAIL");
  if ((is_debugging && !is_without_meaning && !logs_once) || is_verbose) {
    report.add("ENV002", d, one.span,
               fmt::format("{}={} is for debugging: {}", one.name, one.value,
                           is_verbose ? "it fills the log" : "slow or fragile in production"),
               {is_verbose ? "use NCCL_DEBUG=WARN, or NCCL_DEBUG_FILE to keep it out of the log" : "",
                "",
                {},
                is_verbose ? std::optional<Severity>(Severity::kNote) : std::nullopt});
  }
  const bool is_unknown =
      one.name.rfind("NCCL_", 0) == 0 && std::find(kNcclNames.begin(), kNcclNames.end(), one.name) == kNcclNames.end();
  if (is_unknown && !is_plugin_name(one.name) && !is_read_here(d, one.name)) {
    const std::string near = nearest_name(one.name, kNcclNames);
    const bool may_be_a_plugins = has_plugin && misspelt_name(one.name, kNcclNames).empty();
    report.add(
        "ENV004", d, one.name_span,
        fmt::format("NCCL has no variable {}: it is silently ignored{}", one.name,
                    may_be_a_plugins ? ", unless the plugin reads it" : ""),
        {one.name == "NCCL_TIMEOUT" ? "how long collectives wait is the process group's: --ddp_timeout, init_process_group(timeout=…)"
         : near.empty()             ? ""
                                    : fmt::format("did you mean {}", near),
         "",
         {},
         may_be_a_plugins ? std::optional<Severity>(Severity::kNote) : std::nullopt});
  }
  if (one.name == "GLOO_SOCKET_IFNAME" && !one.value.empty() && (one.value[0] == '^' || one.value[0] == '=')) {
    report.add("ENV006", d, one.span, fmt::format("'{}' for gloo, which takes exact interface names only", one.value));
  }
}

void env_connections(const LintSetup& setup, const Document& d, const EnvironmentSetting& one, Findings& report) {
  if (one.name != "CUDA_DEVICE_MAX_CONNECTIONS" || one.value != "1") return;
  bool uses_fsdp = false, is_refused = false;
  for (const auto& other : setup.documents) {
    uses_fsdp = uses_fsdp || (other->is(file_kind::kAccelerate) && text(other->root, "distributed_type") == "FSDP") ||
                other->is(file_kind::kTorchtitan) || (other->takes_training_arguments() && has(other->root, "fsdp"));
    for (const ScriptPart& part : other->parts) {
      for (const LaunchLine& line : part.lines) {
        for (const LaunchStage& stage : line.stages) {
          is_refused = is_refused || stage.has("use_megatron_fsdp") || stage.has("use_torch_fsdp2");
          uses_fsdp = uses_fsdp || stage.has("use_fsdp") || (stage.has("fsdp") && !is_megatron(stage));
        }
      }
    }
  }
  if (is_refused) {
    report.add("ENV003", d, one.span, "Megatron-LM refuses CUDA_DEVICE_MAX_CONNECTIONS=1 with FSDP",
               {"", "start", {}, Severity::kError});
  } else if (uses_fsdp) {
    report.add("ENV003", d, one.span, "CUDA_DEVICE_MAX_CONNECTIONS=1 serialises FSDP's communication with its compute");
  }
}

// Launchers that give every process its own numbers, whatever is exported (torch/distributed/elastic/agent/server/
// local_elastic_agent.py, _set_local_rank_env of what it starts; deepspeed/launcher/launch.py, main; accelerate starts torchrun's).
bool has_ranks_of_launchers(const ScriptPart& part) {
  const auto sets_ranks = [](const LaunchLine& line) {
    return line.find(LaunchProgram::kTorchrun) != nullptr || line.find(LaunchProgram::kAccelerate) != nullptr ||
           line.find(LaunchProgram::kDeepspeed) != nullptr;
  };
  const auto is_one = [](const LaunchLine& line) { return foreign::starts_training_itself(line); };
  return std::any_of(part.lines.begin(), part.lines.end(), is_one) &&
         std::all_of(part.lines.begin(), part.lines.end(), [&](const LaunchLine& line) { return sets_ranks(line) || !is_one(line); });
}

// export RANK=0: one number for all processes of a node, and for Lightning a sign that something else starts them.
void env_ranks(const Document& d, Findings& report) {
  for (const ScriptPart& part : d.parts) {
    if (has_ranks_of_launchers(part)) continue;
    for (const ShellCommand& command : part.script.commands) {
      if (command.words.empty() || command.words[0].text != "export" || command.depth > 0) continue;
      for (const ShellAssignment& one : command.assignments) {
        const bool is_literal = one.value.text.find_first_not_of("0123456789") == std::string::npos;
        if ((one.name != "RANK" && one.name != "LOCAL_RANK") || !is_literal) continue;
        report.add("ENV007", d, one.span, fmt::format("{} is set by hand, the same for every process of the node", one.name));
      }
    }
  }
}

// Every machine has its own of these.
bool is_everywhere(const std::string& name) {
  static const std::set<std::string, std::less<>> kNames = {"PATH",     "HOME",  "USER",       "PWD",
                                                            "HOSTNAME", "SHELL", "PYTHONPATH", "LD_LIBRARY_PATH"};
  return kNames.count(name) > 0;
}

// The text in single quotes that another machine's shell runs, where it starts a training; nullptr: none.
const WordPart* text_of_far_side(const ShellCommand& command) {
  if (command.words.size() < 3 || command.is_dead) return nullptr;
  const std::string& first = command.words[0].text;
  const std::string name = first.substr(first.rfind('/') + 1);
  const std::vector<WordPart>& parts = command.words.back().parts;
  const bool is_text = parts.size() == 1 && parts[0].quote == ShellQuote::kSingle;
  if (!is_text || (name != "ssh" && name != "pdsh" && name != "clush")) return nullptr;
  for (const char* program : {"torchrun", "python", "deepspeed", "accelerate"}) {
    if (parts[0].text.find(program) != std::string::npos) return &parts[0];
  }
  return nullptr;
}

// ssh NODE '… $MASTER_ADDR …': the far shell puts its own value in, and what this script sets does not go along.
void env_far_side(const Document& d, Findings& report) {
  if (d.text.find("SendEnv") != std::string::npos) return;
  for (const ScriptPart& part : d.parts) {
    std::set<std::string, std::less<>> ours;
    for (const ShellCommand& command : part.script.commands) {
      for (const ShellAssignment& one : command.assignments) {
        if (command.depth == 0 && !is_everywhere(one.name)) ours.insert(one.name);
      }
    }
    for (const ShellCommand& command : part.script.commands) {
      const WordPart* inner = text_of_far_side(command);
      if (inner == nullptr) continue;
      const std::string& text = inner->text;
      const bool reads_settings = text.find("source ") != std::string::npos || text.find(". ") != std::string::npos;
      for (size_t at = text.find('$'); !reads_settings && at != std::string::npos; at = text.find('$', at + 1)) {
        const size_t begin = at + (text.substr(at, 2) == "${" ? 2 : 1);
        size_t end = begin;
        while (end < text.size() && foreign::is_name_char(text[end])) ++end;
        const std::string name = text.substr(begin, end - begin);
        if (ours.count(name) == 0 || text.find(name + "=") != std::string::npos) continue;
        const size_t place = d.text.find(text.substr(at, end - at), inner->span.begin);
        report.add("ENV010", d, {place, place + end - at},
                   fmt::format("'${}' is put in by the other machine's shell, which does not know what this script sets", name));
        break;
      }
    }
  }
}

// Neither a switch, a number, a path nor a place to fill in.
bool looks_secret(const std::string& value) {
  constexpr size_t kShortest = 8;
  const std::string word = lower(value);
  for (const char* mark :
       {"your", "xxx", "<", "...", "/", "here", "replace", "changeme", "change_me", "placeholder", "token", "_key", " ", "$", "***"}) {
    if (word.find(mark) != std::string::npos) return false;
  }
  const bool has_digit = std::any_of(word.begin(), word.end(), is_digit);
  const bool is_number = word.find_first_not_of("0123456789.-") == std::string::npos;
  return word.size() >= kShortest && has_digit && !is_number;
}

}  // namespace

void check_environment(const LintSetup& setup, const Document& d, Findings& report) {
  env_ranks(d, report);
  env_far_side(d, report);
  const bool has_plugin = reads_plugin_names(d);
  for (const EnvironmentSetting& one : d.environment) {
    env_names(setup, d, one, has_plugin, report);
    env_misspelt(d, one, report);
    env_connections(setup, d, one, report);
    const bool is_read = one.value.empty() || one.value[0] == '$' || one.value[0] == '`';
    if (is_read || !looks_secret(one.value)) continue;
    if (const std::string secret = secret_in(one.name + "=" + one.value); !secret.empty()) {
      report.add("ENV005", d, one.name_span, fmt::format("a secret is written here ({}): whoever reads the file has it", secret));
    }
  }
}

}  // namespace distsetup::lint
