// `distsetup launch`: the only process spawner. Starts distsetup-train once per rank of this node with torchrun's environment contract
// (RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT), prefixes every output line with its rank,
// names the first failure, stops the others, forwards signals and keeps the exit code.
#pragma once
#include <string>
#include <vector>

namespace distsetup {

struct LaunchOptions {
  std::string plan_path;     // --plan
  int node_rank = 0;         // --node-rank
  std::string master_addr;   // --master-addr; empty: 127.0.0.1 on one node, refused on several
  int master_port = 0;       // --master-port; 0: a free one is picked and held on one node, refused on several
  std::string output_dir;    // --output; empty: the trainer's default (plan.json's directory)
  std::string trainer_path;  // --trainer-program; empty: distsetup-train beside this program
  double grace_s = 10;       // --grace: between SIGTERM and SIGKILL for the ranks left after a failure or a second signal
  std::vector<std::string>
      trainer_arguments;  // passed on as they are: --dry-run, --stop-after N, --poison, --trace F, --profile A:B, --threads N
};

// Blocks until every rank has ended. Ranks' stdout goes to our stdout, their stderr to our stderr, whole lines, "[rank 0] " before
// each. Exit codes: 0 done · 1 spawning failed · 2 options contradict the plan · 3 plan unreadable or corrupt · 4 verdict does_not_fit
// · 5 no distsetup-train, port in use · 6 a rank failed (a rank's own 3 and 5 are kept) · 130 interrupted.
int run_launch(const LaunchOptions& options);

}  // namespace distsetup
