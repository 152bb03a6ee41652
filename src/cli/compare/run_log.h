// The training curve of a run, as some trainer logged it: ours (metrics.jsonl, with report.json beside it), a Trainer's
// trainer_state.json, JSON lines, a CSV, or the text that a program printed. The idea: a line is a step when a loss stands in it under
// one of the names that trainers use; a table of names, no parser for each trainer. Left out: evaluation, profiles, event files.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace distsetup {

struct LoggedStep {
  int64_t step = 0;
  double loss = 0;  // may be no number: a run that diverged says so
  std::optional<double> gradient_norm, step_s, tokens_per_s, memory_bytes;
};

struct RunLog {
  std::string path, format;       // "metrics.jsonl", "trainer_state.json", "JSON lines", "CSV", "text"
  std::string loss_name;          // "lm loss", as the log calls it
  bool counts_steps = false;      // the log numbers its steps; else they are the first, the second, ...
  std::vector<LoggedStep> steps;  // ascending; where a log goes back, what it says last
};

// Text of a log of any of these kinds. `path` is for messages. kUnreadableFile: no loss stands in it; the help says
// what was looked for.
Result<RunLog> parse_run_log(const std::string& path, std::string_view text);

// A file, or a folder with metrics.jsonl, trainer_state.json (also in the last checkpoint-N) or metrics.csv in it.
Result<RunLog> read_run_log(const std::string& path);

}  // namespace distsetup
