// See ask_plan.h.
#include "runtime/ask_plan.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/file.h"
#include "base/names.h"
#include "base/own_program.h"
#include "runtime/monitor/failure.h"

extern char** environ;

namespace distsetup {
namespace {

namespace fs = std::filesystem;

std::string planner_program() {
  if (const std::optional<std::string> named = process_getenv("DISTSETUP")) return *named;
  std::error_code failure;
  const fs::path beside = own_program().parent_path() / "distsetup";
  return fs::exists(beside, failure) ? beside.string() : "distsetup";
}

bool has_flag(const std::vector<std::string>& flags, std::initializer_list<std::string_view> names) {
  return std::any_of(flags.begin(), flags.end(), [&names](const std::string& word) {
    if (word.compare(0, 2, "--") != 0) return false;
    const std::string_view flag = std::string_view(word).substr(2, word.find('=') == word.npos ? word.npos : word.find('=') - 2);
    return std::any_of(names.begin(), names.end(), [&flag](std::string_view name) { return same_name(name, flag); });
  });
}

// "NVIDIA H100 80GB HBM3"; empty: no driver, or no GPU.
std::string gpu_of_this_host() {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", ignored)) {
    const Result<std::string> text = read_file((entry.path() / "information").string());
    const size_t at = text.ok() ? text->find("Model:") : std::string::npos;
    if (at == std::string::npos) continue;
    const size_t begin = text->find_first_not_of(" \t", at + 6), end = text->find('\n', at);
    return begin < end ? text->substr(begin, end - begin) : "GPU";
  }
  return "";
}

// Beside the caller's own environment, where that does not say it.
std::vector<std::string> planner_variables(const std::vector<std::string>& flags, const RankEnvironment& environment) {
  std::vector<std::string> out;
  const auto set = [&out](const std::string& name, const std::string& value) {
    if (!process_getenv(name)) out.push_back(name + "=" + value);
  };
  set("DISTSETUP_TRAINER", "native");
  const int nodes = environment.world / environment.local_world;
  if (nodes * environment.local_world != environment.world) {
    throw Failure(kExitBadEnvironment, fmt::format("{} started {} ranks, {} of them on {}: every node needs as many",
                                                   environment.source, environment.world, environment.local_world, environment.host));
  }
  if (!has_flag(flags, {"total-gpus", "world-size"})) {
    set("DISTSETUP_NODES", std::to_string(nodes));
    if (!has_flag(flags, {"machine"}) || environment.source != "no launcher")
      set("DISTSETUP_GPUS", std::to_string(environment.local_world));
  }
  if (has_flag(flags, {"gpu", "gpu-type", "machine"}) || process_getenv("DISTSETUP_GPU") || process_getenv("DISTSETUP_MACHINE"))
    return out;
  const std::string gpu = gpu_of_this_host();
  if (!gpu.empty()) {
    throw Failure(kExitBadEnvironment,
                  fmt::format("{} has '{}', and no flag says which kind of GPU to plan for", environment.host, gpu),
                  "add --gpu h100_sxm (distsetup help keys), or --gpu cpu");
  }
  if (environment.rank == 0)
    fmt::print(stderr, "no GPU on {}: ranks run on its CPU (--gpu names another machine)\n", environment.host);
  set("DISTSETUP_GPU", "cpu");
  return out;
}

// A file without a name, for what a program says.
class Captured {
 public:
  explicit Captured(const char* name) : fd_(::memfd_create(name, MFD_CLOEXEC)) {}
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  ~Captured() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }
  std::string text() const {
    std::string out;
    char buffer[65536];
    for (off_t at = 0;;) {
      const ssize_t n = ::pread(fd_, buffer, sizeof(buffer), at);
      if (n <= 0) return out;
      out.append(buffer, static_cast<size_t>(n));
      at += n;
    }
  }

 private:
  int fd_ = -1;
};

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

// The first error of the planner and its help, without colours and places.
struct PlannerError {
  std::string what, help;
};

PlannerError first_error(const std::string& said) {
  const size_t at = said.find("error[");
  const size_t begin = at == std::string::npos ? 0 : said.find("]: ", at) + 3;
  const std::string one = said.substr(begin, said.find("\nerror[", begin) - begin);
  PlannerError error{one.substr(0, one.find('\n')), ""};
  constexpr std::string_view kHelp = "\n  help: ";
  if (const size_t help = one.find(kHelp); help != std::string::npos)
    error.help = one.substr(help + kHelp.size(), one.find('\n', help + 1) - help - kHelp.size());
  return error;
}

}  // namespace

std::string ask_for_plan(const std::vector<std::string>& flags, const RankEnvironment& environment) {
  const std::string program = planner_program();
  std::vector<std::string> words = {program, "plan", "--json", "--"};
  words.insert(words.end(), flags.begin(), flags.end());
  std::vector<std::string> variables = planner_variables(flags, environment);
  for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
  std::vector<char*> argv = pointers(words), envp = pointers(variables);

  const Captured plan("plan.json"), said("said");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, plan.fd(), 1);
  if (environment.rank != 0) posix_spawn_file_actions_adddup2(&actions, said.fd(), 2);
  pid_t child = 0;
  const int number = ::posix_spawnp(&child, program.c_str(), &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  if (number != 0) {
    throw Failure(kExitBadEnvironment, fmt::format("cannot start '{}', which plans for flags: {}", program, errno_text(number)),
                  "put distsetup beside distsetup-train or on PATH, set DISTSETUP=/path/to/distsetup, or give --plan plan.json");
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (code == 0) return plan.text();
  // A launcher stops rank 0 as soon as another rank ends, maybe before it has printed anything: each says how to mend it.
  const PlannerError why = environment.rank == 0 ? PlannerError{"see above", ""} : first_error(said.text());
  throw Failure(code == kExitUsage ? kExitUsage : kExitBadPlan,
                code == 4 ? "nothing fits: no plan for these flags" : fmt::format("no plan for these flags: {}", why.what), why.help);
}

}  // namespace distsetup
