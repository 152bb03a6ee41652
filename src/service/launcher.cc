#include "service/launcher.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/own_program.h"

#include "service/job_plan.h"
#include "service/sibling_program.h"

namespace distsetup {
namespace {

// As the seed's trainer does.
constexpr int64_t kEvaluationsPerEpoch = 10;

KeeperPhase data_phase(const JobFacts& facts) {
  KeeperPhase out;
  out.name = "data";
  out.made = kPreparedSet;
  out.made_as = std::string(kPreparedSet) + ".new";
  std::vector<std::string> words = {sibling_program(), "data", "prepare", kRowsFile, "--tokenizer", facts.model_folder};
  if (facts.has_validation)
    words.insert(words.end(), {"--validation", kValidationFile});
  else
    words.insert(words.end(), {"--held-out", std::to_string(facts.held_out_one_in)});
  if (facts.trains_prompts) words.emplace_back("--train-on-prompts");
  if (facts.longest_prompt > 0) words.insert(words.end(), {"--max-prompt-length", std::to_string(facts.longest_prompt)});
  if (!facts.prompt_format.empty()) words.insert(words.end(), {"--prompt-format", facts.prompt_format});
  words.insert(words.end(), {"--output", out.made_as});
  out.commands = {words};
  return out;
}

// Short runs of every combination that the request names, one after the other on this machine.
KeeperPhase tune_phase(const JobFacts& facts) {
  KeeperPhase out;
  out.name = "tune";
  out.made = out.made_as = kTunedRuns;
  std::vector<std::string> words = {sibling_program(), "tune"};
  for (size_t i = 1; i < facts.plan_words.size(); ++i) {
    words.push_back(facts.plan_words[i]);
    if (facts.plan_words[i] == "--steps" && i + 1 < facts.plan_words.size()) words.push_back(std::to_string(facts.tune_steps)), ++i;
  }
  if (facts.is_packed) words.emplace_back("--packing");
  words.insert(words.end(), {"--from", "request.json", "--data", kPreparedSet, "--output", kTuningFolder});
  out.commands = {words};
  return out;
}

KeeperPhase plan_phase(const JobFacts& facts) {
  KeeperPhase out;
  out.name = "plan";
  out.made = out.made_as = "plan.json";
  std::vector<std::string> words = {own_program().string(), "--plan-job"};
  words.insert(words.end(), facts.plan_words.begin(), facts.plan_words.end());
  if (facts.is_packed) {  // how many rows they make is known only now
    words.emplace_back("--packing");
    const auto steps = std::find(words.begin(), words.end(), "--steps");
    if (!facts.is_capped && steps != words.end() && steps + 1 != words.end()) {
      *steps = "--epochs";
      *(steps + 1) = std::to_string(facts.epochs);
    }
  }
  words.insert(words.end(),
               {"--data", kPreparedSet, "--checkpoint-directory", facts.checkpoint_dir, "--output", "plan.json", "--quiet"});
  const int64_t evaluate_every = std::max<int64_t>(1, facts.steps_per_epoch / kEvaluationsPerEpoch);
  if (facts.held_out_one_in > 0 || facts.has_validation)
    words.insert(words.end(), {"--evaluate-every", std::to_string(evaluate_every)});
  out.commands = {words};
  return out;
}

// `more`: which node this is. What stands behind -- is the trainer's.
std::vector<std::string> launch_words(const ServiceSettings& settings, const JobFacts& facts,
                                      const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {sibling_program(), "launch",  "--plan",
                                    "plan.json",       "--grace", fmt::format("{}", settings.grace_s)};
  words.insert(words.end(), more.begin(), more.end());
  if (facts.log_every > 0) words.insert(words.end(), {"--", "--log-interval", std::to_string(facts.log_every)});
  return words;
}

std::vector<std::string> node_words(const ServiceSettings& settings, const JobFacts& facts, int64_t node, int master_port) {
  return launch_words(
      settings, facts,
      {"--node-rank", std::to_string(node), "--master-addr", settings.master_addr, "--master-port", std::to_string(master_port)});
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

KeeperPhase launch_phase(const ServiceSettings& settings, const JobRecord& job, const JobFacts& facts, int master_port) {
  KeeperPhase out;
  out.name = "launch";
  const std::string folder = JobFolder(settings.data_folder, job.id).path();
  switch (settings.launcher) {
    case LauncherKind::kLocal: out.commands = {launch_words(settings, facts)}; break;
    case LauncherKind::kNodes: out.commands = {node_words(settings, facts, 0, master_port)}; break;
    case LauncherKind::kSsh:
      for (int64_t node = 0; node < job.num_nodes; ++node)
        out.commands.push_back(
            ssh_words(settings.ssh_hosts[static_cast<size_t>(node)], folder, node_words(settings, facts, node, master_port)));
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
  out.phases = {data_phase(facts)};
  if (facts.tune_steps > 0) out.phases.push_back(tune_phase(facts));
  out.phases.push_back(plan_phase(facts));
  out.phases.push_back(launch_phase(settings, job, facts, master_port));
  KeeperPhase exported;
  exported.name = "export";
  exported.made = exported.made_as = final_model_folder(settings, facts);
  exported.commands = {{sibling_program(), "checkpoint", "export", ".", "--best", "--output", exported.made}};
  out.phases.push_back(std::move(exported));
  return out;
}

}  // namespace distsetup
