// Properties by rapidcheck: random inputs, the smallest counterexample that is found, and the seed, which RC_PARAMS=seed=N repeats.
// Inside a property RC_ASSERT takes the place of CHECK (Catch would count every try at something smaller as a failure), and RC_LOG
// that of INFO.
#pragma once
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "support/seed.h"

namespace distsetup {

// Stands where a random engine would; each number drawn is one that rapidcheck makes smaller when the property fails.
struct Draw {
  using result_type = uint32_t;
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return UINT32_MAX - 1; }
  result_type operator()() {
    // As large from the first case on: inputs here are no sizes that have to grow.
    static const rc::Gen<uint32_t> kAnyNumber = rc::gen::resize(rc::kNominalSize, rc::gen::inRange<uint32_t>(min(), UINT32_MAX));
    return *kAnyNumber;
  }
};

// Checks `property`, a function without arguments that draws its input, on `num_cases` inputs that it does not discard (RC_DISCARD).
template <class Property>
void check_property(int num_cases, Property&& property, int max_discard_ratio = 10) {
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  const char* given = std::getenv("RC_PARAMS");
  const auto says = [&](std::string_view key) {
    return given != nullptr && std::string_view(given).find(key) != std::string_view::npos;
  };
  if (!says("seed=")) params.seed = test_seed();
  if (!says("max_success=")) params.maxSuccess = num_rounds(num_cases);
  params.maxDiscardRatio = max_discard_ratio;
  rc::detail::TestMetadata about;
  about.id = about.description = Catch::getResultCapture().getCurrentTestName();
  std::cout << about.id << ": RC_PARAMS=seed=" << params.seed << " repeats it\n";
  const rc::detail::TestResult result = rc::detail::checkTestable(std::forward<Property>(property), about, params);
  std::ostringstream said;
  rc::detail::printResultMessage(result, said);
  INFO(said.str());
  CHECK(result.template is<rc::detail::SuccessResult>());
}

}  // namespace distsetup
