// verl's command lines.
#include "codegen/lint/verl.h"

#include <fmt/format.h>

#include <optional>

#include "base/names.h"
#include "codegen/lint/caller_values.h"

namespace distsetup::lint {
namespace {

// Overrides: data.train_batch_size=64.
std::optional<long long> override_of(const LaunchStage& run, std::string_view name, const ShellWord** at = nullptr) {
  for (const ShellWord& word : run.positionals) {
    if (word.text.size() <= name.size() || !word.text.starts_with(name) || word.text[name.size()] != '=') continue;
    if (at != nullptr) *at = &word;
    return number(word.text.substr(name.size() + 1));
  }
  return std::nullopt;
}

void verl_sft(const Document& d, const ScriptPart& part, const LaunchLine& line, const LaunchStage& run, Findings& report) {
  const LaunchStage* torchrun = line.find(LaunchProgram::kTorchrun);
  if (torchrun == nullptr || run.name.find("verl.trainer.fsdp_sft_trainer") == std::string::npos) return;
  const ShellWord *at = nullptr, *parts = nullptr;
  const auto batch = override_of(run, "data.train_batch_size", &at), micro = override_of(run, "data.micro_batch_size_per_gpu");
  const auto sequence = override_of(run, "ulysses_sequence_parallel_size", &parts);
  const auto nodes = torchrun->has("nnodes") ? number(torchrun->value("nnodes")) : std::optional<long long>(1);
  const auto gpus = number(torchrun->value("nproc_per_node"));
  const long long over = parts == nullptr ? 1 : sequence.value_or(0);
  if (!batch || !nodes || !gpus || *batch < 1 || *nodes < 1 || *gpus < 1 || over < 1 || *nodes * *gpus % over != 0) return;
  const long long ranks = *nodes * *gpus / over;
  const bool divides = *batch % ranks == 0;
  if (divides && (!micro || *micro < 1 || *batch / ranks % *micro == 0)) return;
  bool is_open = comes_from_caller(d, part.script, at->span);
  for (const char* name : {"nnodes", "nproc_per_node"}) {
    const LaunchOption* option = torchrun->find(name);
    is_open = is_open || (option != nullptr && comes_from_caller(d, part.script, *option));
  }
  report.add("VRL001", d, at->span,
             divides ? fmt::format("a batch of {} is {} on each of {} data ranks, no multiple of micro {}", *batch, *batch / ranks,
                                   ranks, *micro)
                     : fmt::format("a batch of {} does not divide over {} data ranks", *batch, ranks),
             {.error_if = is_open ? "the sizes stay as they are here" : ""});
}

// An update takes no more than what one round generates (trainer/ppo/ray_trainer.py, _validate_config; since release 0.5
// workers/config/actor.py, validate).
void verl_ppo(const Document& d, const LaunchStage& run, Findings& report) {
  if (run.name.find("verl.trainer.main_ppo") == std::string::npos) return;
  const ShellWord *of_actor = nullptr, *dynamic = nullptr;
  const auto batch = override_of(run, "data.train_batch_size");
  const auto mini = override_of(run, "actor_rollout_ref.actor.ppo_mini_batch_size", &of_actor);
  override_of(run, "actor_rollout_ref.actor.use_dynamic_bsz", &dynamic);
  const bool is_fixed = dynamic == nullptr || lower(dynamic->text).ends_with("=false");
  if (!batch || !mini || *mini <= *batch || !is_fixed) return;
  report.add("VRL002", d, of_actor->span,
             fmt::format("a mini-batch of {} is more than the {} of data.train_batch_size", *mini, *batch));
}

}  // namespace

void check_verl(const LintSetup&, const Document& d, Findings& report) {
  for (const ScriptPart& part : d.parts) {
    for (const LaunchLine& line : part.lines) {
      const LaunchStage* script = line.find(LaunchProgram::kScript);
      if (script == nullptr) continue;
      verl_sft(d, part, line, *script, report);
      verl_ppo(d, *script, report);
    }
  }
}

}  // namespace distsetup::lint
