#include "service/page/metric_curves.h"

#include "service/page/json_values.h"

namespace distsetup {
namespace {

// A run that goes on from a checkpoint writes some steps again: the later line counts.
void add_point(ChartLine& line, const Json& from, const char* key) {
  const auto value = from.is_object() ? from.find(key) : from.end();
  if (value == from.end() || !value->is_number()) return;
  const double step = number_at(from, "/step");
  while (!line.points.empty() && line.points.back().first >= step) line.points.pop_back();
  line.points.emplace_back(step, value->get<double>());
}

}  // namespace

MetricCurves read_curves(const Json& job) {
  MetricCurves curves;
  curves.loss.name = "training";
  curves.held_out_loss.name = "held out";
  curves.learning_rate.name = "learning rate";
  curves.margin.name = "margin";
  curves.chosen.name = "chosen";
  curves.rejected.name = "rejected";
  curves.accuracy.name = "accuracy";
  for (const Json& line : list_at(job, "/evaluations")) add_point(curves.held_out_loss, line, "held_out_loss");
  for (const Json& line : list_at(job, "/losses")) {
    add_point(curves.loss, line, "loss");
    add_point(curves.learning_rate, line, "learning_rate");
    add_point(curves.margin, line, "rewards/margins");
    add_point(curves.chosen, line, "rewards/chosen");
    add_point(curves.rejected, line, "rewards/rejected");
    add_point(curves.accuracy, line, "rewards/accuracies");
  }
  return curves;
}

}  // namespace distsetup
