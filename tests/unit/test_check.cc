// CHECK aborts with place, condition and values, and evaluates nothing twice.
#include "base/check.h"

// Catch2 has a CHECK of its own; ours is kept under another name before it is replaced.
namespace {
void require_less(int a, int b) { CHECK(a < b, "a {} b {}", a, b); }
void require_plain(bool condition) { CHECK(condition); }
int count_evaluations() {
  int evaluations = 0;
  CHECK(++evaluations > 0);
  return evaluations;
}
}  // namespace
#undef CHECK

#include <catch2/catch.hpp>

#include "support/death.h"

using namespace distsetup;

TEST_CASE("a true condition goes on", "[check]") {
  require_less(1, 2);
  require_plain(true);
  CHECK(count_evaluations() == 1);
}

TEST_CASE("a false condition aborts with place, condition and values", "[check]") {
  CHECK(dies_with("test_check.cc:6: a < b\n  with a 3 b 2\n", [] { require_less(3, 2); }));
  CHECK(dies_with("please report", [] { require_plain(false); }));
}
