// Names that other releases of a tool take (templates/_other_releases.yaml).
#pragma once
#include <string>
#include <string_view>

namespace distsetup {

// "never": of a release that the tool works with, though its table has been read with another.
inline constexpr std::string_view kNeverGone = "never";

// The first release without the name; "" when no release is known to have had it. `table`: as in templates/_lint/names, or
// "torchtitan".
std::string gone_since(std::string_view table, std::string_view name);

// What a gone name is called since, with the values that it had; "" when nothing has its place, or only something else.
std::string renamed_to(std::string_view table, std::string_view name);

// What the tool calls that for which others have this name; "" when nobody is known to have it.
std::string meant_by(std::string_view table, std::string_view name);

}  // namespace distsetup
