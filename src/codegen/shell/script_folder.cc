#include "codegen/shell/script_folder.h"

#include <algorithm>
#include <vector>

namespace distsetup::foreign {
namespace {

bool is_script_itself(std::string_view text) {
  return text == "$0" || text == "${0}" || text == "$BASH_SOURCE" || text == "${BASH_SOURCE}" || text == "${BASH_SOURCE[0]}" ||
         text == "${BASH_SOURCE[@]}" || text == "${BASH_SOURCE[*]}";
}

// The folder of a path that is the script, or begins with its folder.
std::optional<std::string> folder_of(const std::string& path) {
  if (is_script_itself(path)) return std::string(kScriptFolder);
  if (!path.starts_with(kScriptFolder)) return std::nullopt;
  const size_t slash = path.rfind('/');
  const bool is_climbing = slash == std::string::npos || slash < kScriptFolder.size() || path.substr(slash + 1) == "..";
  return is_climbing ? path + "/.." : path.substr(0, slash);
}

// The one word of a command beside its options; what is thrown away counts for nothing.
std::string only_argument(const ShellCommand& command, const std::function<std::string(const ShellWord&)>& expand) {
  std::vector<std::string> words;
  for (size_t i = 1; i < command.words.size(); ++i) {
    const std::string& text = command.words[i].text;
    if (!text.starts_with("-")) words.push_back(expand(command.words[i]));
  }
  return words.size() == 1 ? words[0] : "";
}

}  // namespace

std::optional<std::string> script_folder(std::string_view inside, const std::function<std::string(const ShellWord&)>& expand) {
  constexpr size_t kMostBytes = 400;
  const bool may_be =
      inside.size() <= kMostBytes && (inside.find("dirname") != inside.npos || inside.find("pwd") != inside.npos ||
                                      inside.find("readlink") != inside.npos || inside.find("realpath") != inside.npos);
  if (!may_be) return std::nullopt;
  const ShellScript script = parse_shell(inside, {0, inside.size()});
  std::vector<const ShellCommand*> commands;
  for (const ShellCommand& one : script.commands) {
    if (!one.in_substitution) commands.push_back(&one);
  }
  if (commands.empty() || commands.size() > 2 || commands[0]->words.empty()) return std::nullopt;
  const ShellCommand& first = *commands[0];
  const std::string& name = first.words[0].text;
  std::string path = only_argument(first, expand);
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const bool is_of_script = is_script_itself(path) || from_script_folder(path).has_value();
  if (!is_of_script) return std::nullopt;
  if (commands.size() == 2) {
    const ShellCommand& second = *commands[1];
    const bool is_pwd = name == "cd" && !second.words.empty() && second.words[0].text == "pwd" && !is_script_itself(path);
    return is_pwd ? std::optional(path) : std::nullopt;
  }
  if (name == "dirname") return folder_of(path);
  if (name == "readlink" || name == "realpath") return is_script_itself(path) ? "$0" : path;
  return std::nullopt;
}

bool is_script_folder(std::string_view inside) {
  return inside == "0%/*" || inside == "BASH_SOURCE%/*" || inside == "BASH_SOURCE[0]%/*";
}

std::optional<std::string_view> from_script_folder(std::string_view path) {
  if (!path.starts_with(kScriptFolder)) return std::nullopt;
  path.remove_prefix(kScriptFolder.size());
  if (!path.empty() && path[0] != '/') return std::nullopt;
  return path.empty() ? path : path.substr(1);
}

std::vector<std::string> changed_folders(const ShellScript& script) {
  constexpr size_t kMost = 8;
  std::vector<std::string> folders;
  std::string at;
  for (const ShellCommand& one : script.commands) {
    const bool changes = !one.is_dead && !one.in_substitution && one.expanded.size() > 1 &&
                         (one.expanded[0].text == "cd" || one.expanded[0].text == "pushd");
    const std::string to = changes ? one.expanded.back().text : "";
    if (to.empty() || to[0] == '-' || to == ".") continue;
    const bool is_anchored = to[0] == '/' || to[0] == '$' || to[0] == '~' || at.empty();
    at = is_anchored ? to : at + '/' + to;
    if (std::find(folders.begin(), folders.end(), at) == folders.end() && folders.size() < kMost) folders.push_back(at);
  }
  return folders;
}

}  // namespace distsetup::foreign
