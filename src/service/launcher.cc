#include "service/launcher.h"

#include <fmt/format.h>

#include <algorithm>

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

KeeperPhase launch_phase(const ServiceSettings& settings, const JobRecord&) {
  KeeperPhase out;
  out.name = "launch";
  out.commands = {launch_words(settings)};
  return out;
}

}  // namespace

std::string final_model_folder(const ServiceSettings& settings, const JobFacts& facts) {
  return facts.checkpoint_dir + "/" + (settings.mode == ServiceMode::kInline ? "dpo_model" : kFinalModel);
}

KeeperOrders keeper_orders(const ServiceSettings& settings, const JobRecord& job, const JobFacts& facts) {
  KeeperOrders out;
  out.grace_s = settings.grace_s;
  if (!job.devices.empty()) out.variables.emplace_back("CUDA_VISIBLE_DEVICES", job.devices);
  out.phases = {data_phase(facts), plan_phase(facts), launch_phase(settings, job)};
  KeeperPhase exported;
  exported.name = "export";
  exported.made = exported.made_as = final_model_folder(settings, facts);
  exported.commands = {{sibling_program(), "checkpoint", "export", ".", "--output", exported.made}};
  out.phases.push_back(std::move(exported));
  return out;
}

}  // namespace distsetup
