// Models and data sets that huggingface_hub has downloaded to this machine: its cache's folders, looked at, never written. Nothing is
// fetched.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/diagnostic.h"

namespace distsetup {

// "org/name": one slash, and letters, digits, '-', '_', '.' around it, as the hub has them.
bool is_hub_id(std::string_view name);

using VariableReader = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> environment_variable(const char* name);

enum class HubKind { kModel, kDataset };

// The folder of the newest downloaded revision of `id` (refs/main). Looked for in HF_HUB_CACHE, else HF_HOME/hub, else
// XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub. Error (kWeights, kData): it is not there; help is the command that
// downloads.
Result<std::string> find_in_hub_cache(const std::string& id, const Location& at, const VariableReader& variable = environment_variable,
                                      HubKind kind = HubKind::kModel);

}  // namespace distsetup
