// Models by the names of requests: folders below the service's roots. Nothing else is read, and nothing is fetched.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "service/service_settings.h"

namespace distsetup {

struct FoundModel {
  std::string name, folder;  // absolute
  bool has_weights = false, has_tokenizer = false;
};

// "org/name" is ROOT/org/name, or ROOT/name.
std::optional<FoundModel> find_served_model(const ServiceSettings& settings, const std::string& name);
bool has_chat_template(const FoundModel& model);  // where `distsetup data prepare` looks for one
std::vector<FoundModel> served_models(const ServiceSettings& settings);
// A path that a client gave, below one of the roots when links are followed; nothing: it is not.
std::optional<std::string> path_below(const std::vector<std::string>& roots, const std::string& path);

}  // namespace distsetup
