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
#include "service/job_folder.h"
#include "service/node_book.h"
#include "service/sibling_program.h"

namespace distsetup {
namespace {

constexpr double kAsk_s = 0.5, kLost_s = 60;  // a first node that is silent for so long has lost its jobs, and so have we
constexpr double kRefused_s = 60;             // a folder of the network may show a new file so late

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

  // False: the first node has refused this one for so long that it will not take it.
  bool turn() {
    reap();
    const Result<std::string> word = read_file(settings_.data_folder + "/" + kNodeWordFile);
    const Result<ServiceReply> reply = ask_service(
        address_, "GET", fmt::format("/v1/nodes/{}?word={}", settings_.node_rank, url_part(word.ok() ? word->substr(0, 64) : "")));
    const double now = now_s();
    if (reply.ok() && reply->status == 409) return is_refused(*reply, now);
    refused_since_s_ = 0;
    if (!reply.ok() || !reply->is_good()) {
      if (is_reached_) log_.write(LogLevel::kWarning, "first_node_not_answering", {{"at", address_.url()}});
      is_reached_ = false;
      if (running_ && now - answered_s_ > kLost_s) end();
      return true;
    }
    if (!is_reached_) log_.write(LogLevel::kInfo, "joined", {{"at", address_.url()}, {"node_rank", settings_.node_rank}});
    is_reached_ = true;
    answered_s_ = now;
    const Json job = reply->body.is_object() ? reply->body.value("job", Json()) : Json();
    if (running_ && running_->key != key_of(job)) end();
    if (!running_ && job.is_object() && key_of(job) != last_key_) begin(job);
    return true;
  }

 private:
  bool is_refused(const ServiceReply& reply, double now) {
    if (refused_since_s_ == 0) {
      refused_since_s_ = now;
      const std::string why = reply.body.is_object() ? reply.body.value("detail", "") : "";
      log_.write(LogLevel::kError, "not_taken", {{"at", address_.url()}, {"data", settings_.data_folder}, {"reason", why}});
      fmt::print(stderr, "error: {} does not take this node: {}; its --data is '{}'\n", address_.url(), why, settings_.data_folder);
    }
    if (running_) end();
    return now - refused_since_s_ < kRefused_s;
  }

  void begin(const Json& job) {
    last_key_ = key_of(job);
    const std::string id = job.value("job_uuid", ""), folder = JobFolder(settings_.data_folder, id).path();
    std::error_code failure;
    if (!is_valid_id(id) || !std::filesystem::exists(folder + "/plan.json", failure)) {
      log_.write(LogLevel::kError, "job_not_seen", {{"folder", folder}, {"reason", "there is no plan.json in it"}});
      return;
    }
    Spawn what;
    what.words = {sibling_program(), "launch",
                  "--plan",          "plan.json",
                  "--node-rank",     std::to_string(settings_.node_rank),
                  "--master-addr",   settings_.master_addr,
                  "--master-port",   std::to_string(job.value("master_port", 0)),
                  "--grace",         fmt::format("{}", settings_.grace_s)};
    what.directory = folder;
    what.errors = Spawn::Errors::kWithOutput;
    what.output_path = fmt::format("{}/node_{}.log", folder, settings_.node_rank);
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
  double answered_s_ = 0, refused_since_s_ = 0;  // 0: never, not refused
};

}  // namespace

bool run_node_agent(const ServiceSettings& settings, EventLog& log, const std::atomic<bool>& is_stopping) {
  NodeAgent agent(settings, log);
  while (!is_stopping) {
    if (!agent.turn()) return false;
    std::this_thread::sleep_for(std::chrono::duration<double>(kAsk_s));
  }
  return true;
}

}  // namespace distsetup
