#include "service/free_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/file.h"

namespace distsetup {

int free_port_from(int first, const std::function<bool(int port)>& taken) {
  constexpr int kTried = 1000, kLastPort = 65535;
  for (int port = first; port <= std::min(kLastPort, first + kTried); ++port) {
    if (taken(port)) continue;
    const OpenFile socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int yes = 1;
    ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(static_cast<uint16_t>(port));
    if (::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 && ::listen(socket.fd(), 1) == 0)
      return port;
  }
  return 0;
}

}  // namespace distsetup
