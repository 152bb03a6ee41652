// The folder that a script is in, in the words that scripts have for it: $(cd "$(dirname "$0")/.." && pwd).
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/shell/shell.h"

namespace distsetup::foreign {

// What stands for the folder in expanded words: nobody knows where it is but who has the file.
inline constexpr std::string_view kScriptFolder = "${0%/*}";

// The folder, or what is beside or above it ("${0%/*}/.."), that `inside` of $( ) prints; of a command that only names the script
// ("readlink -f "$0"") "$0". `expand` is what a word becomes.
std::optional<std::string> script_folder(std::string_view inside, const std::function<std::string(const ShellWord&)>& expand);

// Of what stands inside ${ }: "0%/*", "BASH_SOURCE[0]%/*".
bool is_script_folder(std::string_view inside);

// "../configs/ds.json" of "${0%/*}/../configs/ds.json".
std::optional<std::string_view> from_script_folder(std::string_view path);

// The folders that a script changes to (cd runs/llama, pushd "$ROOT"), as it names them, each once.
std::vector<std::string> changed_folders(const ShellScript& script);

}  // namespace distsetup::foreign
