#include "service/node_agent.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/subprocess.h"
#include "service/client/service_call.h"
#include "service/model_lookup.h"
#include "service/sibling_program.h"

namespace distsetup {
namespace {

constexpr double kAsk_s = 0.5, kLost_s = 60;  // a first node that is silent for so long has lost its jobs, and so have we

struct NodeJob {
  std::string key;  // "job_uuid attempt"
  pid_t pid = -1;
  double told_s = 0, kill_s = 0;  // 0: not told to stop
};

// "": no work.
std::string key_of(const Json& job) {
  return job.is_object() ? fmt::format("{} {}", job.value("job_uuid", ""), job.value("attempt", int64_t{0})) : "";
}

class NodeAgent {
 public:
  NodeAgent(const ServiceSettings& settings, EventLog& log) : settings_(settings), log_(log) {
    address_.host = settings.master_addr;
    address_.port = settings.port;
    if (!settings.tokens.empty()) address_.token = settings.tokens.front();
  }
  ~NodeAgent() {
    while (running_) {
      end();
      reap();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  NodeAgent(const NodeAgent&) = delete;
  NodeAgent& operator=(const NodeAgent&) = delete;

  void turn() {
    reap();
    const Result<ServiceReply> reply = ask_service(address_, "GET", fmt::format("/v1/nodes/{}", settings_.node_rank));
    const double now = now_s();
    if (!reply.ok() || !reply->is_good()) {
      if (is_reached_) log_.write(LogLevel::kWarning, "first_node_not_answering", {{"at", address_.url()}});
      is_reached_ = false;
      if (running_ && now - answered_s_ > kLost_s) end();
      return;
    }
    if (!is_reached_) log_.write(LogLevel::kInfo, "joined", {{"at", address_.url()}, {"node_rank", settings_.node_rank}});
    is_reached_ = true;
    answered_s_ = now;
    const Json job = reply->body.is_object() ? reply->body.value("job", Json()) : Json();
    if (running_ && running_->key != key_of(job)) end();
    if (!running_ && job.is_object() && key_of(job) != last_key_) begin(job);
  }

 private:
  void begin(const Json& job) {
    last_key_ = key_of(job);
    const std::optional<std::string> folder = path_below({settings_.data_folder}, job.value("folder", ""));
    std::error_code failure;
    if (!folder || !std::filesystem::exists(*folder + "/plan.json", failure)) {
      log_.write(LogLevel::kError, "job_not_seen",
                 {{"folder", job.value("folder", "")}, {"reason", "it is not below this node's --data: nodes share that folder"}});
      return;
    }
    Spawn what;
    what.words = {sibling_program(), "launch",
                  "--plan",          "plan.json",
                  "--node-rank",     std::to_string(settings_.node_rank),
                  "--master-addr",   settings_.master_addr,
                  "--master-port",   std::to_string(job.value("master_port", 0)),
                  "--grace",         fmt::format("{}", settings_.grace_s)};
    what.directory = *folder;
    what.errors = Spawn::Errors::kWithOutput;
    what.output_path = fmt::format("{}/node_{}.log", *folder, settings_.node_rank);
    what.leads_group = true;
    sigset_t none;
    sigemptyset(&none);
    what.signals = none;
    const Spawned started = spawn(what);
    if (started.failure != 0) {
      log_.write(LogLevel::kError, "ranks_not_started", {{"reason", errno_text(started.failure)}});
      return;
    }
    running_ = NodeJob{last_key_, started.pid, 0, 0};
    log_.write(LogLevel::kInfo, "ranks_started", {{"job", last_key_}, {"pid", started.pid}});
  }

  void end() {
    const double now = now_s();
    if (running_->told_s == 0) {
      ::kill(-running_->pid, SIGTERM);
      running_->told_s = now;
      running_->kill_s = now + settings_.grace_s;
    } else if (now > running_->kill_s) {
      ::kill(-running_->pid, SIGKILL);  // its ranks end with it
    }
  }

  void reap() {
    int status = 0;
    if (!running_ || ::waitpid(running_->pid, &status, WNOHANG) != running_->pid) return;
    log_.write(LogLevel::kInfo, "ranks_ended",
               {{"job", running_->key}, {"exit_code", WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status)}});
    running_.reset();
  }

  const ServiceSettings& settings_;
  EventLog& log_;
  ServiceAddress address_;
  std::optional<NodeJob> running_;
  std::string last_key_;  // an attempt is begun once
  bool is_reached_ = false;
  double answered_s_ = 0;
};

}  // namespace

void run_node_agent(const ServiceSettings& settings, EventLog& log, const std::atomic<bool>& is_stopping) {
  NodeAgent agent(settings, log);
  while (!is_stopping) {
    agent.turn();
    std::this_thread::sleep_for(std::chrono::duration<double>(kAsk_s));
  }
}

}  // namespace distsetup
