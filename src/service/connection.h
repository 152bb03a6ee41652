// A client's connection as the HTTP library reads and writes it. The library's own takes a client that has said its last word (and has
// closed its half, as `nc -N` does) for one that is gone, drops what came behind a request, and says nothing to one that is silent in
// the middle of a line. Here each of them is answered: a silence is an end, and what has ended too early is what the library refuses.
#pragma once
#include <httplib.h>

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace distsetup {

inline constexpr size_t kMostHeadBytes = 32768;

struct ConnectionLimits {
  double read_s = 30, write_s = 30;  // of silence
};

class Connection final : public httplib::Stream {
 public:
  Connection(socket_t socket, const ConnectionLimits& limits) : socket_(socket), limits_(limits) {}
  // Waits `most_s` for the first byte of a request; false: none came, the client is gone, or goes_on() says no.
  bool awaits_request(double most_s, const std::function<bool()>& goes_on);
  // A head has at most so many bytes: what is longer ends there. Until the head is read; the library sets limits to the rest.
  void begin_head() { head_left_ = kMostHeadBytes; }
  void end_head() { head_left_ = std::nullopt; }
  // Closes it. After a refusal what the client still sends is read a while: closed at once, it might never see the answer.
  enum class Ending { kPlain, kRefused };
  void close(Ending ending);

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  bool is_ready(short events, double most_s) const;
  socket_t socket_;
  ConnectionLimits limits_;
  std::array<char, 16384> buffer_{};
  std::optional<size_t> head_left_;
  size_t begin_ = 0, end_ = 0;  // of what was read and is not taken yet
};

}  // namespace distsetup
