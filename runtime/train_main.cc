// distsetup-train: one rank of a run. Never spawns: `distsetup launch`, torchrun, srun or mpirun start it once per rank.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "runtime/train.h"

namespace {

constexpr const char kUsage[] =
    "usage: distsetup-train --plan plan.json [--output DIR] [--dry-run] [--stop-after STEPS]\n"
    "                       [--log-interval N] [--poison] [--trace FILE] [--threads N]\n"
    "       distsetup-train FLAGS OF THE RUN [the same]\n"
    "       distsetup-train --probe [SECONDS]\n"
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
    "  --poison            fill freed memory with NaN: the numbers must not change\n"
    "  --trace FILE        write the collectives of every step as JSON lines\n"
    "  --threads N         compute threads of this rank (default: cores / ranks on this host)\n"
    "  --probe [SECONDS]   measure matrix multiplications on this host, print JSON\n";

int usage_error(const std::string& what) {
  fmt::print(stderr, "distsetup-train: {}\n{}", what, kUsage);
  return 2;
}

template <class T>
bool parse_number(std::string_view text, T least, T& out) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), out);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && out >= least;
}

}  // namespace

int main(int argc, char** argv) {
  distsetup::TrainOptions options;
  int first_flag = 0;  // of the run
  bool probe = false;
  int64_t probe_s = 3;
  for (int i = 1; i < argc; ++i) {
    std::string flag = argv[i];
    std::string value;
    bool has_value = false;
    if (const size_t equals = flag.find('='); equals != std::string::npos) {
      value = flag.substr(equals + 1);
      flag.resize(equals);
      has_value = true;
    }
    for (size_t k = 2; k < flag.size(); ++k) flag[k] = flag[k] == '_' ? '-' : flag[k];
    if (flag == "--logging-steps") flag = "--log-interval";
    if (flag == "--help" || flag == "-h") return std::fputs(kUsage, stdout), 0;
    if (flag == "--version") return fmt::print("distsetup-train {}\n", DISTSETUP_VERSION), 0;
    if (flag == "--dry-run" || flag == "--poison" || flag == "--probe") {
      const bool optional_number = flag == "--probe" && !has_value && i + 1 < argc && argv[i + 1][0] != '-';
      if (optional_number) value = argv[++i], has_value = true;
      if (flag == "--probe" && has_value && !parse_number<int64_t>(value, 1, probe_s))
        return usage_error(fmt::format("--probe '{}', expected a number of seconds", value));
      if (flag != "--probe" && has_value) return usage_error(fmt::format("{} takes no value, found '{}'", flag, value));
      (flag == "--dry-run" ? options.dry_run : flag == "--poison" ? options.poison : probe) = true;
      continue;
    }
    const bool known = flag == "--plan" || flag == "--output" || flag == "--stop-after" || flag == "--trace" || flag == "--threads" ||
                       flag == "--log-interval";
    if (!known) {
      if (options.flags.empty()) first_flag = i;
      options.flags.emplace_back(argv[i]);
      continue;
    }
    if (!has_value) {
      if (i + 1 >= argc) return usage_error(fmt::format("{} needs a value", flag));
      value = argv[++i];
    }
    if (value.empty()) return usage_error(fmt::format("{} needs a value", flag));
    if (flag == "--plan") options.plan_path = value;
    if (flag == "--output") options.output_dir = value;
    if (flag == "--trace") options.trace_path = value;
    if (flag == "--stop-after" && !parse_number<int64_t>(value, 1, options.stop_after))
      return usage_error(fmt::format("--stop-after '{}', expected a number of steps, at least 1", value));
    if (flag == "--log-interval" && !parse_number<int64_t>(value, 1, options.log_every))
      return usage_error(fmt::format("--log-interval '{}', expected a number of steps, at least 1", value));
    if (flag == "--threads" && !parse_number<int>(value, 1, options.num_threads))
      return usage_error(fmt::format("--threads '{}', expected at least 1", value));
  }
  if (probe) return distsetup::run_probe_kernels(static_cast<double>(probe_s));
  if (options.plan_path.empty() && options.flags.empty()) return usage_error("neither --plan nor flags of a run");
  if (!options.plan_path.empty() && !options.flags.empty())
    return usage_error(fmt::format("unknown argument '{}' beside --plan: a plan is complete", argv[first_flag]));
  return distsetup::run_training(options);
}
