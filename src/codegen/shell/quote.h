// Text into the four places a script has for it. Nothing of the user's reaches a script by any other way.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace distsetup {

// One word of bash, on one line: bare when every character is harmless, else '...' , or $'...' when it has control characters or what
// a reader of YAML may take for the end of a line.
// `text` holds no NUL byte (no shell word can).
std::string quote_shell(std::string_view text);

// Words as a command line, each quoted where needed. As `command` of the emitters it is what the header of a script says: the command
// line without --output and --force, so that the same plan gives the same bytes in every folder.
std::string join_command(const std::vector<std::string>& words);

// The value of an `#SBATCH --name=value` line as sbatch's own reader splits it: bare, or in double quotes with \ before " and \.
// `text` holds no control characters (refused before it comes here).
std::string quote_directive(std::string_view text);

// The inside of a comment: control characters and what YAML may take for the end of a line become '?', so that none ends early.
std::string comment_text(std::string_view text);

// A YAML scalar that every YAML 1.1 and 1.2 reader takes for this very text: bare for plain words, else '...' , or "..." with JSON's
// escapes when it has control characters or others that such a reader stops at.
std::string quote_yaml(std::string_view text);

// A line of JSON inside a block of YAML: what YAML may take for the end of a line is escaped, which in JSON stands in texts only.
std::string json_in_yaml(std::string_view line);

// A TOML basic string.
std::string quote_toml(std::string_view text);

bool has_control_characters(std::string_view text);

}  // namespace distsetup
