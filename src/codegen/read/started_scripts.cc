#include "codegen/read/started_scripts.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "codegen/shell/directives.h"
#include "codegen/shell/job_variables.h"
#include "codegen/shell/script_folder.h"
#include "codegen/shell/sourced.h"

namespace distsetup::foreign {
namespace {

bool is_unknown_text(std::string_view text) { return text.find_first_of("$`*?") != std::string_view::npos; }

void put(std::vector<OuterVariable>& out, std::string name, std::string value) {
  OuterVariable one;
  one.name = std::move(name);
  one.is_known = !is_unknown_text(value);
  one.value = one.is_known ? std::move(value) : "";
  one.is_of_script = true;
  out.push_back(std::move(one));
}

// What the script hands to every program that it starts, or (`are_all`) has itself: of a variable that it sets in several ways only
// that it is set.
std::vector<OuterVariable> variables_of(const ShellScript& script, bool are_all) {
  std::map<std::string, bool> is_exported;
  bool takes_all = false;
  for (const ShellCommand& command : script.commands) {
    if (command.is_dead) continue;
    takes_all = exports_all(command, takes_all);
    if (!is_export(command) && !takes_all) continue;
    for (const ShellAssignment& one : command.assignments) is_exported[one.name] = true;
    for (size_t i = 1; is_export(command) && i < command.words.size(); ++i) is_exported[command.words[i].text] = true;
  }
  std::vector<OuterVariable> out;
  for (const OuterVariable& one : script.outer) {
    if (!is_argument(one.name)) out.push_back(one);
  }
  std::map<std::string, std::string> values;
  for (const ShellCommand& command : script.commands) {
    const bool is_its_own = command.words.empty() || is_export(command);  // not in front of a program
    for (const ShellAssignment& one : command.assignments) {
      if (command.is_dead || !is_its_own || (!are_all && is_exported.count(one.name) == 0)) continue;
      const std::string value = one.is_array || one.appends ? "$" : one.known;
      const auto [it, is_new] = values.emplace(one.name, value);
      if (!is_new && it->second != value) it->second = "$";
    }
  }
  for (const auto& [name, value] : values) {
    std::erase_if(out, [&wanted = name](const OuterVariable& one) { return one.name == wanted; });
    put(out, name, value);
  }
  return out;
}

// "1", "2", …, "#" and "@"; of a list whose length is not known nothing, but that it is given.
void add_arguments(const std::vector<ShellWord>& words, size_t first, std::vector<OuterVariable>& out) {
  OuterVariable all;
  all.name = "@";
  all.is_of_script = true;
  size_t n = 0;
  bool is_counted = true, are_known = true;
  constexpr size_t kMost = 2000;  // Megatron-LM's lines have two hundred
  for (size_t i = first; i < words.size() && is_counted; ++i) {
    const std::string& text = words[i].text;
    is_counted = n < kMost && text.find("$@") == std::string::npos && text.find("$*") == std::string::npos &&
                 text.find("[@]") == std::string::npos;
    if (!is_counted) break;
    put(out, std::to_string(++n), text);
    are_known = are_known && out.back().is_known;
    all.words.push_back(text);
    all.value += (n == 1 ? "" : " ") + text;
  }
  all.is_known = is_counted;  // a word with a part that nobody knows is one word all the same
  OuterVariable star = all;
  star.name = "*";
  star.is_known = is_counted && are_known;
  put(out, "#", is_counted ? std::to_string(n) : "$");
  out.push_back(std::move(all));
  out.push_back(std::move(star));
}

constexpr std::array<std::string_view, 7> kJobEndings = {".sh", ".bash", ".sbatch", ".slurm", ".job", ".batch", ".sub"};

std::string_view base_of(std::string_view word) { return word.substr(word.rfind('/') + 1); }

// "$ROOT/scripts/run.sh" is one as well: whoever has the files knows where it is.
bool is_script(std::string_view word) {
  return word.ends_with(".sh") && base_of(word).find_first_of("$`*?") == std::string_view::npos;
}

// Where the script's name stands in a command that starts one by itself (bash run.sh, ./run.sh).
std::optional<size_t> script_of(const std::vector<ShellWord>& words) {
  size_t i = 0;
  while (i < words.size() && (words[i].text == "exec" || words[i].text == "time" || words[i].text == "nohup")) ++i;
  // ssh host bash run.sh, pdsh -w hosts bash run.sh: behind the host, whose options are not known one by one.
  if (i < words.size() && (base_of(words[i].text) == "ssh" || base_of(words[i].text) == "pdsh")) {
    const auto shell = std::find_if(words.begin() + static_cast<std::ptrdiff_t>(i), words.end(), [](const ShellWord& word) {
      return base_of(word.text) == "bash" || base_of(word.text) == "sh" || is_script(word.text);
    });
    i = static_cast<size_t>(shell - words.begin());
  }
  // rjob submit --gpu=8 -- bash run.sh: a command of a site hands on what stands behind its own options.
  const auto end = std::find_if(words.begin(), words.end(), [](const ShellWord& word) { return word.text == "--"; });
  const size_t behind = static_cast<size_t>(end - words.begin()) + 1;
  const bool is_handed_on = behind + 1 < words.size() && i + 1 < behind && !is_script(words[i].text) &&
                            (base_of(words[behind].text) == "bash" || base_of(words[behind].text) == "sh");
  if (is_handed_on && base_of(words[i].text) != "bash" && base_of(words[i].text) != "sh") i = behind;
  if (i < words.size() && (base_of(words[i].text) == "bash" || base_of(words[i].text) == "sh")) {
    ++i;
    while (i < words.size() && words[i].text.size() > 1 && words[i].text[0] == '-' && words[i].text.find('c') == std::string::npos)
      ++i;
  }
  const bool is_one = i < words.size() && is_script(words[i].text);
  return is_one ? std::optional<size_t>(i) : std::nullopt;
}

// sbatch --nodes=4 job.sh: the first word that is no option; the value of one that stands apart (-N 4) is no script.
std::optional<size_t> script_of_sbatch(const std::vector<ShellWord>& words) {
  if (words.empty() || base_of(words[0].text) != "sbatch") return std::nullopt;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i].text;
    if (word.starts_with('-')) continue;
    const std::string_view name = base_of(word);
    const bool is_named = std::any_of(kJobEndings.begin(), kJobEndings.end(), [name](auto end) { return name.ends_with(end); });
    if (is_named && name.find_first_of("$`*?") == std::string_view::npos) return i;
    const bool may_be_value = words[i - 1].text.starts_with('-') && words[i - 1].text.find('=') == std::string::npos;
    if (!may_be_value) return std::nullopt;
  }
  return std::nullopt;
}

// sbatch --export=ALL,LR=1e-5: variables of the job.
void add_variables_of_job(const std::string& options, std::vector<OuterVariable>& out) {
  constexpr std::string_view kExport = "--export=";
  const size_t begin = options.find(kExport);
  if (begin == std::string::npos) return;
  const std::string list = options.substr(begin + kExport.size(), options.find(' ', begin) - begin - kExport.size());
  for (size_t at = 0; at < list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    const std::string one = list.substr(at, comma - at);
    const size_t equals = one.find('=');
    at = comma + 1;
    if (equals == std::string::npos || equals == 0) continue;
    std::erase_if(out, [&](const OuterVariable& before) { return before.name == one.substr(0, equals); });
    put(out, one.substr(0, equals), one.substr(equals + 1));
  }
}

// Of a launcher's line.
std::optional<size_t> script_of(const LaunchLine& line, const std::vector<ShellWord>& words) {
  const LaunchStage& last = line.stages.back();
  if (last.program != LaunchProgram::kScript || !is_script(last.name)) return std::nullopt;
  const auto name = std::find_if(words.begin(), words.end(), [&last](const ShellWord& word) { return word.text == last.name; });
  if (name == words.end()) return std::nullopt;
  return static_cast<size_t>(name - words.begin());
}

// numa.sh python train.py: what it is given is what it starts.
bool is_given_program(const std::vector<ShellWord>& words, size_t script) {
  return std::any_of(words.begin() + static_cast<std::ptrdiff_t>(script) + 1, words.end(), [](const ShellWord& word) {
    const std::string_view base = base_of(word.text);
    return base.starts_with("python") || base == "torchrun" || base == "accelerate" || base == "deepspeed";
  });
}

// What both give, known where they give the same.
void keep_common(std::vector<OuterVariable>& known, const std::vector<OuterVariable>& other) {
  for (OuterVariable& one : known) {
    const auto same = std::find_if(other.begin(), other.end(), [&one](const OuterVariable& x) { return x.name == one.name; });
    one.is_known = one.is_known && same != other.end() && same->is_known && same->value == one.value;
  }
  for (const OuterVariable& one : other) {
    const bool is_there = std::any_of(known.begin(), known.end(), [&one](const OuterVariable& x) { return x.name == one.name; });
    if (is_there) continue;
    known.push_back(one);
    known.back().is_known = false;
  }
}

}  // namespace

bool starts_script_inside(const ShellScript& script, const LaunchLine& line) {
  const ShellCommand& outer = script.commands[line.command];
  if (outer.words.empty()) return false;
  const TextSpan last = outer.words.back().span;
  return std::any_of(script.commands.begin(), script.commands.end(), [&](const ShellCommand& inner) {
    const bool is_inside = inner.depth > outer.depth && !inner.in_substitution && !inner.is_dead && !inner.words.empty() &&
                           inner.words[0].span.begin >= last.begin && inner.words[0].span.end <= last.end;
    return is_inside && script_of(inner.expanded).has_value();
  });
}

std::vector<StartedScript> started_scripts(const Document& d) {
  constexpr size_t kMost = 16;
  std::vector<StartedScript> out;
  for (const ScriptPart& part : d.parts) {
    std::vector<OuterVariable> variables;  // once there is a script to be given them
    for (size_t i = 0; i < part.script.commands.size(); ++i) {
      const ShellCommand& command = part.script.commands[i];
      if (command.is_dead || command.expanded.empty() || command.in_substitution) continue;
      const auto line = std::find_if(part.lines.begin(), part.lines.end(), [i](const LaunchLine& one) { return one.command == i; });
      const bool has_launcher = line != part.lines.end() && line->stages.front().program != LaunchProgram::kScript;
      const std::optional<size_t> job = script_of_sbatch(command.expanded);
      const std::optional<size_t> script = job ? job : has_launcher ? script_of(*line, command.expanded) : script_of(command.expanded);
      if (!script || is_given_program(command.expanded, *script)) continue;
      StartedScript one;
      one.path = command.expanded[*script].text;
      one.at = command.expanded[*script].span;
      one.is_of_launcher = has_launcher;
      if (variables.empty()) variables = variables_of(part.script, false);
      one.given = variables;
      for (const ShellAssignment& own : command.assignments) {
        std::erase_if(one.given, [&own](const OuterVariable& before) { return before.name == own.name; });
        put(one.given, own.name, own.known);
      }
      one.is_submitted = job.has_value();
      if (job) one.directives = options_of_sbatch(command, *job);
      add_variables_of_job(one.directives, one.given);
      add_arguments(command.expanded, *script + 1, one.given);
      const auto known = std::find_if(out.begin(), out.end(), [&one](const StartedScript& x) { return x.path == one.path; });
      if (known != out.end()) {
        keep_common(known->given, one.given);
        known->is_of_launcher = known->is_of_launcher || one.is_of_launcher;
        if (known->directives != one.directives) known->directives.clear();
      } else if (out.size() < kMost) {
        out.push_back(std::move(one));
      }
    }
  }
  return out;
}

std::vector<std::string> possible_paths(const Document& d, const std::string& path) {
  std::vector<std::string> paths = {path};
  const bool is_anchored = path.empty() || path[0] == '/' || path[0] == '$' || path[0] == '~';
  if (is_anchored) return paths;
  for (const ScriptPart& part : d.parts) {
    for (std::string& folder : changed_folders(part.script)) {
      folder += '/' + path;
      if (std::find(paths.begin(), paths.end(), folder) == paths.end()) paths.push_back(std::move(folder));
    }
  }
  return paths;
}

std::vector<StartedScript> sourced_scripts(const Document& d) {
  std::vector<StartedScript> out;
  for (const ScriptPart& part : d.parts) {
    for (const ShellCommand& command : part.script.commands) {
      const std::string path = command.is_dead || command.depth > 0 || command.in_substitution ? "" : sourced_path(command);
      if (path.empty() || std::any_of(out.begin(), out.end(), [&path](const StartedScript& one) { return one.path == path; }))
        continue;
      StartedScript one;
      one.path = path;
      one.at = command.expanded[1].span;
      one.given = variables_of(part.script, true);
      out.push_back(std::move(one));
    }
  }
  return out;
}

}  // namespace distsetup::foreign
