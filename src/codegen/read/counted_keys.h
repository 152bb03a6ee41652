// Nodes and GPUs as the options of a launcher say them, under the names that its table has for them. Internal to the reader of
// scripts.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "codegen/read/document.h"
#include "codegen/read/found.h"

namespace distsetup {

// Of mpiexec. `gpus_of_node`: what the job's own lines say, 0 = nothing.
void count_launchers(const foreign::ScriptPart& part, const foreign::LaunchLine& line, long long gpus_of_node,
                     std::vector<FoundKey>& keys);
long long count_of(const std::vector<FoundKey>& keys, std::string_view key);  // 0: no such key, or no number
// "dcu:4" -> "gpu:4"; any other request as it is.
std::string as_gpus(const std::string& gres);
void count_gpus_of_step(std::vector<FoundKey>& keys);  // of srun
void count_nodes_of_step(std::vector<FoundKey>& keys);
// for node in …; do srun -N 1 -w $node torchrun --nnodes=$SLURM_NNODES: steps of one node each, and the launcher counts the nodes.
bool is_step_of_one_node(const foreign::LaunchLine& line);
void count_included(std::vector<FoundKey>& keys);  // of deepspeed
// Of accelerate launch: --num_processes=$((8 * N)) beside --num_machines=$N are 8 of each machine, however many there will be.
void count_processes_of_machine(const foreign::ShellScript& script, std::vector<FoundKey>& keys);
// Of jsrun, whose -n counts resource sets. `nodes`: of the job; 0: nobody says.
void count_resource_sets(std::vector<FoundKey>& keys, long long nodes);
bool is_of_actor(std::string_view key);
bool is_count_of_step(const FoundKey& key);  // of srun: nodes and tasks

}  // namespace distsetup
