// What somebody may have meant by a name of a preset that there is not: names of models have many words, of which one may be wrong.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace distsetup {

// Lower case; separators stay, as '_', only between digits: "Llama-3.1-8B" -> "llama3_1_8b", but "1.3B" is not "13B".
std::string normal_name(std::string_view name);

// "did you mean 'x'", "did you mean one of x, y", or "known: a, b and 9 more". `ids` name presets, `stated` are other names of theirs.
std::string suggest_preset(std::string_view name, const std::vector<std::string>& ids, const std::vector<std::string>& stated);

}  // namespace distsetup
