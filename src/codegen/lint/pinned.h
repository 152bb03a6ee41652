// Which release of a package comes with a tool (templates/_pins.yaml). Internal to lint.
#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace distsetup::lint {

// `release_of` says which release of a tool is used, "" = not known. "" = no tool that is used in a known release pins the package.
std::string pinned_version(std::string_view package, const std::function<std::string(const std::string&)>& release_of);

}  // namespace distsetup::lint
