// Collectives over Gloo.
#pragma once
#include <memory>

#include "runtime/comm/communicator.h"

namespace distsetup {

// Gloo over TCP on CPU memory. Blocks until all ranks are there; throws CommunicationError ("port 29500 of host is in use",
// "ranks 2, 3 did not arrive within 300 s"). Its destructor says goodbye to the others unless an error was thrown before.
std::unique_ptr<Communicator> make_gloo_communicator(const Mesh& mesh, const Rendezvous& rendezvous);

}  // namespace distsetup
