// A config.json of a known family as a geometry. Private to src/model.
#pragma once
#include <string>

#include "base/diagnostic.h"
#include "base/value.h"
#include "model/families.h"
#include "model/geometry.h"

namespace distsetup {

// What is wrong with it goes into `diagnostics`; not validated yet.
Geometry read_config(const Value& config, const Family& family, const std::string& name, Diagnostics& diagnostics);

}  // namespace distsetup
