// A port of this machine that nobody listens on now.
#pragma once

namespace distsetup {

int free_port_from(int first);  // the first at or after it, so that jobs beside each other have different ones; 0: none of a thousand

}  // namespace distsetup
