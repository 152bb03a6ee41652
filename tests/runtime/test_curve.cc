#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/monitor/curve.h"

namespace distsetup {
namespace {

TEST_CASE("the loss curve falls from the upper left to the lower right") {
  std::vector<LossPoint> training;
  for (int64_t s = 1; s <= 21; ++s) training.push_back({s, 5.0 - 0.1 * static_cast<double>(s - 1)});
  CHECK(format_curve(training, {{1, 5.0}, {21, 3.5}}, 29, 7) ==
        "loss: . training, o held out\n"
        "  5.00 |o..\n"
        "       |   .....\n"
        "  4.00 |        .....\n"
        "       |             .....  o\n"
        "  3.00 |                  ...\n"
        "       step 1              21\n");
}

TEST_CASE("there is no curve of one point or of losses that are not finite") {
  CHECK(format_curve({{1, 2.0}}, {}).empty());
  CHECK(format_curve({{1, 2.0}, {2, std::nan("")}}, {}).empty());
}

}  // namespace
}  // namespace distsetup
