// The built-in presets, loaded once.
#pragma once
#include <catch2/catch.hpp>

#include "model/presets.h"

namespace distsetup {

inline const Presets& presets() {
  static const Result<Presets> loaded = load_presets();
  REQUIRE(loaded.ok());
  return *loaded;
}

}  // namespace distsetup
