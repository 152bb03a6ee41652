#include "codegen/lint/unexported.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "codegen/shell/starts_training.h"

namespace distsetup::lint {
namespace {

// Names that programs read and scripts have no use for.
constexpr std::array<std::string_view, 12> kOfPrograms = {
    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",   "TOKENIZERS_PARALLELISM", "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",    "GLOO_SOCKET_IFNAME",   "HF_HUB_OFFLINE",         "HF_DATASETS_OFFLINE",
    "TRANSFORMERS_OFFLINE",    "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS",        "TORCH_DISTRIBUTED_DEBUG"};

// NCCL_VERSION and NCCL_HOME are a script's own.
constexpr std::array<std::string_view, 15> kOfNccl = {
    "NCCL_DEBUG", "NCCL_SOCKET_", "NCCL_IB_",  "NCCL_P2P_",      "NCCL_SHM_",        "NCCL_NET_",        "NCCL_ALGO",  "NCCL_PROTO",
    "NCCL_NVLS_", "NCCL_CUMEM_",  "NCCL_BUFF", "NCCL_CROSS_NIC", "NCCL_LAUNCH_MODE", "NCCL_ASYNC_ERROR", "TORCH_NCCL_"};

bool is_of_programs(std::string_view name) {
  return std::any_of(kOfNccl.begin(), kOfNccl.end(), [name](std::string_view head) { return name.starts_with(head); }) ||
         std::find(kOfPrograms.begin(), kOfPrograms.end(), name) != kOfPrograms.end();
}

// "export NAME", "declare -x NAME", "set -a", or "$NAME", with which the script hands the value on itself.
bool is_handed_on(const Document& d, const std::string& name) {
  for (const std::string_view all : {"set -a", "allexport", "declare -x", "typeset -x"}) {
    if (d.text.find(all) != std::string::npos) return true;
  }
  for (size_t at = d.text.find(name); at != std::string::npos; at = d.text.find(name, at + name.size())) {
    const char before = at == 0 ? '\n' : d.text[at - 1];
    if (before == '$' || before == '{' || before == ',') return true;  // srun --export=ALL,NAME
    const size_t line = d.text.rfind('\n', at) + 1;
    if (d.text.substr(line, at - line).find("export") != std::string::npos) return true;
  }
  return false;
}

}  // namespace

// A variable that conda, a module or the caller has exported before stays exported, and programs see its new value: so this is a
// warning, no error.
void check_unexported(const LintSetup&, const Document& d, Findings& report) {
  if (!d.is_script()) return;
  for (const ScriptPart& part : d.parts) {
    for (size_t i = 0; i < part.script.commands.size(); ++i) {
      const ShellCommand& command = part.script.commands[i];
      if (!command.words.empty() || command.is_dead || command.depth > 0 || command.in_substitution) continue;
      const bool acts_later = std::any_of(part.lines.begin(), part.lines.end(), [i](const LaunchLine& line) {
        return line.command > i && foreign::starts_training_itself(line);
      });
      if (!acts_later) continue;
      for (const ShellAssignment& one : command.assignments) {
        if (one.is_array || one.appends || !is_of_programs(one.name) || is_handed_on(d, one.name)) continue;
        report.add("ENV012", d, {one.span.begin, one.span.begin + one.name.size()},
                   fmt::format("{} is set and not exported: the programs that are started below do not see it", one.name),
                   {fmt::format("write export {}=…", one.name), "", {{one.span.begin, one.span.begin, "export "}}, {}});
      }
    }
  }
}

}  // namespace distsetup::lint
