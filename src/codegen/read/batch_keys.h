// What a PBS or LSF script and a hostfile say of a run, as keys: how many nodes, with how many GPUs, for how long. The tables
// templates/launchers/{pbs,lsf,hostfile}.yaml say what each key means.
#pragma once
#include <vector>

#include "codegen/read/document.h"
#include "codegen/read/found.h"

namespace distsetup {

// #PBS lines: "-l select=2:ngpus=4,walltime=1:00:00" is nodes, gpus_per_node and walltime; other letters under their own name.
std::vector<FoundKey> keys_of_pbs(const foreign::Document& document, const std::vector<foreign::Directive>& directives);
// #BSUB lines.
std::vector<FoundKey> keys_of_lsf(const foreign::Document& document, const std::vector<foreign::Directive>& directives);
// Lines "host slots=8".
std::vector<FoundKey> keys_of_hostfile(const foreign::Document& document);
// NAME=VALUE lines: "env.NAME".
std::vector<FoundKey> keys_of_environment(const foreign::Document& document);

}  // namespace distsetup
