// Only ever handled through a shared_ptr that libtorch makes. See ../README.md.
#pragma once

namespace gloo::transport {

class Device;

}  // namespace gloo::transport
