#include <catch2/catch.hpp>
#include <fstream>

#include "service/run_curve.h"
#include "support/temporary_directory.h"

using namespace distsetup;

namespace {

void add_steps(const std::string& path, int first, int last) {
  std::ofstream file(path, std::ios::app);
  for (int step = first; step <= last; ++step)
    file << Json{{"kind", "step"}, {"step", step}, {"loss", 1.0 / step}, {"step_s", 0.5}, {"tokens_per_s", 100}}.dump() << '\n';
}

}  // namespace

TEST_CASE("service curve: a long run is shown by a few hundred steps, the first and the newest among them") {
  const TemporaryDirectory folder;
  const std::string path = folder.path("metrics.jsonl");
  RunCurves curves;
  int last = 0;
  for (const int next : {1, 2, 399, 400, 401, 5000, 5001, 12345}) {
    add_steps(path, last + 1, next);
    last = next;
    INFO("step " << last);
    const RunCurve curve = curves.read(path, CurveParts::kAll);
    CHECK(curve.num_steps == last);
    CHECK(curve.last_step.at("step") == last);
    REQUIRE(curve.steps.size() <= kMostPoints);
    CHECK(curve.steps.size() >= static_cast<size_t>(std::min(last, 200)));
    CHECK(curve.steps.front().at("step") == 1);
    CHECK(curve.steps.back().at("step") == last);
    for (size_t i = 1; i < curve.steps.size(); ++i)
      REQUIRE(curve.steps[i - 1].at("step").get<int>() < curve.steps[i].at("step").get<int>());
  }
  const RunCurve numbers = curves.read(path, CurveParts::kNumbers);
  CHECK(numbers.steps.empty());
  CHECK(numbers.num_steps == last);
  CHECK(numbers.mean_step_s == 0.5);
}
