#include "planner/spec/spec_lookup.h"

#include "base/names.h"

namespace distsetup {
namespace {

// Flags that mean two things whatever their value is.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kAmbiguousFlags = {{
    {"cpu-offload",
     "it moves parameters and optimizer state in FSDP, optimizer state alone elsewhere: write --offload-optimizer host "
     "and, if meant, --offload-parameters host"},
    {"offload", "it does not say what moves: write --offload-optimizer, --offload-parameters or --offload-activations"},
    {"num-gpus", "it counts a node's GPUs in one tool and all GPUs in another: write --gpus (per node) or --total-gpus"},
}};

}  // namespace

std::string_view ambiguous_flag(std::string_view flag) {
  while (flag.starts_with('-')) flag.remove_prefix(1);
  for (const auto& [name, why] : kAmbiguousFlags)
    if (same_name(name, flag)) return why;
  return {};
}

std::string_view name(SettingType type) {
  switch (type) {
    case SettingType::kBool: return "true or false";
    case SettingType::kInt: return "integer";
    case SettingType::kDouble: return "number";
    case SettingType::kShare: return "share";
    case SettingType::kBytes: return "size";
    case SettingType::kDuration: return "duration";
    case SettingType::kText: return "text";
    case SettingType::kEnum: return "one of";
    case SettingType::kList:
    case SettingType::kSources: return "list";
  }
  return "";
}

const SpecKey* find_spec_key(std::string_view path) {
  for (const SpecKey& key : spec_keys()) {
    if (same_name(key.path, path)) return &key;
    for (const std::string_view other : key.other_paths)
      if (same_name(other, path)) return &key;
  }
  return nullptr;
}

const SpecKey* find_spec_flag(std::string_view flag) {
  while (!flag.empty() && flag.front() == '-') flag.remove_prefix(1);
  for (const SpecKey& key : spec_keys()) {
    for (const SettingFlag& spelling : key.flags) {
      if (same_name(spelling.name, flag)) return &key;
    }
  }
  return nullptr;
}

std::vector<std::string> spec_flag_names() {
  std::vector<std::string> names;
  for (const SpecKey& key : spec_keys()) {
    for (const SettingFlag& flag : key.flags) names.push_back("--" + std::string(flag.name));
  }
  return names;
}

}  // namespace distsetup
