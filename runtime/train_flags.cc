#include "runtime/train_flags.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>

#include "runtime/monitor/open_metrics.h"

namespace distsetup {
namespace {

constexpr const char kTrainUsage[] =
    "usage: distsetup-train --plan plan.json [--output DIR] [--dry-run] [--stop-after STEPS]\n"
    "                       [--log-interval N] [--poison] [--trace FILE] [--profile A:B] [--threads N]\n"
    "                       [--offload-folder DIR]\n"
    "       distsetup-train FLAGS OF THE RUN [the same]\n"
    "       distsetup-train --probe [SECONDS]\n"
    "       distsetup-train --plan plan.json --generate REQUEST.json [--threads N]\n"
    "\n"
    "One rank of a training run. Start all ranks of a node with: distsetup launch --plan plan.json\n"
    "Without --plan the other flags are those of a run, as `distsetup plan -- FLAGS` takes them, also in the\n"
    "spelling of other trainers (--from-scratch --model-size 7B; --backend fsdp2 --pretrain DIR): the\n"
    "distsetup beside this program plans for the ranks that torchrun, srun or mpirun started.\n"
    "  torchrun --nproc_per_node 2 --no_python distsetup-train --from-scratch --model-size DIR \\\n"
    "           --batch-size 4 --max-steps 100 --data corpus --gpu cpu\n"
    "\n"
    "  --plan FILE         what `distsetup plan --json` or `distsetup emit --target native` wrote\n"
    "  --output DIR        checkpoints, metrics.jsonl, report.json (default: the plan's directory;\n"
    "                      without --plan: metrics.jsonl, report.json, plan.json, default --checkpoint-dir)\n"
    "  --dry-run           check plan, schedule, environment and data; train nothing\n"
    "  --stop-after STEPS  checkpoint and end after so many steps of this process\n"
    "  --log-interval N    a line every N steps (default: 100 lines a run); also --logging-steps\n"
    "  --tensorboard       write the metrics for TensorBoard, too: OUTPUT/tensorboard\n"
    "  --metrics-address HOST:PORT\n"
    "                      rank 0 answers GET /metrics there, as OpenMetrics (127.0.0.1:9400)\n"
    "  --poison            fill freed memory with NaN: the numbers must not change\n"
    "  --trace FILE        write the collectives of every step as JSON lines\n"
    "  --profile A:B       write when each op of steps A to B ran, for Perfetto: profile.json; started by\n"
    "                      `distsetup launch` beside what was predicted\n"
    "  --threads N         compute threads of this rank (default: cores / ranks on this host)\n"
    "  --offload-folder DIR\n"
    "                      of a local disk, for an optimizer that lies there (default: TMPDIR, else /tmp)\n"
    "  --generate FILE     answer one prompt, as `distsetup generate` asks for it\n"
    "  --probe [SECONDS]   measure matrix multiplications on this host, print JSON\n";

// A word of the line: a flag in our spelling, and what stands behind its '='.
struct FlagWord {
  std::string flag;
  std::optional<std::string> value;
};

FlagWord split_flag(const std::string& word) {
  FlagWord out;
  const size_t equals = word.find('=');
  out.flag = word.substr(0, equals);
  if (equals != std::string::npos) out.value = word.substr(equals + 1);
  for (size_t k = 2; k < out.flag.size(); ++k) out.flag[k] = out.flag[k] == '_' ? '-' : out.flag[k];
  if (out.flag == "--logging-steps") out.flag = "--log-interval";
  return out;
}

template <class T>
bool read_number(std::string_view text, T least, T& out) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), out);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && out >= least;
}

bool read_steps(std::string_view text, TrainOptions& options) {
  const size_t colon = text.find(':');
  return colon != std::string_view::npos && read_number<int64_t>(text.substr(0, colon), 1, options.first_profiled_step) &&
         read_number(text.substr(colon + 1), options.first_profiled_step, options.last_profiled_step);
}

bool takes_value(const std::string& flag) {
  for (const char* one : {"--plan", "--output", "--stop-after", "--trace", "--profile", "--threads", "--log-interval",
                          "--metrics-address", "--offload-folder"}) {
    if (flag == one) return true;
  }
  return false;
}

// The mistake, or nothing.
std::string set_value(TrainOptions& options, const std::string& flag, const std::string& value) {
  if (value.empty()) return fmt::format("{} needs a value", flag);
  if (flag == "--plan") options.plan_path = value;
  if (flag == "--output") options.output_dir = value;
  if (flag == "--metrics-address") {
    options.metrics_address = value;
    if (!metrics_address_from(value)) return fmt::format("--metrics-address '{}', expected HOST:PORT, as in 127.0.0.1:9400", value);
  }
  if (flag == "--trace") options.trace_path = value;
  if (flag == "--offload-folder") options.offload_folder = value;
  if (flag == "--stop-after" && !read_number<int64_t>(value, 1, options.stop_after))
    return fmt::format("--stop-after '{}', expected a number of steps, at least 1", value);
  if (flag == "--log-interval" && !read_number<int64_t>(value, 1, options.log_every))
    return fmt::format("--log-interval '{}', expected a number of steps, at least 1", value);
  if (flag == "--profile" && !read_steps(value, options))
    return fmt::format("--profile '{}', expected two steps, 10:12, the first at least 1", value);
  if (flag == "--threads" && !read_number<int>(value, 1, options.num_threads))
    return fmt::format("--threads '{}', expected at least 1", value);
  return "";
}

class TrainLine {
 public:
  explicit TrainLine(const std::vector<std::string>& words) : words_(words) {}

  TrainCommand read() {
    for (; at_ < words_.size() && !is_over_ && command_.mistake.empty(); ++at_) take(split_flag(words_[at_]));
    if (command_.mistake.empty() && command_.what == TrainCommand::What::kTrain) command_.mistake = what_is_missing();
    if (command_.mistake.empty() && command_.what == TrainCommand::What::kGenerate && command_.options.plan_path.empty())
      command_.mistake = "--generate without --plan";
    return std::move(command_);
  }

 private:
  void take(FlagWord word) {
    if (word.flag == "--help" || word.flag == "-h" || word.flag == "--version") {
      command_.what = word.flag == "--version" ? TrainCommand::What::kVersion : TrainCommand::What::kHelp;
      is_over_ = true;
    } else if (word.flag == "--probe") {
      probe(std::move(word.value));
    } else if (word.flag == "--generate") {
      if (!word.value && at_ + 1 < words_.size()) word.value = words_[++at_];
      command_.what = TrainCommand::What::kGenerate;
      command_.request_path = word.value.value_or("");
      if (command_.request_path.empty()) command_.mistake = "--generate needs a file, as `distsetup generate` writes it";
    } else if (word.flag == "--dry-run" || word.flag == "--poison" || word.flag == "--tensorboard") {
      if (word.value) command_.mistake = fmt::format("{} takes no value, found '{}'", word.flag, *word.value);
      TrainOptions& options = command_.options;
      (word.flag == "--dry-run" ? options.dry_run : word.flag == "--poison" ? options.poison : options.tensorboard) = true;
    } else if (takes_value(word.flag)) {
      if (!word.value && at_ + 1 < words_.size()) word.value = words_[++at_];
      command_.mistake = set_value(command_.options, word.flag, word.value.value_or(""));
    } else {
      command_.options.flags.push_back(words_[at_]);
    }
  }

  // Its number of seconds may be missing.
  void probe(std::optional<std::string> value) {
    command_.what = TrainCommand::What::kProbe;
    if (!value && at_ + 1 < words_.size() && words_[at_ + 1].substr(0, 1) != "-") value = words_[++at_];
    if (value && !read_number<int64_t>(*value, 1, command_.probe_s))
      command_.mistake = fmt::format("--probe '{}', expected a number of seconds", *value);
  }

  std::string what_is_missing() const {
    const TrainOptions& options = command_.options;
    if (options.plan_path.empty() && options.flags.empty()) return "neither --plan nor flags of a run";
    if (!options.plan_path.empty() && !options.flags.empty())
      return fmt::format("unknown argument '{}' beside --plan: a plan is complete", options.flags.front());
    return "";
  }

  const std::vector<std::string>& words_;
  size_t at_ = 0;
  bool is_over_ = false;
  TrainCommand command_;
};

}  // namespace

TrainCommand read_train_flags(const std::vector<std::string>& words) { return TrainLine(words).read(); }

const char* train_usage() { return kTrainUsage; }

}  // namespace distsetup
