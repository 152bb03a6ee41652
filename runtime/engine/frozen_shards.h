// A rank's flat shards of what is frozen (src/plan/layout.h), filled.
#pragma once
#include "plan/layout.h"
#include "runtime/device/device.h"
#include "runtime/engine/bind.h"
#include "weights/frozen_source.h"

namespace distsetup {

// All must outlive it. Values are rounded to the compute type.
StoreFrozen frozen_store_of(const RankMemory& memory, Device& device, const Layout& layout, Dtype compute);

}  // namespace distsetup
