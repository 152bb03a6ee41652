// roff without surprises: text is escaped as a whole, a line never begins with a control character, other characters than ASCII are
// named by their number, so that every man(1) and locale shows them. No date: the same program gives the same page.
#include "cli/line/man_page.h"

#include <fmt/format.h>

#include "cli/commands/commands.h"
#include "cli/line/help.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

// The code point at the front of UTF-8 text, taken off it.
unsigned take_character(std::string_view& text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t length = std::min<size_t>(first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4, text.size());
  unsigned code = length == 1 ? first : first & (0xffU >> (length + 1));
  for (size_t i = 1; i < length; ++i) code = (code << 6) | (static_cast<unsigned char>(text[i]) & 0x3fU);
  text.remove_prefix(length);
  return code;
}

std::string roff(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    if (out.empty() && (text[0] == '.' || text[0] == '\'')) out += "\\&";
    const unsigned code = take_character(text);
    switch (code) {
      case '\\': out += "\\e"; break;
      case '-': out += "\\-"; break;
      case '\'': out += "\\(aq"; break;
      case '`': out += "\\(ga"; break;
      case '^': out += "\\(ha"; break;
      case '~': out += "\\(ti"; break;
      default: out += code < 0x80 ? std::string(1, static_cast<char>(code)) : fmt::format("\\[u{:04X}]", code);
    }
  }
  return out;
}

std::string tagged(const std::string& tag, std::string_view text) { return ".TP\n" + tag + "\n" + roff(text) + "\n"; }
std::string bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + roff(text) + "\\fR"; }

std::string flags_text(const std::vector<Flag>& flags) {
  std::string out;
  for (const Flag& flag : flags) {
    std::string tag = flag.letter != 0 ? bold(fmt::format("-{}", flag.letter)) + ", " : "";
    tag += bold("--" + flag.name);
    if (flag.kind != FlagKind::kSwitch) tag += " " + italic(flag.placeholder);
    std::string text = flag.help;
    for (const std::string& alias : flag.aliases) text += (&alias == &flag.aliases.front() ? "; also --" : ", --") + alias;
    out += tagged(tag, text);
  }
  return out;
}

// "every key of a run" or their sections.
std::string run_flags_text(const Command& command) {
  std::string keys;
  for (const std::string& prefix : command.run_keys) keys += (keys.empty() ? "" : ", ") + prefix;
  if (command.run_keys.empty()) return "";
  return ".PP\nAnd the flags of " + (keys.empty() ? "every key of a run" : "the keys of a run below " + italic(keys)) +
         ": see KEYS OF A RUN.\n";
}

std::string command_text(const Command& command) {
  std::string out = ".SS " + roff("distsetup " + command.name) + "\n" + bold("distsetup " + command.name);
  if (!command.positional.empty()) out += " " + italic(command.positional);
  out += " [" + italic("flags") + "]\n.PP\n" + roff(command.summary) + "\n";
  if (!command.notes.empty()) out += ".PP\n" + roff(command.notes) + "\n";
  if (!command.examples.empty()) {
    out += ".PP\n.nf\n";
    for (const std::string& example : command.examples) out += roff(example) + "\n";
    out += ".fi\n";
  }
  return out + flags_text(command.flags) + run_flags_text(command);
}

std::string keys_text() {
  std::string out;
  for (const SpecKey& key : spec_keys()) {
    std::string tag;
    for (const SettingFlag& flag : key.flags) {
      tag += (tag.empty() ? "" : ", ") + bold(fmt::format("--{}", flag.name));
      if (flag.bare.empty() && !key_placeholder(key).empty()) tag += " " + italic(key_placeholder(key));
    }
    std::string text = fmt::format("{}: {}", key.path, key.help);
    for (const SettingChoice& choice : key.choices) {
      if (choice.refused.empty()) text += fmt::format("{}{}", &choice == &key.choices.front() ? ": " : ", ", choice.value);
    }
    out += tagged(tag, fmt::format("{} ({}). {}", text, key.fallback, key.env));
  }
  return out;
}

}  // namespace

std::string man_page() {
  std::string out = ".\\\" made by: distsetup man\n.TH DISTSETUP 1 \"\" \"distsetup " DISTSETUP_VERSION "\" \"User Commands\"\n";
  out += ".SH NAME\ndistsetup \\- " + roff("a plan of distributed training that fits, the files that run it, and the run") + "\n";
  out += ".SH SYNOPSIS\n" + bold("distsetup") + " " + italic("COMMAND") + " [" + italic("flags") + "]\n";
  out +=
      ".SH DESCRIPTION\n" +
      roff(
          "Turns a model and machines into a plan that fits, with its memory and time, into configuration files of the trainers and "
          "schedulers that people use, and into a run. Results go to standard output, everything else to standard error.") +
      "\n.PP\n" +
      roff("A flag is found with - or _ between its words and in any case. What is not given is searched, or assumed and said.") +
      "\n";
  out += ".SH COMMANDS\n";
  for (const Command& command : commands()) out += command_text(command);
  out += ".SH KEYS OF A RUN\n" +
         roff("Each is a key of a run file, a flag and a variable; the strongest is the flag, then the variable, then the file.") +
         "\n" + keys_text();
  out += ".SH FLAGS OF EVERY COMMAND\n" + flags_text(common_flags());
  out += ".SH EXIT STATUS\n";
  for (const auto& [code, means] : exit_code_meanings()) out += tagged(fmt::format("{}", code), means);
  out += ".SH ENVIRONMENT\n" +
         tagged(bold("DISTSETUP_*"), "one for each key of a run, above: weaker than a flag, stronger than the run file") +
         tagged(bold("NO_COLOR") + ", " + bold("FORCE_COLOR"), "no colour, or colour also into a pipe, when not empty") +
         tagged(bold("COLUMNS"), "how wide the text may be") +
         tagged(bold("LC_ALL") + ", " + bold("LC_CTYPE") + ", " + bold("LANG"), "ASCII only where the locale is not UTF-8");
  return out;
}

}  // namespace distsetup
