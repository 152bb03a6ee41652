// Whether a gradient replaces what is there or adds to it.
#pragma once

namespace distsetup::cpu {

enum class Store { kSet, kAdd };

}  // namespace distsetup::cpu
