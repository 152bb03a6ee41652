// What a broken invariant looks like to the user: one block on stderr that can be pasted into a report, then abort.
// Nothing here allocates more than the message or touches files: the process is already in a state nobody planned for.
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace distsetup {

void check_failed(const char* file, int line, const char* condition, std::string_view values) {
  std::string text = fmt::format("distsetup: internal error at {}:{}: {}\n", file, line, condition);
  if (!values.empty()) text += fmt::format("  with {}\n", values);
  text += "  this is a bug in distsetup, not a mistake of yours; please report these lines and the command you ran\n";
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
  std::abort();
}

}  // namespace distsetup
