#include "service/run_curve.h"

#include <sys/stat.h>

#include <fstream>

#include "base/json_text.h"

namespace distsetup {
namespace {

constexpr size_t kMostRuns = 64, kMostKept = 2 * kMostPoints;  // as many as are shown after every halving

}  // namespace

Json thinned(const Json& points, size_t most) {
  if (points.size() <= most) return points;
  Json out = Json::array();
  for (size_t i = 0; i < most; ++i) out.push_back(points[i * (points.size() - 1) / (most - 1)]);
  return out;
}

void RunCurves::read_on(const std::string& path, Known& known) {
  struct stat facts = {};
  if (::stat(path.c_str(), &facts) != 0) return;
  if (facts.st_size < known.offset) known = {};  // a run that resumed drops what came after its checkpoint
  std::ifstream file(path, std::ios::binary);
  file.seekg(known.offset);
  std::string line;
  while (std::getline(file, line) && !file.eof()) {
    known.offset += static_cast<int64_t>(line.size()) + 1;
    Json json = json_from_text(line);
    if (!json.is_object()) continue;
    const std::string kind = json.value("kind", "");
    json.erase("kind");
    if (kind == "evaluation") known.evaluations.push_back(std::move(json));
    if (kind != "step") continue;
    if (const auto metered = json.find("memory"); metered != json.end()) {
      known.memory = *metered;
      json.erase("memory");
    }
    const double step_s = json.value("step_s", 0.0), tokens_per_s = json.value("tokens_per_s", 0.0);
    if (known.num_steps++ == 0) {
      known.first_step_s = step_s;
      known.first_tokens_per_s = tokens_per_s;
    } else {
      known.sum_step_s += step_s;
      known.sum_tokens_per_s += tokens_per_s;
    }
    known.last_step = json;
    if ((known.num_steps - 1) % known.keep_every == 0) known.steps.push_back(std::move(json));
    if (known.steps.size() > kMostKept) {
      Json half = Json::array();
      for (size_t i = 0; i < known.steps.size(); i += 2) half.push_back(known.steps[i]);
      known.steps = std::move(half);
      known.keep_every *= 2;
    }
  }
}

RunCurve RunCurves::read(const std::string& path, CurveParts parts) {
  const std::lock_guard lock(mutex_);
  if (known_.size() > kMostRuns && !known_.contains(path)) known_.clear();
  Known& known = known_[path];
  read_on(path, known);
  RunCurve out;
  if (parts == CurveParts::kAll) {
    out.steps = thinned(known.steps, kMostPoints - 1);
    if (!known.last_step.is_null() && (out.steps.empty() || out.steps.back() != known.last_step)) out.steps.push_back(known.last_step);
    out.evaluations = thinned(known.evaluations, kMostPoints);
  }
  out.last_step = known.last_step;
  out.memory = known.memory;
  out.num_steps = known.num_steps;
  const double others = static_cast<double>(known.num_steps - 1);
  out.mean_step_s = known.num_steps > 1 ? known.sum_step_s / others : known.first_step_s;
  out.mean_tokens_per_s = known.num_steps > 1 ? known.sum_tokens_per_s / others : known.first_tokens_per_s;
  return out;
}

}  // namespace distsetup
