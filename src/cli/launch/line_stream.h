// Output of a process, passed on in whole lines, each with a prefix, so that the lines of several processes never mix.
#pragma once
#include <string>

namespace distsetup {

struct LineStream {
  int fd = -1;  // to read from, not blocking; -1 = closed
  int to = 1;   // our standard output or error
  std::string prefix;
  std::string pending;    // of a line that has not ended
  std::string last_line;  // that is not empty
};

// Passes on everything that can be read now, and closes the stream at its end. False: our own output is closed.
bool drain(LineStream& stream);
// Passes on what can still be read, with or without an end of line, and closes the stream.
void finish(LineStream& stream);

}  // namespace distsetup
