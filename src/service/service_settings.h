// What the service is told by its command line and its configuration file. Settings of training stay in that file: `distsetup plan
// --from` reads them for every job, by the tables of templates/llama-stack-provider.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "service/event_log.h"

namespace distsetup {

enum class ServiceMode { kInline, kRemote, kFront };
// Who starts the ranks of a job. kNodes: this machine has node 0, agents on others have the rest.
enum class LauncherKind { kLocal, kNodes, kSsh, kSlurm };

struct ServiceLimits {
  int64_t body_bytes = int64_t{64} << 20;
  int64_t rows = 1000000;      // of one data set
  int64_t queued_jobs = 1000;  // that wait or run
  int64_t datasets = 10000;
  double requests_per_s = 0;  // of one client; 0: none on the loopback address, 100 on others
};

struct ServiceSettings {
  ServiceMode mode = ServiceMode::kRemote;
  std::string host = "localhost";
  int port = 8322;  // front, inline: 8321; 0: any free one, which the log names
  LogLevel log_level = LogLevel::kInfo;
  std::string data_folder;               // absolute
  std::string config_path;               // absolute; "": none
  std::string config_text;               // as it was when the service started
  std::vector<std::string> model_roots;  // absolute folders of models: ROOT/NAME/config.json
  std::vector<std::string> file_roots;   // absolute folders that data sets may be registered from
  std::vector<std::string> tokens;
  bool may_start_from_random = false;  // models without weights are trained from random parameters
  bool leaves_jobs = false;            // jobs go on when the service is stopped by a signal
  std::string device = "cuda";         // "cuda", "cpu"
  std::string gpu;                     // what is planned for; "": what this machine has
  std::vector<std::string> devices;    // GPUs that jobs may have, as CUDA_VISIBLE_DEVICES names them
  int64_t nodes = 1, ranks_per_node = 1;
  int64_t node_rank = 0;
  std::string master_addr = "localhost";
  int master_port = 29500;
  int64_t max_restarts = 0;
  int64_t max_concurrent_jobs = 1;
  double request_timeout_s = 3600;      // of a request that a front passes on; of one plan, where that is less
  double health_check_interval_s = 30;  // of a front
  bool is_health_interval_given = false;
  double grace_s = 30;        // between SIGTERM and SIGKILL
  double retry_delay_s = 5;   // doubles with every retry
  double keep_jobs_days = 0;  // finished jobs are deleted after so long; 0: never
  LauncherKind launcher = LauncherKind::kLocal;
  std::vector<std::string> ssh_hosts;
  std::vector<std::string> slurm_flags;            // of `distsetup launch --target slurm`
  std::string base_url = "http://localhost:8322";  // kFront: where jobs go
  int64_t front_retries = 3;
  double front_retry_delay_s = 5, connect_timeout_s = 30;
  ServiceLimits limits;
  int64_t world() const { return nodes * ranks_per_node; }
  bool is_loopback() const;
};

// `words`: as `distsetup serve` passes them on, "--name=value". Reads the configuration file and the tokens.
Result<ServiceSettings> read_service_settings(const std::vector<std::string>& words);

}  // namespace distsetup
