// Partitions of a SLURM cluster, as sinfo lists them.
#pragma once
#include <string>
#include <vector>

#include "base/subprocess.h"

namespace distsetup {

// A row: a partition has one for each kind of node in it.
struct Partition {
  std::string name, gres, time_limit;  // "gpu", "gpu:h100:8(S:0-1),nvme:2", "2-00:00:00"
  bool is_default = false, is_up = false;
  int nodes = 0;
};

Said ask_sinfo(double limit_s);
std::vector<Partition> partitions_in(const std::string& sinfo_output);

struct GresGpus {
  int per_node = 0;
  std::string type;  // "h100"; "" = the cluster does not say
};
GresGpus gpus_in(const std::string& gres);

}  // namespace distsetup
