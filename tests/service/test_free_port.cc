#include <catch2/catch.hpp>

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/file.h"
#include "service/free_port.h"

using namespace distsetup;

TEST_CASE("service ports: a job gets one that nobody listens on and that no job was given a moment ago") {
  const int first = free_port_from(20000, [](int) { return false; });
  REQUIRE(first >= 20000);
  CHECK(free_port_from(first, [first](int port) { return port == first; }) > first);
  const OpenFile listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET, address.sin_addr.s_addr = htonl(INADDR_ANY), address.sin_port = htons(static_cast<uint16_t>(first));
  REQUIRE(::bind(listening.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(::listen(listening.fd(), 1) == 0);
  CHECK(free_port_from(first, [](int) { return false; }) > first);
  CHECK(free_port_from(first, [](int) { return true; }) == 0);
}
