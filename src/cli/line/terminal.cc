// Streams. SIGPIPE keeps its default action: a reader that stops (`| head`) ends the program without a word, and what `launch` starts
// does not inherit an ignored signal.
#include "cli/line/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "base/file.h"

namespace distsetup {
namespace {

constexpr int kMinColumns = 20;
constexpr int kDefaultColumns = 80;

std::string_view environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::string_view() : std::string_view(text);
}

// A variable that is a number, at least `least`; 0: it is none.
int number_of(const char* variable, int least) {
  const std::string_view text = environment(variable);
  int wanted = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), wanted);
  return failure == std::errc() && end == text.data() + text.size() && wanted >= least ? wanted : 0;
}

int width_of(int fd, bool is_terminal) {
  if (const int wanted = number_of("COLUMNS", kMinColumns); wanted > 0) return wanted;
  winsize size = {};
  if (is_terminal && ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= kMinColumns) return size.ws_col;
  return kDefaultColumns;
}

int height_of(int fd, bool is_terminal) {
  if (const int wanted = number_of("LINES", 1); wanted > 0) return wanted;
  winsize size = {};
  return is_terminal && ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_row : 0;
}

Colour colour_of(bool is_terminal, ColourChoice choice) {
  if (choice != ColourChoice::kAuto) return choice == ColourChoice::kAlways ? Colour::kOn : Colour::kOff;
  if (!environment("NO_COLOR").empty()) return Colour::kOff;
  if (!environment("FORCE_COLOR").empty()) return Colour::kOn;
  return is_terminal && environment("TERM") != "dumb" ? Colour::kOn : Colour::kOff;
}

TextStream make_stream(int fd, ColourChoice choice) {
  TextStream stream;
  stream.fd = fd;
  stream.is_terminal = ::isatty(fd) == 1;
  stream.colour = colour_of(stream.is_terminal, choice);
  stream.width_columns = width_of(fd, stream.is_terminal);
  stream.height_rows = height_of(fd, stream.is_terminal);
  return stream;
}

// The few characters beyond ASCII that our messages use.
std::string folded(std::string_view text) {
  static constexpr std::pair<std::string_view, std::string_view> kPlain[] = {
      {"×", "x"}, {"·", "|"}, {"…", "..."}, {"≥", ">="}, {"→", "->"}};
  std::string out;
  while (!text.empty()) {
    const auto* it = std::find_if(std::begin(kPlain), std::end(kPlain),
                                  [text](const auto& one) { return text.substr(0, one.first.size()) == one.first; });
    const bool is_known = it != std::end(kPlain);
    out += is_known ? it->second : text.substr(0, 1);
    text.remove_prefix(is_known ? it->first.size() : 1);
  }
  return out;
}

bool is_usage(const Diagnostic& d) {
  const bool always = d.code == code::kUnknownFlag || d.code == code::kUnknownCommand || d.code == code::kMissingArgument;
  const bool is_spelling = std::string_view(d.code).substr(0, 4) == "DS01";  // types, units, ranges, allowed values
  return always || (is_spelling && d.location.file == "command line");
}

bool is_writing(const Diagnostic& d) {
  return d.code == code::kUnwritableFile || d.code == code::kFileExists || d.code == code::kTemplate;
}

}  // namespace

void guard_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free number is `fd`. Reading end for output and writing end for input: using them fails as a closed stream would.
    const int opened = ::open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
    if (opened > 2) ::close(opened);
  }
}

Terminal make_terminal(ColourChoice choice, Talk talk) {
  Terminal terminal;
  terminal.out = make_stream(1, choice);
  terminal.err = make_stream(2, choice);
  terminal.talk = talk;
  return terminal;
}

int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t num_written = ::write(fd, text.data(), text.size());
    if (num_written < 0 && errno == EINTR) continue;
    if (num_written < 0 && errno == EAGAIN) {  // somebody else made it so that writing does not wait
      pollfd ready = {fd, POLLOUT, 0};
      ::poll(&ready, 1, 1000);
      continue;
    }
    if (num_written < 0) return errno;
    text.remove_prefix(static_cast<size_t>(num_written));
  }
  return 0;
}

Diagnostics write_result(std::string_view text) {
  const int number = write_all(1, text);
  if (number == 0) return {};
  const std::string why = number == EBADF ? "it is closed" : errno_text(number);
  return {error(code::kUnwritableFile, {}, fmt::format("cannot write to standard output, {}", why),
                "name a file with --output, or give standard output room")};
}

bool is_utf8_locale() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view locale = environment(variable);
    if (locale.empty()) continue;
    return locale.find("UTF-8") != locale.npos || locale.find("utf8") != locale.npos || locale.find("UTF8") != locale.npos;
  }
  return true;  // as in most containers: the terminal behind them is UTF-8
}

void report(const Diagnostics& diagnostics) {
  std::fputs(format_diagnostics(diagnostics, isatty(2) != 0 ? Colour::kOn : Colour::kOff).c_str(), stderr);
}

void say(std::string_view text) {
  if (text.empty()) return;
  (void)write_all(2, is_utf8_locale() ? std::string(text) : folded(text));  // when it fails there is nowhere left to complain
}

void mention(const Terminal& terminal, std::string_view text) {
  if (terminal.talk == Talk::kNormal) say(text);
}

void suggest_next(const Terminal& terminal, std::string_view command) {
  if (terminal.err.is_terminal) mention(terminal, fmt::format("next: {}\n", command));
}

ExitCode exit_code(const Diagnostics& diagnostics) {
  ExitCode worst = kDone;
  for (const Diagnostic& d : diagnostics) {
    if (d.severity != Severity::kError) continue;
    ExitCode own = kConfigInvalid;
    if (is_usage(d)) own = kUsage;
    if (is_writing(d)) own = kFailed;
    if (d.code == code::kNothingFits) own = ExitCode::kNothingFits;
    if (d.code == code::kEnvironment || d.code == code::kPreflight) own = kEnvironmentUnusable;
    if (d.code == code::kRankFailed) own = kJobFailed;
    // Several kinds at once: the usage mistake is the one to mend first.
    if (worst == kDone || own == kUsage) worst = own;
  }
  return worst;
}

}  // namespace distsetup
