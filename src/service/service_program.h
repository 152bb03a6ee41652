// The program distsetup-service: reads its settings, opens the store, serves until SIGINT or SIGTERM. With --keep it is a keeper.
#pragma once
#include <string>
#include <vector>

namespace distsetup {

// Exit codes as everywhere: 0 done, 2 wrong words, 3 configuration invalid, 5 port or data folder cannot be used.
int run_service_program(const std::vector<std::string>& words);

}  // namespace distsetup
