#include "codegen/read/named_method.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "codegen/tables/fields.h"

namespace distsetup {
namespace {

struct MethodWord {
  std::string_view word, plan;  // `plan`: the method of a plan; "" = it has none
  std::string_view does;
};
constexpr std::string_view kRollouts = "trains by rollouts", kAnswers = "trains on single answers that are liked or not",
                           kPairs = "trains on pairs without a reference model", kReward = "trains a reward model";
constexpr std::array<MethodWord, 24> kMethodWords = {{{"sft", "sft", ""},
                                                      {"dpo", "dpo", ""},
                                                      {"grpo", "", kRollouts},
                                                      {"ppo", "", kRollouts},
                                                      {"rloo", "", kRollouts},
                                                      {"dapo", "", kRollouts},
                                                      {"gspo", "", kRollouts},
                                                      {"rlhf", "", kRollouts},
                                                      {"rlvr", "", kRollouts},
                                                      {"reinforce", "", kRollouts},
                                                      {"xpo", "", kRollouts},
                                                      {"gkd", "", kRollouts},
                                                      {"online_dpo", "", kRollouts},
                                                      {"nash_md", "", kRollouts},
                                                      {"kto", "", kAnswers},
                                                      {"bco", "", kAnswers},
                                                      {"orpo", "", kPairs},
                                                      {"cpo", "", kPairs},
                                                      {"simpo", "", kPairs},
                                                      {"reward", "", kReward},
                                                      {"rm", "", kReward},
                                                      {"prm", "", kReward},
                                                      {"reward_modeling", "", kReward},
                                                      {"reward_model", "", kReward}}};

// "kto.py"; of a program with commands the command, too: "trl kto".
std::string name_of(const foreign::LaunchStage& stage) {
  const std::string base = stage.name.substr(stage.name.find_last_of('/') + 1);
  const bool has_commands = (base == "trl" || base == "swift") && !stage.positionals.empty();
  return has_commands ? stage.name + " " + stage.positionals[0].text : stage.name;
}

// "examples/scripts/online_dpo.py" -> online, dpo, py.
std::vector<std::string> words_of(const foreign::LaunchStage& stage) {
  const std::string whole = name_of(stage), name = lower(whole.substr(whole.find_last_of('/') + 1));
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  return words;
}

// nullptr: the name says nothing, or several things.
const MethodWord* method_of(const foreign::LaunchStage& stage) {
  const auto find = [](std::string_view word) {
    const auto it = std::find_if(kMethodWords.begin(), kMethodWords.end(), [word](const MethodWord& one) { return one.word == word; });
    return it == kMethodWords.end() ? nullptr : &*it;
  };
  const std::vector<std::string> words = words_of(stage);
  std::vector<const MethodWord*> found;
  for (size_t i = 0; i < words.size(); ++i) {
    const MethodWord* pair = i + 1 < words.size() ? find(words[i] + "_" + words[i + 1]) : nullptr;
    const MethodWord* one = pair != nullptr ? pair : find(words[i]);
    if (one != nullptr) found.push_back(one);
    if (pair != nullptr) ++i;
  }
  // Whatever else is in it: where answers are drawn, nothing of a plan holds for the step.
  const auto drawn = std::find_if(found.begin(), found.end(), [](const MethodWord* one) { return one->does == kRollouts; });
  if (drawn != found.end()) return *drawn;
  const bool is_one = std::all_of(found.begin(), found.end(),
                                  [&](const MethodWord* one) { return one->does == found[0]->does && one->plan == found[0]->plan; });
  return found.empty() || !is_one ? nullptr : found[0];
}

bool has_keys_of_rollouts(const std::vector<FoundKey>& keys) {
  return std::any_of(keys.begin(), keys.end(), [](const FoundKey& one) {
    return one.key == "num_generations" || one.key == "reward_funcs" || one.key == "algorithm.adv_estimator" ||
           one.key == "advantage_estimator" || one.key.ends_with(".advantage_estimator") || one.key == "ppo_epochs" ||
           one.key == "actor_model_name_or_path";
  });
}

std::string_view what_no_plan_does(const foreign::LaunchStage& stage, const std::vector<FoundKey>& keys, const MethodWord* named) {
  const std::string kind = lower(stage.value("rlhf_type"));  // of ms-swift, whose table knows the others
  if (!kind.empty()) {
    const bool is_drawn = std::any_of(kMethodWords.begin(), kMethodWords.end(),
                                      [&](const MethodWord& one) { return one.word == kind && one.does == kRollouts; });
    return is_drawn ? kRollouts : "";
  }
  if (named != nullptr && named->does == kRollouts) return kRollouts;
  const bool is_of_skyrl = stage.name.starts_with("skyrl.train.") || stage.name.starts_with("skyrl_train.") ||
                           (stage.name.find("skyrl") != std::string::npos && stage.name.ends_with("main_base"));
  if (is_of_skyrl) return kRollouts;  // its trainers all do
  if (has_keys_of_rollouts(keys)) return kRollouts;
  return named == nullptr ? "" : named->does;
}

// Of other programs a name says what they are about ("build_dpo_pairs"), and not that they train.
bool has_arguments_of_trainers(const Reading& reading) {
  return reading.table == "trl/keys.yaml" || reading.table == "transformers/keys.yaml" || reading.table == "ms-swift/keys.yaml" ||
         reading.table.starts_with("huggingface/") || reading.table == "openrlhf/keys.yaml" ||
         reading.table == "openrlhf-flags/keys.yaml";
}

// run_dpo.py, sft_train.py: of a script whose arguments stand in a file, the name says nothing else.
bool is_named_after_method(const foreign::LaunchStage& stage, const Reading& reading) {
  static constexpr std::string_view kAround[] = {"run", "train", "trainer", "training", "main", "finetune", "py"};
  const std::vector<std::string> words = words_of(stage);
  return (reading.table == "config-argument/keys.yaml" || reading.table.empty()) &&
         std::all_of(words.begin(), words.end(), [](const std::string& word) {
           const auto is_it = [&word](const auto& one) { return one == word; };
           return std::any_of(std::begin(kAround), std::end(kAround), is_it) || word.empty() ||
                  std::any_of(kMethodWords.begin(), kMethodWords.end(), [&word](const MethodWord& one) { return one.word == word; });
         });
}

// A script that is called after adapters, or has arguments of theirs, and says nowhere that it trains them: its own defaults decide.
Diagnostics say_unread_adapters(const foreign::LaunchStage& stage, const std::vector<FoundKey>& keys, const Location& at,
                                const Reading& reading) {
  const bool is_known = reading.table == "ms-swift/keys.yaml" || reading.table.starts_with("openrlhf");  // they say it by an argument
  if (!has_arguments_of_trainers(reading) || is_known) return {};
  const auto is_read = [&reading](const char* field) {
    const auto found = reading.fields.find(field);
    return found != reading.fields.end() && !(found->second.is_assumed && field_text(found->second.value) == "full");
  };
  if (is_read("train.finetune") || is_read("train.lora_rank")) return {};
  if (std::any_of(reading.lost.begin(), reading.lost.end(), [](const LostKey& one) { return one.is_file && one.key != "deepspeed"; }))
    return {};
  const auto names_adapters = [](const std::string& word) { return word == "lora" || word == "qlora" || word == "peft"; };
  const std::vector<std::string> words = words_of(stage);
  const bool is_named = std::any_of(words.begin(), words.end(), names_adapters);
  const auto is_of_adapters = [](const FoundKey& one) {
    return one.key.starts_with("lora_") && !one.text.empty() && one.text != "0" && one.text != "none" && lower(one.text) != "false";
  };
  const auto key = std::find_if(keys.begin(), keys.end(), is_of_adapters);
  if (!is_named && key == keys.end()) return {};
  const std::string what = is_named ? fmt::format("'{}' is named after adapters", name_of(stage))
                                    : fmt::format("'{}' is an argument of adapters", key->key);
  Diagnostic said = note(code::kConflict, is_named ? at : key->at,
                         what + ", and no argument says that they are trained: all parameters are, as it is read here",
                         "if it trains adapters: --finetune lora of plan and emit");
  said.length = static_cast<int>(is_named ? stage.name.size() : key->key.size());
  return {said};
}

}  // namespace

Diagnostics apply_keys_of_rollouts(Reading& reading) {
  if (!has_arguments_of_trainers(reading)) return {};
  const auto key = std::find_if(reading.lost.begin(), reading.lost.end(),
                                [](const LostKey& one) { return one.key == "num_generations" || one.key == "reward_funcs"; });
  if (key == reading.lost.end()) return {};
  drop_assumed(reading);
  reading.other_method = fmt::format("'{}' is of a trainer that {}", key->key, kRollouts);
  reading.other_method_at = key->at;
  Diagnostic said = error(code::kConflict, key->at, reading.other_method + ": no plan has them",
                          "a plan of it counts the update alone: memory and time of generating are not in it");
  said.severity = Severity::kWarning;
  said.length = static_cast<int>(key->key.size());
  return {said};
}

Diagnostics apply_named_method(const foreign::LaunchStage& stage, const std::vector<FoundKey>& keys, const Location& at,
                               Reading& reading) {
  const MethodWord* named = method_of(stage);
  const bool tells = has_arguments_of_trainers(reading) || is_named_after_method(stage, reading);
  if (named != nullptr && named->does != kRollouts && !tells) named = nullptr;
  const std::string_view does = what_no_plan_does(stage, keys, named);
  if (does.empty()) {
    const auto given = reading.fields.find("train.method");
    const bool is_open = given == reading.fields.end() || given->second.is_assumed;
    if (named != nullptr && is_open && stage.value("rlhf_type").empty())
      reading.fields["train.method"] = {Json(named->plan), stage.name, at, true};
    return say_unread_adapters(stage, keys, at, reading);
  }
  const bool is_drawn = does == kRollouts;
  // ms-swift: RLHFArguments are its SftArguments, defaults and all, whatever rlhf_type is.
  const bool keeps_defaults = reading.table == "ms-swift/keys.yaml";
  std::erase_if(reading.fields, [is_drawn, keeps_defaults](const auto& one) {
    // Of samples and epochs steps do not follow: every prompt is answered several times. What a Trainer assumes for other tasks is not
    // known of one with rollouts.
    const bool counts_steps = one.first == "derived.samples" || one.first == "derived.epochs" || one.first == "derived.data_epochs";
    const bool is_unknown = one.second.is_assumed && !keeps_defaults;
    if (is_drawn) return (is_unknown || counts_steps) && one.first != "strategy.trainer";
    return one.first == "train.method" && one.second.is_assumed;
  });
  reading.other_method = fmt::format("'{}' {}", name_of(stage), does);
  reading.other_method_at = at;
  const bool is_said = std::any_of(reading.lost.begin(), reading.lost.end(), [](const LostKey& one) { return one.key == "program"; });
  if (is_said || (is_drawn && !reading.complaints.empty())) return {};
  Diagnostic said = error(code::kConflict, at, reading.other_method + (is_drawn ? ": no plan has them" : ": no plan does"),
                          is_drawn ? "a plan of it counts the update alone: memory and time of generating are not in it"
                                   : "plans are made for pretrain, sft and dpo: --method says which of them is planned");
  said.severity = Severity::kWarning;
  said.length = static_cast<int>(stage.name.size());
  return {said};
}

static bool is_of_trainer(const Reading& reading) {
  return reading.table.starts_with("huggingface/") || reading.table.starts_with("trl/") || reading.table.starts_with("transformers/");
}

void assume_fsdp_of_trainer(const Location& at, bool has_no_axes, Reading& reading) {
  const auto sharding = reading.fields.find("strategy.sharding");
  if (!is_of_trainer(reading) || sharding == reading.fields.end() || !sharding->second.key.starts_with("fsdp")) return;
  const auto version = reading.fields.find("options.fsdp_version");
  const bool is_first = version != reading.fields.end() ? field_text(version->second.value) == "1" : reading.is_of_old_trainer;
  const auto assume = [&](const char* field, Json value) {
    reading.fields.emplace(field, ReadField{std::move(value), "(trainer)", at, true});
  };
  assume("strategy.trainer", is_first ? "fsdp1" : "fsdp2");
  if (!is_first) assume("derived.code_base", "transformers");
  if (has_no_axes)
    for (const char* axis : {"mesh.tp", "mesh.cp", "mesh.pp"}) assume(axis, 1);
}

void name_plain_trainer(const foreign::LaunchLine& line, const Location& at, Reading& reading) {
  using foreign::LaunchProgram;
  const bool is_open = line.find(LaunchProgram::kAccelerate) != nullptr || line.find(LaunchProgram::kDeepspeed) != nullptr;
  const bool names_other = std::any_of(reading.lost.begin(), reading.lost.end(), [](const LostKey& one) {
    return one.is_file || one.key.find("deepspeed") != std::string::npos || one.key.find("fsdp") != std::string::npos;
  });
  if (!is_of_trainer(reading)) return;
  assume_fsdp_of_trainer(at, !is_open, reading);
  if (is_open || names_other) return;
  reading.fields.emplace("strategy.trainer", ReadField{Json("ddp"), "(trainer)", at, true});
}

}  // namespace distsetup
