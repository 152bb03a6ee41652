// Settings that are accepted and not read. Generated over the table of settings, so that a new key is covered when it is added.
#include <fmt/format.h>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "model/presets.h"
#include "planner/planner.h"
#include "support/temporary_directory.h"

using namespace distsetup;

namespace {

const Location kAt = {"command line"};

const Presets& presets() {
  static const Presets kPresets = *load_presets();
  return kPresets;
}

Spec spec_of(const std::map<std::string, std::string>& settings) {
  Spec spec;
  for (const auto& [path, text] : settings) {
    CAPTURE(path, text);
    REQUIRE_FALSE(has_error(set(spec, path, text, kAt)));
  }
  return spec;
}

// The plan as text without what follows from the words of the spec rather than from their meaning.
Result<std::string> plan_text(const Spec& spec, const std::string& root) {
  const Result<Inputs> inputs = read_inputs(spec, root);
  if (!inputs.ok()) return inputs.diagnostics;
  const Result<Problem> problem = resolve(spec, presets(), *inputs);
  if (!problem.ok()) return problem.diagnostics;
  Result<Plan> plan = make_plan(*problem);
  if (!plan.ok()) return plan.diagnostics;
  plan->assumptions.clear();
  plan->inputs_digest.clear();
  return dump_json(to_json(*plan));
}

// Values to try for a key; at least one of them must show.
std::vector<std::string> samples(const SpecKey& key) {
  static const std::map<std::string, std::vector<std::string>, std::less<>> kChosen = {
      {"model", {"tiny_tied"}},
      {"hardware.gpu", {"h100_sxm"}},
      {"hardware.machine", {"dgx_a100"}},
      {"hardware.total_gpus", {"4"}},
      {"data.paths", {"more"}},
      {"checkpoint.directory", {"elsewhere"}},
      {"launch.target", {"slurm"}},
      {"launch.site", {"my_site"}},
      {"train.warmup_steps", {"17"}},
      {"train.global_batch", {"8"}},
      {"train.global_batch_tokens", {"2048"}},
      {"train.sequence_length", {"32"}},
      {"hardware.nodes", {"2"}},
  };
  if (const auto it = kChosen.find(key.path); it != kChosen.end()) return it->second;
  switch (key.type) {
    case SettingType::kBool: return {"true", "false"};
    case SettingType::kInt: return {"2", "4", "1", "40"};
    case SettingType::kDouble: return {"0.05", "0.5"};
    case SettingType::kBytes: return {"3GiB"};
    case SettingType::kDuration: return {"77s"};
    case SettingType::kList:
    case SettingType::kText: return {"text"};
    case SettingType::kEnum: break;
  }
  std::vector<std::string> all;
  for (const SettingChoice& choice : key.choices) all.emplace_back(choice.value == "every_k" ? "every_k:2" : choice.value);
  return all;
}

}  // namespace

TEST_CASE("regression 6: every key that is accepted is read: it changes the plan, or is refused") {
  const TemporaryDirectory folder;
  const std::string root = folder.path();
  for (const char* name : {"text", "more"}) {
    std::filesystem::create_directory(root + "/" + name);
    for (int i = 0; i < 8; ++i)
      std::ofstream(fmt::format("{}/{}/{}.txt", root, name, i)) << std::string(3000, static_cast<char>('a' + i)) << name;
  }
  const std::map<std::string, std::string> base = {{"model", "tiny"},
                                                   {"hardware.gpu", "cpu"},
                                                   {"hardware.gpus_per_node", "2"},
                                                   {"train.sequence_length", "64"},
                                                   {"train.global_batch", "16"},
                                                   {"train.steps", "200"},
                                                   {"data.paths", "text"}};
  const Result<std::string> unchanged = plan_text(spec_of(base), root);
  REQUIRE(unchanged.ok());
  for (const SpecKey& key : spec_keys()) {
    CAPTURE(key.path);
    bool shows = key.choices.size() == 1;  // one word, the default: nothing to change
    for (const std::string& text : samples(key)) {
      std::map<std::string, std::string> settings = base;
      if (key.path == "train.global_batch_tokens") settings.erase("train.global_batch");
      if (key.path == "hardware.total_gpus") settings.erase("hardware.gpus_per_node");
      if (key.path == "hardware.machine") settings.erase("hardware.gpu");
      settings.erase(std::string(key.path));
      Spec spec = spec_of(settings);
      if (has_error(set(spec, key.path, text, kAt))) {
        shows = true;  // refused when it is read
        continue;
      }
      const Result<std::string> changed = plan_text(spec, root);
      shows = shows || !changed.ok() || *changed != *unchanged;
    }
    CHECK(shows);
  }
}

TEST_CASE("regression 6: every allowed word of a setting is planned or refused by name") {
  for (const SpecKey& key : spec_keys()) {
    for (const SettingChoice& choice : key.choices) {
      CAPTURE(key.path, choice.value);
      Spec spec = spec_of({{"model", "tiny"},
                           {"hardware.gpu", "cpu"},
                           {"hardware.gpus_per_node", "2"},
                           {"train.sequence_length", "64"},
                           {"train.global_batch", "16"}});
      Diagnostics said = set(spec, key.path, choice.value == "every_k" ? "every_k:2" : choice.value, kAt);
      if (!choice.refused.empty()) {
        REQUIRE(has_error(said));
        CHECK(said.front().code == code::kUnsupportedFeature);
        continue;
      }
      REQUIRE_FALSE(has_error(said));
      const Result<std::string> text = plan_text(spec, ".");
      if (text.ok()) continue;
      CHECK(text.diagnostics.front().code == code::kUnsupportedFeature);
    }
  }
}
