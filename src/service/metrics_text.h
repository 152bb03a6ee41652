// /metrics: OpenMetrics of the service and of each job that runs.
#pragma once
#include <string>

#include "service/service.h"

namespace distsetup {

inline constexpr char kOpenMetricsType[] = "application/openmetrics-text; version=1.0.0; charset=utf-8";
std::string metrics_text(Service& service);

}  // namespace distsetup
