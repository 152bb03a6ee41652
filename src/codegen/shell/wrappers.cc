#include "codegen/shell/wrappers.h"

#include <algorithm>
#include <array>

namespace distsetup::foreign {
namespace {

std::string_view program_of(const ShellWord& word) { return std::string_view(word.text).substr(word.text.rfind('/') + 1); }

}  // namespace

bool starts_rest_of_line(std::string_view word) {
  static constexpr std::array<std::string_view, 22> kWrappers = {
      "exec",   "time",   "nohup", "env",    "numactl", "nice", "stdbuf", "timeout", "apptainer", "singularity", "shifter",
      "podman", "docker", "uv",    "poetry", "pixi",    "bash", "sh",     "eval",    "conda",     "mamba",       "micromamba"};
  return std::find(kWrappers.begin(), kWrappers.end(), word.substr(word.rfind('/') + 1)) != kWrappers.end();
}

bool handles_files(const std::vector<ShellWord>& words) {
  static constexpr std::array<std::string_view, 30> kTools = {
      "find", "ls",  "cp", "mv",   "rm", "ln", "cat", "head", "tail",  "grep",  "mkdir", "touch", "chmod", "du",   "stat",
      "wc",   "tar", "cd", "test", "[",  "[[", "sed", "awk",  "rsync", "which", "git",   "pip",   "type",  "echo", "printf"};
  if (words.empty()) return false;
  if (words[0].text == "command") return words.size() > 1 && words[1].text.starts_with('-');  // command -v torchrun
  return std::find(kTools.begin(), kTools.end(), program_of(words[0])) != kTools.end();
}

bool is_value_of_uv(const std::vector<ShellWord>& words, size_t at) {
  static constexpr std::array<std::string_view, 15> kTaking = {
      "--with",  "--with-editable", "--with-requirements", "--extra",    "--no-extra",
      "--group", "--no-group",      "--only-group",        "--package",  "--python",
      "-p",      "--project",       "--directory",         "--env-file", "--from"};
  const auto is_uv = [](const ShellWord& word) { return program_of(word) == "uv" || program_of(word) == "uvx"; };
  return at > 0 && std::find(kTaking.begin(), kTaking.end(), words[at - 1].text) != kTaking.end() &&
         std::any_of(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(at), is_uv);
}

bool is_module_of_uv(const std::vector<ShellWord>& words, size_t at) {
  if (at < 3 || (words[at - 1].text != "-m" && words[at - 1].text != "--module")) return false;
  const auto end = words.begin() + static_cast<std::ptrdiff_t>(at) - 1;
  const auto run = std::find_if(words.begin(), end, [](const ShellWord& word) { return word.text == "run"; });
  if (run == end || run == words.begin() || program_of(*(run - 1)) != "uv") return false;
  // Of a program that stands in between the option is that one's: uv run coverage run -m pytest.
  for (auto it = run + 1; it != end; ++it) {
    const bool is_of_uv =
        it->text.starts_with('-') || it->text.starts_with('$') || is_value_of_uv(words, static_cast<size_t>(it - words.begin()));
    if (!is_of_uv) return false;
  }
  return true;
}

bool hands_on_program(const std::vector<ShellWord>& words, size_t at) {
  if (words[at].text != "--" || at + 2 >= words.size()) return false;
  const std::string_view next = program_of(words[at + 1]);
  static constexpr std::array<std::string_view, 6> kLaunchers = {"torchrun", "deepspeed", "srun", "mpirun", "mpiexec", "python"};
  return next == "python3" || (next == "accelerate" && words[at + 2].text == "launch") ||
         std::find(kLaunchers.begin(), kLaunchers.end(), next) != kLaunchers.end();
}

}  // namespace distsetup::foreign
