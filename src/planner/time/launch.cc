#include "planner/time/launch.h"

#include <algorithm>
#include <cmath>

namespace distsetup {

double launch_exposed_s(double host_s, double gpu_s, double p) {
  const double longer = std::max(host_s, gpu_s), shorter = std::min(host_s, gpu_s);
  if (shorter <= 0) return longer - gpu_s;
  return longer * std::pow(1 + std::pow(shorter / longer, p), 1 / p) - gpu_s;
}

}  // namespace distsetup
