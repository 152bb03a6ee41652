// What every command does at its end: say the diagnostics, print the result, choose the exit code. Files: cli/deliver/deliver.h.
#pragma once
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "cli/line/flags.h"

namespace distsetup {

// Warnings and notes to standard error (notes not with --quiet).
void say_diagnostics(const Terminal& terminal, const Diagnostics& diagnostics);
// The end of a command that failed: everything to standard error, with --json the failed envelope to standard output.
int fail(const Arguments& arguments, const Terminal& terminal, const Diagnostics& diagnostics);
// Text to standard output; the exit code of a command that ends with it.
int print_result(const Terminal& terminal, std::string_view text, int code = kDone);

// Words as they were typed, without those that do not change the bytes (--output, --force, --quiet, --color, --json).
std::vector<std::string> command_words(const std::vector<std::string>& words);

}  // namespace distsetup
