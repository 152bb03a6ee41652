#include "cli/line/output.h"

#include <algorithm>

#include "base/json.h"
#include "base/names.h"
#include "plan/plan.h"
#include "plan/plan_json.h"

namespace distsetup {

void say_diagnostics(const Terminal& terminal, const Diagnostics& diagnostics) {
  Diagnostics shown = diagnostics;
  if (terminal.talk == Talk::kQuiet) {
    std::erase_if(shown, [](const Diagnostic& d) { return d.severity == Severity::kNote; });
  }
  say(format_diagnostics(shown, terminal.err.colour));
}

int fail(const Arguments& arguments, const Terminal& terminal, const Diagnostics& diagnostics) {
  say_diagnostics(terminal, diagnostics);
  if (arguments.has("json")) say_diagnostics(terminal, write_result(dump_json(failed_plan_json(diagnostics))));
  return exit_code(diagnostics);
}

int print_result(const Terminal& terminal, std::string_view text, int code) {
  const Diagnostics failed = write_result(text);
  if (failed.empty()) return code;
  say_diagnostics(terminal, failed);
  return exit_code(failed);
}

std::vector<std::string> command_words(const std::vector<std::string>& words) {
  static const std::vector<std::string> kDropped = {"force", "quiet", "json", "dry-run"};
  static const std::vector<std::string> kDroppedWithValue = {"output", "color", "colour"};
  std::vector<std::string> kept;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "-q" || word == "-f" || word == "-n") continue;
    if (word == "-o") {
      ++i;
      continue;
    }
    if (word.compare(0, 2, "--") == 0 && word.size() > 2) {
      const size_t equals = word.find('=');
      const std::string_view name = std::string_view(word).substr(2, equals == std::string::npos ? equals : equals - 2);
      const auto is = [name](const std::string& one) { return same_name(one, name); };
      if (std::any_of(kDropped.begin(), kDropped.end(), is)) continue;
      if (std::any_of(kDroppedWithValue.begin(), kDroppedWithValue.end(), is)) {
        if (equals == std::string::npos) ++i;
        continue;
      }
    }
    kept.push_back(word);
  }
  return kept;
}

}  // namespace distsetup
