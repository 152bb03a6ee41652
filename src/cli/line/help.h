// Help, from the flag table and the planner's key table.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/line/flags.h"
#include "planner/spec/spec_table.h"

namespace distsetup {

std::string short_help();                                                  // no arguments: ten lines
std::string long_help(const TextStream& stream);                           // --help: every command
std::string group_help(std::string_view group, const TextStream& stream);  // "data": the commands that begin with it; "" = none does
std::string command_help(const Command& command, const TextStream& stream);
std::string keys_help(const TextStream& stream);  // every key of the run file
std::string key_help(const SpecKey& key);         // one
std::string exit_codes_help();
const std::vector<std::pair<int, std::string>>& exit_code_meanings();
std::string key_placeholder(const SpecKey& key);  // "N", "NAME"; "" of a switch

}  // namespace distsetup
