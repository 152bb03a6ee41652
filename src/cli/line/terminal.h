// Where text goes and how it looks there: results to standard output, talk to standard error. Colour and width are decided per
// stream. Leaves out: what is printed.
#pragma once
#include <string>
#include <string_view>

#include "base/diagnostic.h"

namespace distsetup {

// Exit codes, the same for every command; `distsetup help exit-codes` prints them.
enum ExitCode {
  kDone = 0,
  kFailed = 1,
  kUsage = 2,
  kConfigInvalid = 3,
  kNothingFits = 4,
  kEnvironmentUnusable = 5,
  kJobFailed = 6,
  kDiffers = 7,
  kInterrupted = 130,
};

enum class ColourChoice { kAuto, kAlways, kNever };
enum class Talk { kNormal, kQuiet };

struct TextStream {
  int fd = 1;
  bool is_terminal = false;
  Colour colour = Colour::kOff;
  int width_columns = 80;  // of the terminal; 80 when there is none
  int height_rows = 0;     // of the terminal; 0 when there is none
};

struct Terminal {
  TextStream out{1}, err{2};
  Talk talk = Talk::kNormal;
};

// Closed standard streams are opened on /dev/null so that no file of ours takes their number; a write to one still fails.
void guard_standard_streams();

// Colour: --color, then NO_COLOR (not empty), FORCE_COLOR (not empty), TERM=dumb, then whether the stream is a terminal.
// Height: LINES when it is a number, else the terminal's own, else none.
// Width: COLUMNS when it is a number from 20 on, else the terminal's own, else 80; piped output is 80 unless COLUMNS is set.
Terminal make_terminal(ColourChoice choice, Talk talk);

// From LC_ALL, LC_CTYPE, LANG; none of them set counts as UTF-8.
bool is_utf8_locale();

// All of `text` to a file descriptor: 0, or errno.
int write_all(int fd, std::string_view text);
// Writes all of `text`; a full disk or a closed stream is kUnwritableFile.
Diagnostics write_result(std::string_view text);
// Talk that --quiet does not silence (warnings, errors) and talk that it does; in ASCII where the locale is not UTF-8.
void say(std::string_view text);
void mention(const Terminal& terminal, std::string_view text);
// To standard error, in colour where that is a terminal.
void report(const Diagnostics& diagnostics);
// "next: ..." on a terminal only.
void suggest_next(const Terminal& terminal, std::string_view command);

// What the process ends with when these are all that can be said. Mistakes in the command line: kUsage; writing: kFailed.
ExitCode exit_code(const Diagnostics& diagnostics);

}  // namespace distsetup
