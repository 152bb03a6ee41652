#include "service/service_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "service/client/client_program.h"
#include "service/front.h"
#include "service/http_server.h"
#include "service/job_plan.h"
#include "service/job_planning.h"
#include "service/job_queue.h"
#include "service/keeper.h"
#include "service/node_agent.h"
#include "service/processes.h"
#include "service/router.h"
#include "service/settings_file.h"
#include "service/sibling_program.h"
#include "service/slurm_job.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;
constexpr int kExitOk = 0, kExitFailure = 1, kExitWrongWords = 2, kExitConfig = 3, kExitUnusable = 5;

int complain(const Diagnostics& said, int code) {
  fmt::print(stderr, "{}", format_diagnostics(said));
  return code;
}

// The GPUs of this machine: what jobs may have where nothing names them, and what is planned for.
void find_gpus(ServiceSettings& settings) {
  if (settings.device != "cuda") return;
  const Said said = run_program({"nvidia-smi", "--query-gpu=index,name", "--format=csv,noheader"}, 20, "", Spawn::Errors::kDropped);
  const bool asks_all = settings.devices.empty() && std::getenv("CUDA_VISIBLE_DEVICES") == nullptr;
  for (const std::string& line : said.started&& said.code == 0 ? split_words(said.text, '\n') : std::vector<std::string>{}) {
    const std::vector<std::string> parts = split_words(line, ',');
    if (parts.size() != 2) continue;
    if (asks_all) settings.devices.push_back(parts[0]);
    if (settings.gpu.empty()) settings.gpu = parts[1];
  }
}

// What the start says to people: the lines of the guide.
void say_start(const ServiceSettings& settings, int port) {
  std::string gpus;
  for (const std::string& one : settings.devices) gpus += (gpus.empty() ? "" : ",") + one;
  fmt::print("Starting distsetup service ({})...\n", mode_name(settings.mode));
  if (settings.device == "cuda" && !gpus.empty())
    fmt::print("CUDA detected - distributed training will use GPUs\nUsing CUDA devices: {}\n", gpus);
  else if (settings.device == "cuda")
    fmt::print("warning: no GPU found, jobs are refused: --device cpu trains on processors\n");
  else
    fmt::print("Training on processors: {} {} of {} {}\n", settings.nodes, settings.nodes == 1 ? "node" : "nodes",
               settings.ranks_per_node, settings.ranks_per_node == 1 ? "rank" : "ranks");
  fmt::print("Server will listen on {}:{}\n", settings.host, port);
  std::fflush(stdout);
}

// `distsetup validate` holds the provider's part against its table.
Diagnostics check_provider(const ServiceSettings& settings) {
  const std::string text = provider_text_of(settings);
  if (text.empty()) return {};
  const std::string folder = settings.data_folder + "/tmp";
  const std::string name = fs::path(settings.config_path).filename().string();
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (!write_file_atomic(folder + "/" + name, text, Overwrite::kForce).ok())
    return {error(code::kUnwritableFile, {folder}, "no file can be written there")};
  const Json said = ask_sibling({"validate", name, "--json"}, folder).json();
  fs::remove(folder + "/" + name, failure);
  Diagnostics out;
  for (const Json& one : said.is_object() ? said.value("diagnostics", Json::array()) : Json::array()) {
    const Json at = one.value("location", Json::object());
    if (one.value("severity", "") != "error") continue;
    out.push_back(error(one.value("code", ""), {settings.config_path, at.value("line", 0), at.value("column", 0)},
                        one.value("message", ""), one.value("help", "")));
  }
  return out;
}

// SIGINT or SIGTERM; every thread has them blocked.
int await_signal() {
  sigset_t awaited;
  sigemptyset(&awaited);
  for (const int number : {SIGINT, SIGTERM}) sigaddset(&awaited, number);
  int number = 0;
  ::sigwait(&awaited, &number);
  return number;
}

// A node beside the first: no server, no store.
int serve_node(const ServiceSettings& settings) {
  EventLog log(settings.log_level);
  log.open_file(service_log_path());
  fmt::print("Node {} of {} joins {}:{}\n", settings.node_rank, settings.nodes, settings.master_addr, settings.port);
  std::fflush(stdout);
  std::atomic<bool> is_stopping{false};
  std::atomic<bool> is_taken{true};
  std::thread agent([&] {
    is_taken = run_node_agent(settings, log, is_stopping);
    if (!is_taken) ::kill(::getpid(), SIGTERM);  // which is waited for below
  });
  log.write(LogLevel::kInfo, "node_stopping", {{"signal", await_signal()}});
  is_stopping = true;
  agent.join();
  return is_taken ? kExitOk : kExitUnusable;
}

// Makes it where it is not there, and holds its lock as long as this process lives.
Diagnostics take_data_folder(const std::string& folder) {
  const auto unusable = [&folder](const char* what, int number) {
    return Diagnostics{error(code::kUnwritableFile, {folder}, fmt::format("{}, {}", what, errno_text(number)),
                             "name a folder that can be written with --data")};
  };
  std::error_code failure, ignored;
  fs::create_directories(folder, failure);
  if (failure) return unusable("the data folder cannot be made", failure.value());
  fs::permissions(folder, fs::perms::owner_all, ignored);
  const std::string lock = folder + "/service.lock";
  if (take_lock(lock)) return {};
  if (!OpenFile(::open(lock.c_str(), O_RDWR | O_CLOEXEC)).is_open())
    return unusable("nothing can be written in the data folder", errno);
  return {
      error(code::kEnvironment, {folder}, "another service works in this data folder", "stop it, or name another folder with --data")};
}

int serve(ServiceSettings settings) {
  if (settings.node_rank > 0 && settings.launcher == LauncherKind::kNodes) return serve_node(settings);
  if (settings.mode == ServiceMode::kFront) {
    if (const Diagnostics wrong = check_remote(settings); has_error(wrong)) return complain(wrong, kExitUnusable);
  }
  if (const Diagnostics wrong = take_data_folder(settings.data_folder); has_error(wrong)) return complain(wrong, kExitUnusable);
  if (const Diagnostics wrong = check_provider(settings); has_error(wrong)) return complain(wrong, kExitConfig);
  find_gpus(settings);
  EventLog log(settings.log_level);
  log.open_file(service_log_path());
  Database database;
  if (const Diagnostics wrong = database.open(settings.data_folder + "/service.sqlite"); has_error(wrong))
    return complain(wrong, kExitUnusable);
  JobStore jobs(database);
  DatasetStore datasets(database);
  Service service;
  service.settings = settings;
  service.log = &log;
  service.jobs = &jobs;
  service.datasets = &datasets;
  service.started_ms = wall_clock_ms();
  if (const Diagnostics wrong = service.nodes.open(settings.data_folder); has_error(wrong)) return complain(wrong, kExitUnusable);
  JobQueue queue(service);
  service.queue = &queue;
  HttpServer server(settings, [&service](HttpRequest request) { return answer_request(service, std::move(request)); });
  const Result<int> port = server.bind();
  if (!port.ok()) return complain(port.diagnostics, kExitUnusable);
  say_start(settings, *port);
  log.write(LogLevel::kInfo, "service_started",
            {{"mode", mode_name(settings.mode)},
             {"host", settings.host},
             {"port", *port},
             {"data", settings.data_folder},
             {"world_size", settings.world()}});
  if (settings.is_health_interval_given && settings.mode != ServiceMode::kFront)
    log.write(LogLevel::kWarning, "setting_without_effect",
              {{"key", "service_config.health_check_interval"}, {"reason", "a front looks after a service; this one is the service"}});
  std::optional<RemoteWatch> watch;
  if (settings.mode == ServiceMode::kFront) watch.emplace(service);
  queue.start();
  std::thread serving([&server] { server.serve(); });
  const int number = await_signal();
  log.write(LogLevel::kInfo, "service_stopping", {{"signal", number}, {"leaves_jobs", settings.leaves_jobs}});
  service.is_stopping = true;
  watch.reset();
  queue.stop();
  server.stop();
  serving.join();
  log.write(LogLevel::kInfo, "service_stopped");
  return kExitOk;
}

}  // namespace

int run_service_program(const std::vector<std::string>& words) {
  if (!words.empty() && words[0] == "jobs") return run_jobs_client({words.begin() + 1, words.end()});
  if (words.size() >= 2 && words[0] == "--slurm") return run_slurm_phase(words[1], {words.begin() + 2, words.end()});
  if (words.size() >= 2 && words[0] == "--plan-job") return plan_job({words.begin() + 1, words.end()});
  if (words.size() == 3 && words[0] == "--keep") return run_keeper(words[1], std::strtol(words[2].c_str(), nullptr, 10));
  // Before any thread begins: only the main thread waits for them.
  sigset_t blocked;
  sigemptyset(&blocked);
  for (const int number : {SIGINT, SIGTERM}) sigaddset(&blocked, number);
  ::pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::umask(077);
  Result<ServiceSettings> settings = read_service_settings(words);
  if (!settings.ok()) {
    const bool is_of_file = std::any_of(settings.diagnostics.begin(), settings.diagnostics.end(),
                                        [](const Diagnostic& one) { return one.location.line > 0; });
    return complain(settings.diagnostics, is_of_file ? kExitConfig : kExitWrongWords);
  }
  try {
    return serve(std::move(*settings));
  } catch (const std::exception& wrong) {
    return complain({error(code::kEnvironment, {}, wrong.what())}, kExitFailure);
  }
}

}  // namespace distsetup
