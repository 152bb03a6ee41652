// Several ranks in one test: as threads, each with its own communicator (a process group does not mind who its neighbours are), or,
// where a rank has to die, as processes that run a hidden test case of this same program.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/gloo.h"
#include "runtime/comm/tracing.h"

namespace distsetup {

// A port nobody listens on. Below the ports that Linux hands out by itself (32768 and up): those go to the connections of other tests
// that run at the same time.
inline int free_port() {
  std::random_device random;
  for (;;) {
    const int port = std::uniform_int_distribution<int>(10000, 32000)(random);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const bool free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    close(fd);
    if (free) return port;
  }
}

// Runs body(communicator) on every rank of the mesh. The first exception is thrown again here, one that does not blame another rank
// before those that do; assertions belong after the call.
inline void run_ranks(const Mesh& mesh, const std::function<void(Communicator&)>& body) {
  if (mesh.world() == 1) {
    const auto self = make_self_communicator(mesh);
    return body(*self);
  }
  Rendezvous rendezvous;
  rendezvous.world = mesh.world();
  rendezvous.master_port = free_port();
  rendezvous.init_timeout_s = 60;
  rendezvous.collective_timeout_s = 60;
  std::vector<std::exception_ptr> errors(size_t(mesh.world()));
  std::vector<std::thread> threads;
  for (int r = 0; r < mesh.world(); ++r) {
    threads.emplace_back([&, r] {
      try {
        Rendezvous mine = rendezvous;
        mine.rank = r;
        const auto communicator = make_gloo_communicator(mesh, mine);
        body(*communicator);
      } catch (...) {
        errors[size_t(r)] = std::current_exception();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  std::exception_ptr blaming;
  for (const std::exception_ptr& e : errors) {
    try {
      if (e) std::rethrow_exception(e);
    } catch (const std::exception& error) {
      if (std::string_view(error.what()).find(" is gone: ") == std::string_view::npos) throw;
      if (!blaming) blaming = e;
    }
  }
  if (blaming) std::rethrow_exception(blaming);
}

struct ChildResult {
  int status = 0;  // of waitpid
  std::string output;
};
// This very program with one (hidden) test case and some environment variables; output is stdout and stderr.
class Child {
 public:
  Child(const std::string& test_case, const std::vector<std::pair<std::string, std::string>>& environment) {
    int fds[2];
    if (pipe(fds) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
      dup2(fds[1], 1);
      dup2(fds[1], 2);
      close(fds[0]);
      close(fds[1]);
      execl("/proc/self/exe", "test", test_case.c_str(), static_cast<char*>(nullptr));
      _exit(127);
    }
    close(fds[1]);
    out_ = fds[0];
  }
  ChildResult wait() {
    ChildResult result;
    char buffer[4096];
    ssize_t n = 0;
    while ((n = read(out_, buffer, sizeof(buffer))) > 0) result.output.append(buffer, size_t(n));
    close(out_);
    waitpid(pid_, &result.status, 0);
    return result;
  }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
};

}  // namespace distsetup
