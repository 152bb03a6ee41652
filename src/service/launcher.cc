#include "service/launcher.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/own_program.h"

#include "service/sibling_program.h"

namespace distsetup {
namespace {

// One in ten of an epoch is evaluated at, one in five saved at, as the seed's trainer does.
constexpr int64_t kEvaluationsPerEpoch = 10, kSavesPerEpoch = 5;

bool has_word(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

KeeperPhase data_phase(const JobFacts& facts) {
  KeeperPhase out;
  out.name = "data";
  out.made = kPreparedSet;
  out.made_as = std::string(kPreparedSet) + ".new";
  out.commands = {{sibling_program(), "data", "prepare", kRowsFile, "--tokenizer", facts.model_folder, "--held-out",
                   std::to_string(facts.held_out_one_in), "--output", out.made_as}};
  return out;
}

KeeperPhase plan_phase(const JobFacts& facts) {
  KeeperPhase out;
  out.name = "plan";
  out.made = out.made_as = "plan.json";
  std::vector<std::string> words = {sibling_program()};
  words.insert(words.end(), facts.plan_words.begin(), facts.plan_words.end());
  words.insert(words.end(),
               {"--data", kPreparedSet, "--checkpoint-directory", facts.checkpoint_dir, "--output", "plan.json", "--quiet"});
  const int64_t save_every = std::max<int64_t>(1, facts.steps_per_epoch / kSavesPerEpoch);
  const int64_t evaluate_every = std::max<int64_t>(1, facts.steps_per_epoch / kEvaluationsPerEpoch);
  if (!has_word(words, "--checkpoint-every")) words.insert(words.end(), {"--checkpoint-every", std::to_string(save_every)});
  if (facts.held_out_one_in > 0) words.insert(words.end(), {"--evaluate-every", std::to_string(evaluate_every)});
  out.commands = {words};
  return out;
}

std::vector<std::string> launch_words(const ServiceSettings& settings) {
  return {sibling_program(), "launch", "--plan", "plan.json", "--grace", fmt::format("{}", settings.grace_s)};
}

std::vector<std::string> node_words(const ServiceSettings& settings, int64_t node, int master_port) {
  std::vector<std::string> words = launch_words(settings);
  words.insert(words.end(), {"--node-rank", std::to_string(node), "--master-addr", settings.master_addr, "--master-port",
                             std::to_string(master_port)});
  return words;
}

// For a shell on the other side.
std::string in_quotes(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// With a terminal on the other side (-tt), the ranks there end with this connection.
std::vector<std::string> ssh_words(const std::string& host, const std::string& folder, const std::vector<std::string>& words) {
  std::string line = "cd " + in_quotes(folder) + " && exec";
  for (const std::string& word : words) line += " " + in_quotes(word);
  return {"ssh", "-tt", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", host, line};
}

KeeperPhase launch_phase(const ServiceSettings& settings, const JobRecord& job, int master_port) {
  KeeperPhase out;
  out.name = "launch";
  const std::string folder = JobFolder(settings.data_folder, job.id).path();
  switch (settings.launcher) {
    case LauncherKind::kLocal: out.commands = {launch_words(settings)}; break;
    case LauncherKind::kNodes: out.commands = {node_words(settings, 0, master_port)}; break;
    case LauncherKind::kSsh:
      for (int64_t node = 0; node < job.num_nodes; ++node)
        out.commands.push_back(
            ssh_words(settings.ssh_hosts[static_cast<size_t>(node)], folder, node_words(settings, node, master_port)));
      break;
    case LauncherKind::kSlurm:
      out.commands = {{own_program().string(), "--slurm", folder}};
      out.commands[0].insert(out.commands[0].end(), settings.slurm_flags.begin(), settings.slurm_flags.end());
      break;
  }
  return out;
}

}  // namespace

std::string final_model_folder(const ServiceSettings& settings, const JobFacts& facts) {
  return facts.checkpoint_dir + "/" + (settings.mode == ServiceMode::kInline ? "dpo_model" : kFinalModel);
}

KeeperOrders keeper_orders(const ServiceSettings& settings, const JobRecord& job, const JobFacts& facts, int master_port) {
  KeeperOrders out;
  out.grace_s = settings.grace_s;
  if (settings.launcher == LauncherKind::kSlurm)  // which the job's script looks for
    out.variables.emplace_back("DISTSETUP_TRAIN", (own_program().parent_path() / "distsetup-train").string());
  if (!job.devices.empty()) out.variables.emplace_back("CUDA_VISIBLE_DEVICES", job.devices);
  out.phases = {data_phase(facts), plan_phase(facts), launch_phase(settings, job, master_port)};
  KeeperPhase exported;
  exported.name = "export";
  exported.made = exported.made_as = final_model_folder(settings, facts);
  exported.commands = {{sibling_program(), "checkpoint", "export", ".", "--output", exported.made}};
  out.phases.push_back(std::move(exported));
  return out;
}

}  // namespace distsetup
