#include "codegen/shell/sourced.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

namespace distsetup::foreign {
namespace {

// "$(dirname "$0")/env.sh" is env.sh beside the script, or wherever those who have the files find it. "": a file of the machine.
std::string path_from_script(std::string_view path) {
  if (path.empty() || path[0] == '/' || path[0] == '~' || path.starts_with("$HOME") || path.starts_with("${HOME")) return "";
  const size_t open = path.find_last_of("$`*?{}()");
  if (open == std::string_view::npos) return std::string(path);
  const size_t slash = path.find('/', open);
  return slash == std::string_view::npos ? "" : std::string(path.substr(slash + 1));
}

}  // namespace

std::optional<std::string> SourcedFiles::read(const ShellCommand& command) {
  constexpr size_t kMostFiles = 16, kMostBytes = 500'000;
  if (!read_.read) return std::nullopt;
  const std::string path = sourced_path(command);
  if (path.empty() || num_files_ >= kMostFiles) return std::nullopt;
  std::optional<std::string> text = read_.read(path);
  if (!text) return std::nullopt;
  ++num_files_;
  num_bytes_ += text->size();
  return num_bytes_ <= kMostBytes ? std::move(text) : std::nullopt;
}

std::string sourced_path(const ShellCommand& command) {
  if (command.expanded.size() < 2) return "";
  const std::string& name = command.expanded[0].text;
  return name == "source" || name == "." ? path_from_script(command.expanded[1].text) : "";
}

bool is_export(const ShellCommand& command) {
  if (command.words.empty()) return false;
  const std::string& name = command.words[0].text;
  const bool has_x = command.words.size() > 1 && command.words[1].text.starts_with("-") && command.words[1].text.ends_with("x");
  return name == "export" || ((name == "declare" || name == "typeset") && has_x);
}

bool exports_all(const ShellCommand& command, bool before) {
  if (command.words.size() < 2 || command.words[0].text != "set") return before;
  const std::string& how = command.words[1].text;
  const bool is_named = command.words.size() > 2 && command.words[2].text == "allexport";
  if (how == "-a" || (how == "-o" && is_named)) return true;
  return before && how != "+a" && !(how == "+o" && is_named);
}

void add_exported(const ShellScript& sourced, bool all, const ShellVariables::Changes& changes, std::vector<OuterVariable>& out) {
  std::set<std::string> names;
  for (const ShellCommand& command : sourced.commands) {
    if (command.is_dead) continue;
    all = exports_all(command, all);
    if (!is_export(command) && !(all && command.words.empty())) continue;
    for (const ShellAssignment& one : command.assignments) names.insert(one.name);
    for (size_t i = 1; is_export(command) && i < command.words.size(); ++i) names.insert(command.words[i].text);
  }
  for (const OuterVariable& one : sourced.outer) names.insert(one.name);  // of files that this one sources
  for (const std::string& name : names) {
    const auto it = changes.find(name);
    if (it == changes.end()) continue;
    OuterVariable one;
    one.name = name;
    one.is_known = it->second.is_known && it->second.is_certain && !it->second.is_array;
    if (one.is_known) one.value = it->second.text;
    one.is_of_script = true;
    std::erase_if(out, [&name](const OuterVariable& before) { return before.name == name; });
    out.push_back(std::move(one));
  }
}

ShellValue without_places(ShellValue value) {
  for (ShellWord& word : value.words) {
    word.span = {};
    for (WordPart& part : word.parts) part.span = {};
  }
  return value;
}

ShellCommand placed_at(ShellCommand command, TextSpan call) {
  const auto place = [call](std::vector<ShellWord>& words) {
    for (ShellWord& word : words) {
      word.span = call;
      for (WordPart& part : word.parts) part.span = call;
    }
  };
  place(command.words);
  place(command.expanded);
  for (ShellAssignment& one : command.assignments) {
    one.span = one.value.span = call;
    place(one.array);
  }
  command.here.clear();
  command.redirections.clear();
  return command;
}

std::vector<size_t> commands_of(const ShellNode& node) {
  std::vector<size_t> out;
  if (node.kind == NodeKind::kCommand || node.has_header) out.push_back(node.command);
  for (const ShellNode& child : node.children) {
    const std::vector<size_t> inner = commands_of(child);
    out.insert(out.end(), inner.begin(), inner.end());
  }
  return out;
}

}  // namespace distsetup::foreign
