// A port of this machine that nobody listens on now.
#pragma once
#include <functional>

namespace distsetup {

// The first at or after `first` that is free and not `taken`; 0: none of a thousand. A port that was picked a moment ago still looks
// free until its job listens there: the caller knows such ports.
int free_port_from(int first, const std::function<bool(int port)>& taken);

}  // namespace distsetup
