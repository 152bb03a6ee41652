// This program's own getnameinfo, which takes the place of the C library's in every library of the process: the name of an address is
// the address. Why: TCPStore asks for the name of each peer at each connection, on both sides, for a message that is hardly ever
// printed (libtorch 2.11, c10d/socket.cpp). Where the name server does not know the cluster's addresses, or is slow, that is seconds
// for each rank, in rank 0 one after the other. Left out: names in messages; ours say what the user wrote.
#pragma once
#include <cstdint>

namespace distsetup {

// How often an address was asked for its name and remained a number. A program that calls this has that function in it.
int64_t num_numeric_names();

}  // namespace distsetup
