#include "cli/line/flag_offers.h"

#include <algorithm>

#include "cli/commands/commands.h"
#include "cli/line/help.h"
#include "model/presets.h"
#include "planner/spec/spec_lookup.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

bool placeholder_ends_in(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// A placeholder says which files: PATH, FILE..., [run.yaml], PLAN.JSON; DIR is a folder.
Offer offer_of_placeholder(std::string_view placeholder) {
  Offer offer;
  offer.folders = placeholder == "DIR";
  offer.files = placeholder == "PATH" || placeholder.find("FILE") != std::string_view::npos ||
                placeholder_ends_in(placeholder, ".JSON") || placeholder_ends_in(placeholder, ".YAML") ||
                placeholder.find(".yaml") != std::string_view::npos;
  return offer;
}

// Names that only presets know.
Offer offer_of_key(const SpecKey& key) {
  static const Presets kPresets = [] {
    Result<Presets> read = load_presets({});
    return read.ok() ? std::move(*read) : Presets{};
  }();
  Offer offer;
  for (const SettingChoice& choice : key.choices) {
    if (choice.refused.empty() && choice.value != "every_k") offer.words.emplace_back(choice.value);
  }
  if (key.type == SettingType::kBool) offer.words = {"true", "false"};
  const std::pair<std::string_view, const char*> folders[] = {
      {"model", "models"}, {"hardware.gpu", "gpus"}, {"hardware.machine", "machines"}, {"trainer.program", "programs"}};
  for (const auto& [path, folder] : folders) {
    if (key.path == path) offer.words = preset_ids(kPresets, folder);
  }
  offer.files = key.path == "model" || key.path == "hardware.machine" || key.path == "data.paths" || key.path == "launch.site";
  offer.folders = key.path == "checkpoint.directory" || key.path == "model.weights";
  if (key.can_be_auto && !offer.words.empty()) offer.words.emplace_back("auto");
  return offer;
}

FlagOffer offer_of_flag(const Flag& flag) {
  FlagOffer offer;
  offer.spellings = {flag.name};
  offer.spellings.insert(offer.spellings.end(), flag.aliases.begin(), flag.aliases.end());
  offer.letter = flag.letter;
  offer.help = flag.help;
  offer.placeholder = flag.placeholder;
  offer.takes_value = flag.kind != FlagKind::kSwitch;
  offer.may_repeat = flag.kind == FlagKind::kList;
  if (!offer.takes_value) return offer;
  offer.value = offer_of_placeholder(flag.placeholder);
  // A flag of lint that means what a run's means.
  if (const SpecKey* key = find_spec_flag(flag.name); flag.placeholder == "NAME" && key != nullptr && key->path != "launch.target")
    offer.value = offer_of_key(*key);
  if (!flag.values.empty()) offer.value = {flag.values, false, false};
  return offer;
}

// A key's usual flag, and with it every spelling that takes the same value; a spelling that stands for a value is a flag of its own.
void add_key(const Command& command, const SpecKey& key, std::vector<FlagOffer>& out) {
  FlagOffer usual;
  usual.help = std::string(key.help);
  usual.placeholder = key_placeholder(key);
  usual.takes_value = true;
  usual.value = offer_of_key(key);
  std::vector<std::string_view> stand_for;  // one spelling is offered for each
  for (const SettingFlag& flag : key.flags) {
    if (find_flag(command, flag.name).key != &key) continue;
    if (flag.bare.empty()) {
      usual.spellings.emplace_back(flag.name);
      continue;
    }
    FlagOffer bare = usual;
    bare.spellings = {std::string(flag.name)};
    bare.may_stand_alone = true;
    if (key.type != SettingType::kBool || flag.bare != "true") bare.help += " (alone: " + std::string(flag.bare) + ")";
    bare.is_shown = std::find(stand_for.begin(), stand_for.end(), flag.bare) == stand_for.end();
    stand_for.push_back(flag.bare);
    out.push_back(std::move(bare));
  }
  if (!usual.spellings.empty()) out.push_back(std::move(usual));
}

}  // namespace

std::vector<FlagOffer> flag_offers(const Command& command) {
  std::vector<FlagOffer> out;
  for (const Flag& flag : command.flags) out.push_back(offer_of_flag(flag));
  for (const SpecKey& key : spec_keys()) {
    if (takes_key(command, key)) add_key(command, key, out);
  }
  for (const Flag& flag : common_flags()) out.push_back(offer_of_flag(flag));
  return out;
}

Offer positional_offer(const Command& command) {
  if (command.positional_values != nullptr) return {command.positional_values(), false, false};
  return offer_of_placeholder(command.positional);
}

}  // namespace distsetup
