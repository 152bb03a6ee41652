#include "codegen/job/pod_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/diagnostic_codes.h"
#include "base/json.h"

namespace distsetup {
namespace {

constexpr std::array<std::string_view, 3> kEffects = {"NoSchedule", "PreferNoSchedule", "NoExecute"};

// key=value:Effect as kubectl taint writes it; without a value any, without an effect all.
Json toleration(JobCheck& check, const std::string& text) {
  Json out = Json::object();
  const size_t colon = text.find(':');
  const std::string taint = text.substr(0, colon);
  const size_t equals = taint.find('=');
  out["key"] = taint.substr(0, equals);
  out["operator"] = equals == std::string::npos ? "Exists" : "Equal";
  if (equals != std::string::npos) out["value"] = taint.substr(equals + 1);
  if (colon != std::string::npos) out["effect"] = text.substr(colon + 1);
  const bool is_effect =
      colon == std::string::npos || std::find(kEffects.begin(), kEffects.end(), text.substr(colon + 1)) != kEffects.end();
  if (taint.empty() || equals == 0 || !is_effect) {
    check.fail(code::kOutOfRange, fmt::format("'{}' is no taint, expected KEY, KEY=VALUE or KEY=VALUE:NoSchedule", text));
  }
  return out;
}

}  // namespace

void put_pod_places(JobCheck& check, const JobValues& settings) {
  Json labels = Json::object();
  for (const std::string& label : settings.list("kubernetes.node_selector")) {
    const size_t equals = label.find('=');
    if (equals == std::string::npos || equals == 0) {
      check.fail(code::kOutOfRange, fmt::format("'{}' is no label of a node, expected KEY=VALUE", label));
    } else {
      labels[label.substr(0, equals)] = label.substr(equals + 1);
    }
  }
  if (!labels.empty()) check.set("job.node_selector", labels);
  Json taints = Json::array();
  for (const std::string& text : settings.list("kubernetes.tolerations")) taints.push_back(toleration(check, text));
  if (!taints.empty()) check.set("job.tolerations", taints);
}

}  // namespace distsetup
