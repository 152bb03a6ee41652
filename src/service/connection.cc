#include "service/connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"

namespace distsetup {
namespace {

constexpr double kSlice_s = 0.1;  // between two looks whether the server goes on
constexpr double kLinger_s = 1;
constexpr size_t kLingerBytes = size_t{8} << 20;

void name_address(int (*ask)(int, sockaddr*, socklen_t*), int socket, std::string& ip, int& port) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (ask(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return;
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    sockaddr_in four = {};
    std::memcpy(&four, &address, sizeof(four));
    ::inet_ntop(AF_INET, &four.sin_addr, text.data(), text.size());
    port = ntohs(four.sin_port);
  } else if (address.ss_family == AF_INET6) {
    sockaddr_in6 six = {};
    std::memcpy(&six, &address, sizeof(six));
    ::inet_ntop(AF_INET6, &six.sin6_addr, text.data(), text.size());
    port = ntohs(six.sin6_port);
  }
  ip = text.data();
}

}  // namespace

bool Connection::is_ready(short events, double most_s) const {
  const double until_s = now_s() + most_s;
  while (true) {
    pollfd one = {socket_, events, 0};
    const double left_s = std::max(0.0, until_s - now_s());
    const int got = ::poll(&one, 1, static_cast<int>(left_s * 1000));
    if (got > 0) return (one.revents & events) != 0;
    if (got == 0 || errno != EINTR) return false;
  }
}

bool Connection::awaits_request(double most_s, const std::function<bool()>& goes_on) {
  const double until_s = now_s() + most_s;
  while (begin_ == end_) {
    if (!goes_on() || now_s() > until_s) return false;
    if (!is_ready(POLLIN, std::min(kSlice_s, most_s))) continue;
    char next = 0;
    return ::recv(socket_, &next, 1, MSG_PEEK) == 1;
  }
  return goes_on();
}

void Connection::close(Ending ending) {
  ::shutdown(socket_, ending == Ending::kRefused ? SHUT_WR : SHUT_RDWR);
  const double until_s = now_s() + kLinger_s;
  for (size_t num_dropped = 0; ending == Ending::kRefused && num_dropped < kLingerBytes;) {
    if (!is_ready(POLLIN, until_s - now_s())) break;
    const ssize_t got = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
    if (got <= 0) break;
    num_dropped += static_cast<size_t>(got);
  }
  ::close(socket_);
}

bool Connection::is_readable() const { return begin_ < end_ || is_ready(POLLIN, limits_.read_s); }

bool Connection::is_writable() const { return is_ready(POLLOUT, limits_.write_s); }

ssize_t Connection::read(char* to, size_t size) {
  if (begin_ == end_) {
    if (!is_ready(POLLIN, limits_.read_s)) return 0;
    ssize_t got = 0;
    do {
      got = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
    } while (got < 0 && errno == EINTR);
    if (got <= 0) return got;
    begin_ = 0;
    end_ = static_cast<size_t>(got);
  }
  const size_t n = std::min({size, end_ - begin_, head_left_.value_or(size)});
  if (head_left_) *head_left_ -= n;
  std::memcpy(to, buffer_.data() + begin_, n);
  begin_ += n;
  return static_cast<ssize_t>(n);
}

ssize_t Connection::write(const char* from, size_t size) {
  if (!is_writable()) return -1;
  ssize_t sent = 0;
  do {
    sent = ::send(socket_, from, size, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const { name_address(::getpeername, socket_, ip, port); }

void Connection::get_local_ip_and_port(std::string& ip, int& port) const { name_address(::getsockname, socket_, ip, port); }

}  // namespace distsetup
