// A keeper: the process that runs one attempt of a job, in a session of its own, and writes down how it ended. It needs no server.
// `distsetup-service --keep FOLDER ATTEMPT` reads attempt_N/commands.json:
//   {"grace_s": 30, "variables": {…}, "phases": [{"name": "data", "words": [[…], …], "makes": ["set.new", "set"], "stop": […]}]}
// A phase runs its commands at once and ends when all have; what it makes is renamed then, and a phase whose result is there is not
// run again. SIGTERM stops the phase: its processes get SIGTERM, after the grace everything in the session is killed.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "base/json_fwd.h"

namespace distsetup {

struct KeeperPhase {
  std::string name;
  std::vector<std::vector<std::string>> commands;  // at once
  std::string made_as, made;  // a path that the phase makes, relative to the job's folder; "": none. `made_as`: under which name first
  std::vector<std::string> stop_command;  // run first when it is stopped: scancel
};

struct KeeperOrders {
  double grace_s = 30;
  std::vector<std::pair<std::string, std::string>> variables;
  std::vector<KeeperPhase> phases;
  Json json() const;
  static KeeperOrders from(const Json& json);
};

// The process of --keep. Exit code 0: result.json was written.
int run_keeper(const std::string& job_folder, long attempt);

}  // namespace distsetup
