// `distsetup probe`: measures this host and writes it as a machine in the format of presets/machines, an input of `distsetup plan`
// (`hardware: {machine: PATH}`). The only command whose result depends on where and when it runs.
#pragma once
#include <string>

namespace distsetup {

struct ProbeOptions {
  std::string output_path;   // --output; empty: YAML to stdout
  bool json = false;         // --json: the same facts as JSON
  bool force = false;        // --force: replace an existing different file
  double budget_s = 6;       // --seconds: about how long all measurements together may take
  std::string trainer_path;  // --trainer-program; empty: distsetup-train beside this program, when there is one
};

// Exit codes: 0 done · 1 could not be written · 5 a measurement is impossible here (named).
int run_probe(const ProbeOptions& options);

}  // namespace distsetup
