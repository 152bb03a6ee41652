// libFuzzer: any bytes are read as a script, to the end, within its limits.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "codegen/shell/follow.h"
#include "codegen/shell/launch_line.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace distsetup::foreign;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const ShellScript script = follow_shell(parse_shell(text, {0, text.size()}));
  for (const ShellMistake& one : script.mistakes) {
    if (one.span.begin > text.size() || one.span.end > text.size()) std::abort();
  }
  for (const LaunchLine& line : find_lines(script)) {
    if (line.command >= script.commands.size() || script.commands[line.command].is_dead) std::abort();
  }
  return 0;
}
