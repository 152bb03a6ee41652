// Fields: %P partition (the default one has a '*'), %D nodes, %G generic
// resources, %l time limit, %a up or down.
#include "cli/launch/sinfo.h"

#include <cstdlib>

#include "base/text.h"

namespace distsetup {

Said ask_sinfo(double limit_s) { return run_program({"sinfo", "--noheader", "--format=%P|%D|%G|%l|%a"}, limit_s); }

std::vector<Partition> partitions_in(const std::string& sinfo_output) {
  std::vector<Partition> partitions;
  for (const std::string& line : split(sinfo_output, '\n')) {
    const std::vector<std::string> cells = split(line, '|');
    if (cells.size() != 5) continue;
    Partition one;
    one.name = cells[0];
    one.is_default = !one.name.empty() && one.name.back() == '*';
    if (one.is_default) one.name.pop_back();
    one.nodes = std::atoi(cells[1].c_str());
    one.gres = cells[2];
    one.time_limit = cells[3];
    one.is_up = cells[4] == "up";
    partitions.push_back(std::move(one));
  }
  return partitions;
}

GresGpus gpus_in(const std::string& gres) {
  GresGpus gpus;
  for (const std::string& one : split(gres, ',')) {
    const std::vector<std::string> parts = split(one.substr(0, one.find('(')), ':');
    if (parts[0] != "gpu" || parts.size() < 2) continue;
    gpus.per_node += std::atoi(parts.back().c_str());
    if (gpus.type.empty() && parts.size() == 3) gpus.type = parts[1];
  }
  return gpus;
}

}  // namespace distsetup
