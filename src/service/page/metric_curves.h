// `losses` and `evaluations` of a job as curves.
#pragma once
#include "base/json.h"
#include "service/page/chart.h"

namespace distsetup {

struct MetricCurves {
  ChartLine loss, held_out_loss, learning_rate, margin, chosen, rejected, accuracy;
};

MetricCurves read_curves(const Json& job);

}  // namespace distsetup
