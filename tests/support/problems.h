// Problems as a command line states them, over the built-in presets. For tests of the planner.
#pragma once
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model/presets.h"
#include "planner/resolve/resolve.h"
#include "support/presets.h"

namespace distsetup {

using Flags = std::vector<std::pair<std::string, std::string>>;

// Every flag is one that is taken without a word.
inline Result<Problem> resolved(const Flags& flags, const std::vector<PassedOver>& passed_over = {}) {
  Spec spec;
  for (const auto& [flag, text] : flags) REQUIRE(set_flag(spec, flag, std::string_view(text), {"command line", 0, 0}).empty());
  return resolve(spec, presets(), {}, passed_over);
}

}  // namespace distsetup
