#include "cli/launch/measure.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_text.h"
#include "base/machine_memory.h"
#include "base/subprocess.h"

namespace distsetup {
namespace {

// stdout of a program, or nothing when it cannot be run, fails, or is not done in time.
std::optional<std::string> output_of(const std::vector<std::string>& words, double limit_s) {
  Said said = run_program(words, limit_s, "", Spawn::Errors::kDropped);
  if (!said.started || said.code != 0) return std::nullopt;
  return std::move(said.text);
}

bool send_all(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = ::send(fd, data, size, MSG_NOSIGNAL);
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

bool receive_all(int fd, char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = ::recv(fd, data, size, 0);
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

constexpr size_t kMessageBytes = 8 << 20;

// The other end: sends every message back as one byte of receipt; a message of one byte is a ping.
int echo_peer(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return 1;
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  std::string buffer(kMessageBytes, '\0');
  char kind = 0;
  while (receive_all(fd, &kind, 1)) {
    if (kind == 'm' && !receive_all(fd, buffer.data(), buffer.size())) break;
    if (!send_all(fd, &kind, 1)) break;
  }
  return 0;
}

Result<Loopback> measure_as_first(int fd, double budget_s) {
  const std::string message(kMessageBytes, 'x');
  Loopback best;
  best.round_trip_s = 1e30;
  char reply = 0;
  const double begin_s = now_s();
  for (int i = 0; i < 2000 && now_s() < begin_s + budget_s / 4; ++i) {
    const double start_s = now_s();
    if (!send_all(fd, "p", 1) || !receive_all(fd, &reply, 1)) return error(code::kEnvironment, {}, "the loopback connection broke");
    best.round_trip_s = std::min(best.round_trip_s, now_s() - start_s);
  }
  do {
    const double start_s = now_s();
    if (!send_all(fd, "m", 1) || !send_all(fd, message.data(), message.size()) || !receive_all(fd, &reply, 1))
      return error(code::kEnvironment, {}, "the loopback connection broke");
    best.bytes_per_s = std::max(best.bytes_per_s, static_cast<double>(kMessageBytes) / (now_s() - start_s));
  } while (now_s() < begin_s + budget_s);
  return best;
}

}  // namespace

int num_usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

int64_t host_memory_bytes() {
  int64_t bytes = machine_memory().value_or(MachineMemory{}).total_bytes;
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    int64_t limit = 0;
    if (std::ifstream(path) >> limit && limit > 0) bytes = bytes > 0 ? std::min(bytes, limit) : limit;
  }
  return bytes;
}

double fastest_nic_bytes_per_s() {
  double fastest = 0;
  std::error_code failure;
  for (std::filesystem::directory_iterator it("/sys/class/net", failure), end; !failure && it != end; it.increment(failure)) {
    int64_t megabits = 0;
    std::string state;
    std::ifstream(it->path() / "operstate") >> state;
    if (state == "up" && std::ifstream(it->path() / "speed") >> megabits && megabits > 0)
      fastest = std::max(fastest, static_cast<double>(megabits) * 1e6 / 8);
  }
  return fastest;
}

double triad_bytes_per_s(int num_threads, double budget_s) {
  const int64_t per_thread = std::max<int64_t>(1 << 20, (int64_t{1} << 23) / num_threads);  // 3 × 64 MiB in all, or more
  const int64_t n = per_thread * num_threads;
  const std::unique_ptr<double[]> a(new double[static_cast<size_t>(n)]), b(new double[static_cast<size_t>(n)]),
      c(new double[static_cast<size_t>(n)]);
  const auto on_all = [&](auto&& work) {
    std::vector<std::thread> threads;
    for (int t = 0; t < num_threads; ++t) threads.emplace_back([&work, t, per_thread] { work(t * per_thread, (t + 1) * per_thread); });
    for (std::thread& thread : threads) thread.join();
  };
  on_all([&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) a[static_cast<size_t>(i)] = 0, b[static_cast<size_t>(i)] = 1, c[static_cast<size_t>(i)] = 2;
  });
  double best_s = 1e30;
  const double end_s = now_s() + budget_s;
  do {
    const double start_s = now_s();
    on_all([&](int64_t from, int64_t to) {
      double* __restrict__ pa = a.get();
      const double* __restrict__ pb = b.get();
      const double* __restrict__ pc = c.get();
      for (int64_t i = from; i < to; ++i) pa[i] = pb[i] + 3.0 * pc[i];
    });
    best_s = std::min(best_s, now_s() - start_s);
  } while (now_s() < end_s);
  return a[0] == 7.0 ? 24.0 * static_cast<double>(n) / best_s : 0;
}

double own_gemm_flops_per_s(double budget_s) {
  constexpr int64_t n = 384, kBlock = 64;
  std::vector<float> a(n * n, 0.5f), b(n * n, 0.25f), c(n * n);
  double best_s = 1e30;
  const double end_s = now_s() + budget_s;
  do {
    std::fill(c.begin(), c.end(), 0.0f);
    const double start_s = now_s();
    for (int64_t k0 = 0; k0 < n; k0 += kBlock) {
      for (int64_t i = 0; i < n; ++i) {
        float* __restrict__ row = c.data() + i * n;
        for (int64_t k = k0; k < k0 + kBlock; ++k) {
          const float factor = a[static_cast<size_t>(i * n + k)];
          const float* __restrict__ other = b.data() + k * n;
          for (int64_t j = 0; j < n; ++j) row[j] += factor * other[j];
        }
      }
    }
    best_s = std::min(best_s, now_s() - start_s);
  } while (now_s() < end_s);
  return c[0] > 0 ? 2.0 * n * n * n / best_s : 0;
}

Result<Loopback> measure_loopback(double budget_s) {
  const auto failed = [](const char* what) {
    return error(code::kEnvironment, {}, fmt::format("{} on 127.0.0.1 failed, {}", what, errno_text(errno)));
  };
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (listener < 0 || ::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener, 1) != 0 || ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return failed("listening");
  }
  const pid_t pid = spawn_copy([port = ntohs(address.sin_port)] { return echo_peer(port); });
  if (pid < 0) return failed("starting a second process");
  pollfd ready = {listener, POLLIN, 0};
  const int fd = ::poll(&ready, 1, 5000) == 1 ? ::accept(listener, nullptr, nullptr) : -1;
  ::close(listener);
  Result<Loopback> result = fd >= 0 ? measure_as_first(fd, budget_s) : Result<Loopback>(failed("a connection"));
  if (fd >= 0) ::close(fd);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  return result;
}

Result<LibraryGemm> library_gemm(const std::string& trainer, double budget_s) {
  const std::optional<std::string> text =
      output_of({trainer, "--probe", std::to_string(std::max<int64_t>(1, std::llround(budget_s)))}, budget_s + 60);
  const Json json = text ? json_from_text(*text) : Json();
  if (!json.is_object() || !json.contains("measurements") || !json["measurements"].is_array() || json["measurements"].empty()) {
    return error(code::kEnvironment, {}, fmt::format("'{} --probe' gave no measurement", trainer),
                 "run it by hand to see why, or rebuild the trainer");
  }
  const Json& first = json["measurements"][0];
  return LibraryGemm{first.value("gemm_f32_flops_per_s", 0.0), first.value("gemm_bf16_flops_per_s", 0.0)};
}

std::vector<FoundGpu> find_gpus() {
  std::vector<FoundGpu> gpus;
  const std::optional<std::string> text =
      output_of({"nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"}, 10);
  std::istringstream lines(text.value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const size_t comma = line.rfind(", ");
    if (comma != std::string::npos) gpus.push_back({line.substr(0, comma), std::atoll(line.c_str() + comma + 2) * 1024 * 1024});
  }
  return gpus;
}

}  // namespace distsetup
