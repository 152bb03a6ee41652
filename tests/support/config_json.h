// A model as the text of a config.json states it, over the built-in presets.
#pragma once
#include <catch2/catch.hpp>
#include <string>

#include "base/value_json.h"
#include "model/count.h"
#include "model/hf_config.h"
#include "support/presets.h"

namespace distsetup {

inline Result<Geometry> from_json(const std::string& text) {
  const Result<Value> value = parse_json(text, "config.json");
  INFO(format_diagnostics(value.diagnostics));
  REQUIRE(value.ok());
  return geometry_from_hf_config(presets(), *value, "mine");
}

// Its parameters, where nothing is said against it.
inline int64_t total_parameters(const std::string& text) {
  const Result<Geometry> g = from_json(text);
  INFO(format_diagnostics(g.diagnostics));
  REQUIRE(g.ok());
  CHECK(g.diagnostics.empty());
  return count_parameters(*g).total;
}

}  // namespace distsetup
