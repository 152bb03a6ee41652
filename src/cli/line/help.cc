// Help leads with examples, then the command's own flags, then the keys of the run grouped as in the run file.
#include "cli/line/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/commands/commands.h"
#include "planner/report/text_layout.h"
#include "planner/spec/spec_lookup.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

constexpr size_t kHelpColumn = 30;   // where the explanation of a flag begins
constexpr int kWidestColumns = 110;  // longer lines are hard to read

// As one text: `indent` spaces in front of every line but the first.
std::string wrapped(std::string_view text, size_t indent, size_t width) {
  const size_t room = std::max<size_t>(width > indent ? width - indent : 0, 20);
  return fmt::format("{}", fmt::join(wrap(text, static_cast<int>(room)), "\n" + std::string(indent, ' ')));
}

std::string flag_line(const std::string& left, const std::string& text, const TextStream& stream) {
  const size_t width = static_cast<size_t>(std::min(stream.width_columns, kWidestColumns));
  std::string line = "  " + left;
  line += line.size() + 2 <= kHelpColumn ? std::string(kHelpColumn - line.size(), ' ') : "\n" + std::string(kHelpColumn, ' ');
  return line + wrapped(text, kHelpColumn, width) + "\n";
}

std::string heading(std::string_view text, const TextStream& stream) {
  return stream.colour == Colour::kOn ? fmt::format("\033[1m{}\033[0m", text) : std::string(text);
}

std::string choices_text(const SpecKey& key) {
  std::string text;
  for (const SettingChoice& choice : key.choices) {
    if (choice.refused.empty())
      text += (text.empty() ? "" : "|") + std::string(choice.value == "every_k" ? "every_k:K" : choice.value);
  }
  return text;
}

}  // namespace

std::string key_placeholder(const SpecKey& key) {
  switch (key.type) {
    case SettingType::kBool: return "";
    case SettingType::kInt: return "N";
    case SettingType::kDouble: return "X";
    case SettingType::kShare: return "X%";
    case SettingType::kBytes: return "SIZE";
    case SettingType::kDuration: return "TIME";
    case SettingType::kText: return "NAME";
    case SettingType::kEnum: return "WHICH";
    case SettingType::kList:
    case SettingType::kSources: return "A,B";
  }
  return "VALUE";
}

namespace {

std::string run_flag_line(const SpecKey& key, const TextStream& stream) {
  const std::string value = key_placeholder(key);
  const std::string left = fmt::format("--{}{}{}", key.flags.front().name, value.empty() ? "" : " ", value);
  const std::string choices = choices_text(key);
  std::string text(key.help);
  if (!choices.empty()) text += fmt::format(": {}", choices);
  if (!key.fallback.empty()) text += fmt::format(" ({})", key.fallback);
  return flag_line(left, text, stream);
}

std::string own_flags(const std::vector<Flag>& flags, const TextStream& stream) {
  std::string text;
  for (const Flag& flag : flags) {
    const std::string letter = flag.letter != 0 ? fmt::format("-{}, ", flag.letter) : "";
    const std::string value = flag.kind == FlagKind::kSwitch ? "" : " " + flag.placeholder;
    text += flag_line(letter + "--" + flag.name + value, flag.help, stream);
  }
  return text;
}

std::string section_of(const SpecKey& key) { return std::string(key.path.substr(0, key.path.find('.'))); }

std::string run_flags(const Command& command, const TextStream& stream) {
  std::string text, section;
  for (const SpecKey& key : spec_keys()) {
    const FlagMatch match = find_flag(command, key.flags.front().name);
    if (match.key != &key) continue;
    if (section_of(key) != section) {
      section = section_of(key);
      text += fmt::format("\n{}\n", heading("The run: " + section, stream));
    }
    text += run_flag_line(key, stream);
  }
  return text;
}

}  // namespace

std::string short_help() {
  return "distsetup: from a model and machines to a plan that fits, the files that run it, and the run\n"
         "\n"
         "  distsetup plan --model 70B                              what fits, how fast, and why\n"
         "  distsetup emit --target native --model 7B --output run  the files and scripts that run it\n"
         "\n"
         "  plan  emit  fsdp  deepspeed  slurm  launcher            plan a run, write configs and scripts\n"
         "  launch  probe  lint  convert                            start, measure, check and convert\n"
         "  config show  explain  help  version                     what is set, what a message means\n"
         "\n"
         "distsetup --help lists all commands, distsetup COMMAND --help its flags\n";
}

std::string long_help(const TextStream& stream) {
  std::string text = "Turns a model and machines into a plan that fits, configuration files, launch scripts and a run.\n\n";
  text += heading("Examples", stream) + "\n";
  text += "  distsetup plan --model 70B --nodes 4\n";
  text += "  distsetup fsdp --sharding FULL_SHARD --output cfg.json\n";
  text += "  distsetup slurm --nodes 4 --gpus 8 | sbatch\n\n";
  text += heading("Commands", stream) + "\n";
  for (const Command& command : commands()) text += fmt::format("  {:<19}{}\n", command.name, command.summary);
  text += "\n" + heading("Flags of every command", stream) + "\n" + own_flags(common_flags(), stream);
  text += "\n" + heading("More", stream) + "\n";
  text += "  distsetup COMMAND --help     flags of one command\n";
  text += "  distsetup help keys          every key of a run file, with its flags and its DISTSETUP_ variable\n";
  text += "  distsetup help exit-codes    what the exit code says\n";
  text += "  distsetup explain DS0101     what a message means\n";
  return text;
}

std::string group_help(std::string_view group, const TextStream& stream) {
  std::string examples, lines;
  for (const Command& command : commands()) {
    if (!command.name.starts_with(std::string(group) + " ")) continue;
    if (!command.examples.empty()) examples += "  " + command.examples[0] + "\n";
    lines += fmt::format("  {:<19}{}\n", command.name, command.summary);
  }
  if (lines.empty()) return "";
  return fmt::format("{}\n{}\n{}\n{}\nFlags: distsetup {} SUBCOMMAND --help\n", heading("Examples", stream), examples,
                     heading("Commands", stream), lines, group);
}

std::string command_help(const Command& command, const TextStream& stream) {
  const size_t width = static_cast<size_t>(std::min(stream.width_columns, kWidestColumns));
  std::string text = wrapped(command.summary, 0, width) + "\n\n";
  if (!command.examples.empty()) {
    text += heading("Examples", stream) + "\n";
    for (const std::string& example : command.examples) text += "  " + example + "\n";
    text += "\n";
  }
  text += fmt::format("Usage: distsetup {}{}{} [flags]\n", command.name, command.positional.empty() ? "" : " ", command.positional);
  if (!command.notes.empty()) text += "\n" + wrapped(command.notes, 0, width) + "\n";
  if (!command.flags.empty()) text += "\n" + heading("Flags", stream) + "\n" + own_flags(command.flags, stream);
  text += run_flags(command, stream);
  text += "\n" + heading("Flags of every command", stream) + "\n" + own_flags(common_flags(), stream);
  return text;
}

std::string key_help(const SpecKey& key) {
  std::string text = fmt::format("{}: {}\n", key.path, key.help);
  text += fmt::format("  type      {}{}{}{}\n", name(key.type), key.choices.empty() ? "" : " " + choices_text(key),
                      key.unit.empty() ? "" : fmt::format(" ({})", key.unit), key.can_be_auto ? ", or auto: searched" : "");
  text += fmt::format("  default   {}\n", key.fallback);
  std::string flags;
  for (const SettingFlag& flag : key.flags) {
    const std::string alone = flag.bare.empty() ? "" : fmt::format(" (alone: {})", flag.bare);
    flags += fmt::format("{}--{}{}", flags.empty() ? "" : ", ", flag.name, alone);
  }
  text += fmt::format("  flags     {}\n", wrapped(flags, 12, kWidestColumns));
  text += fmt::format("  variable  {}\n", key.env);
  size_t width = 0;
  for (const SettingChoice& choice : key.choices) width = std::max(width, choice.value.size());
  if (!key.choices.empty()) text += "\n";
  for (const SettingChoice& choice : key.choices) {
    std::string line(choice.refused.empty() ? choice.help : fmt::format("refused: {}", choice.refused));
    if (!choice.not_native.empty()) line += fmt::format("{}with --trainer only: {}", line.empty() ? "" : "; ", choice.not_native);
    for (size_t i = 0; i < choice.aliases.size(); ++i)
      line += (i > 0 ? ", " : line.empty() ? "also " : "; also ") + std::string(choice.aliases[i]);
    text += fmt::format("  {:<{}}  {}\n", choice.value, width, wrapped(line, width + 4, kWidestColumns));
  }
  return text;
}

std::string keys_help(const TextStream& stream) {
  std::string text = "Keys of a run file (version: 1). Every key is also a flag and a DISTSETUP_ variable.\n";
  std::string section;
  for (const SpecKey& key : spec_keys()) {
    if (section_of(key) != section) {
      section = section_of(key);
      text += fmt::format("\n{}\n", heading(section, stream));
    }
    const std::string choices = choices_text(key);
    text += flag_line(std::string(key.path), fmt::format("{}{}{} ({})", key.help, choices.empty() ? "" : ": ", choices, key.fallback),
                      stream);
  }
  return text + "\ndistsetup explain KEY: flags, variable, values and their other spellings\n";
}

const std::vector<std::pair<int, std::string>>& exit_code_meanings() {
  static const std::vector<std::pair<int, std::string>> kMeanings = {
      {kDone, "done; plan: it fits, or it is tight (--strict makes tight 4)"},
      {kFailed, "failed: a file could not be written"},
      {kUsage, "usage: unknown command or flag, bad value of a flag"},
      {kConfigInvalid, "config invalid: run file, model, plan.json"},
      {kNothingFits, "a plan was made, and nothing fits"},
      {kEnvironmentUnusable, "this environment cannot do it: a program is missing, a port is taken"},
      {kJobFailed, "the job failed"},
      {kDiffers, "differs"},
      {kInterrupted, "interrupted"}};
  return kMeanings;
}

std::string exit_codes_help() {
  std::string text = "exit code\n";
  for (const auto& [code, means] : exit_code_meanings()) text += fmt::format("  {:>3}  {}\n", code, means);
  return text;
}

}  // namespace distsetup
