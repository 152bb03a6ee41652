#include "codegen/lint/job_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/names.h"
#include "base/text.h"
#include "codegen/lint/batch_launch.h"
#include "codegen/shell/expand.h"
#include "codegen/shell/starts_training.h"

namespace distsetup::lint {
namespace {

bool is_source(const ShellCommand& command) {
  return command.words.size() >= 2 && (command.words[0].text == "source" || command.words[0].text == ".");
}

// Whether something before this place may have put conda's programs into PATH.
bool may_bring_conda(const JobScript& in, size_t end) {
  for (const ShellCommand& command : in.part.script.commands) {
    if (command.words.empty() || command.words[0].span.begin >= end) continue;
    const std::string& name = command.words[0].text;
    if (name == "module" || name == "ml" || name == "spack" || name == "eval" || name == "conda" || is_source(command)) return true;
    for (const ShellAssignment& one : command.assignments) {
      if (one.name == "PATH" && one.span.begin < end) return true;
    }
  }
  return false;
}

// The submitting shell's PATH comes along by default; --export=NONE is the job whose shell knows no conda.
void sl_activation(const JobScript& in) {
  const Directive* exports = in.directive("export");
  if (exports == nullptr || (exports->value != "NONE" && exports->value != "NIL")) return;
  for (const ShellCommand& command : in.part.script.commands) {
    if (!is_source(command) || command.words[1].text != "activate" || may_bring_conda(in, command.words[0].span.begin)) continue;
    in.report.add("SL022", in.d, {command.words[0].span.begin, command.words[1].span.end},
                  "'source activate' needs conda in PATH, which --export=NONE keeps from the job");
  }
}

// conda init writes to .bashrc for the next shell; this one still has no function `conda`.
void sl_conda_init(const JobScript& in) {
  const std::string& shebang = in.part.script.shebang;
  const bool is_login = shebang.find(" -l") != std::string::npos || shebang.find("--login") != std::string::npos ||
                        shebang.find(" -i") != std::string::npos;
  const ShellCommand* init = nullptr;
  for (const ShellCommand& command : in.part.script.commands) {
    const bool is_conda = command.words.size() >= 2 && (command.words[0].text == "conda" || command.words[0].text == "mamba");
    const bool sets_up = (is_source(command) || (!command.words.empty() && command.words[0].text == "eval")) && command.depth == 0;
    if (sets_up) return;
    if (is_conda && command.words[1].text == "init") init = &command;
    if (init == nullptr || is_login || !is_conda || command.words[1].text != "activate") continue;
    in.report.add("SL028", in.d, {command.words[0].span.begin, command.words[1].span.end},
                  fmt::format("'{} activate' stops here: '{} init' prepares the next login, not this shell", command.words[0].text,
                              init->words[0].text));
    return;
  }
}

// "{ partition }", "<account>": what is to be filled in.
bool is_placeholder(std::string_view text) {
  if (text.size() < 3) return false;
  const bool is_braced = text.front() == '{' && text.back() == '}' && text[1] != '{';
  const bool is_angled = text.front() == '<' && text.back() == '>';
  const std::string_view inside = text.substr(1, text.size() - 2);
  const bool has_letter = std::any_of(inside.begin(), inside.end(), [](char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; });
  return (is_braced || is_angled) && has_letter && inside.find_first_of("{}<>,") == std::string_view::npos;
}

bool is_called_template(const JobScript& in) { return lower(in.d.path).find("template") != std::string::npos; }

void sl_placeholders(const JobScript& in) {
  const Directive* first = nullptr;
  std::string said;
  size_t num_more = 0, line_end = std::string_view::npos, open = 0, close = 0;
  for (const Directive& one : in.part.script.directives) {
    static constexpr std::array<std::string_view, 5> kAnyText = {"mail-user", "comment", "job-name", "output", "error"};
    if (std::find(kAnyText.begin(), kAnyText.end(), one.name) != kAnyText.end()) continue;  // whatever stands there, the job runs
    // A line of many options is searched once.
    if (one.line_end != line_end || open < one.span.begin) {
      line_end = one.line_end;
      std::string_view line = in.d.cut({one.span.begin, line_end});
      if (const size_t comment = line.find(" #"); comment != std::string_view::npos) line = line.substr(0, comment);
      const size_t found = line.find_first_of("{<");
      const size_t end = found == std::string_view::npos ? found : line.find(line[found] == '{' ? '}' : '>', found);
      open = end == std::string_view::npos ? end : one.span.begin + found;
      close = end == std::string_view::npos ? end : one.span.begin + end + 1;
    }
    if (open == std::string_view::npos || !is_placeholder(in.d.cut({open, close}))) continue;
    if (first != nullptr) {
      ++num_more;
      continue;
    }
    first = &one;
    const bool is_variable = in.d.text[open] == '{' && open > one.span.begin && in.d.text[open - 1] == '$';
    said = in.d.cut({is_variable ? open - 1 : open, close});
  }
  if (first == nullptr) return;
  const std::string others = num_more == 0 ? "" : fmt::format(", and so are {} more", num_more);
  // A file that is meant to be filled in by a program or a person says so: by its name, or by many places.
  constexpr size_t kManyMore = 2;
  const bool is_template = num_more >= kManyMore || is_called_template(in);
  const bool is_variable = said[0] == '$';
  in.report.add("SL029", in.d, first->span,
                is_variable ? fmt::format("'{}' is not expanded here: sbatch reads its lines before any shell does{}", said, others)
                            : fmt::format("'{}' is a placeholder that was not filled in{}", said, others),
                {is_variable ? "write the value, or give the option to sbatch on its command line" : "",
                 "",
                 {},
                 is_template ? std::optional<Severity>(Severity::kWarning) : std::nullopt,
                 // Programs fill in {name} and ${NAME}; what has angles, or blanks inside, is for people.
                 said[0] == '<' || said[1] == ' ' ? "" : "nothing fills the file in before sbatch reads it"});
}

// "--nodes=" with nothing behind it.
void sl_empty_values(const JobScript& in) {
  static constexpr std::array<std::string_view, 7> kNumbers = {"nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "gpus-per-node",
                                                               "time",  "mem"};
  const Directive* first = nullptr;
  size_t num_more = 0;
  size_t num_empty = 0;
  for (const Directive& one : in.part.script.directives) {
    if (!one.value.empty() || one.is_late || in.d.cut(one.span).find('=') == std::string_view::npos) continue;
    const bool is_number = std::find(kNumbers.begin(), kNumbers.end(), one.name) != kNumbers.end();
    ++num_empty;
    num_more += first == nullptr || !is_number ? 0 : 1;
    if (first == nullptr && is_number) first = &one;
  }
  if (first == nullptr) return;
  const std::string others = num_more == 0 ? "has" : fmt::format("and {} more have", num_more);
  constexpr size_t kMany = 3;  // the file is meant to be filled in
  in.report.add("SL029", in.d, first->span, fmt::format("'--{}' {} no value: sbatch refuses the job", first->name, others),
                {"", "", {}, num_empty >= kMany ? std::optional<Severity>(Severity::kWarning) : std::nullopt});
}

// "--nodes=NUM_NODES": a word where sbatch expects a number.
void sl_words_for_numbers(const JobScript& in) {
  static constexpr std::array<std::string_view, 6> kCounts = {"nodes",         "ntasks",        "ntasks-per-node",
                                                              "cpus-per-task", "gpus-per-node", "gpus-per-task"};
  const Directive* first = nullptr;
  size_t num_more = 0;
  for (const Directive& one : in.part.script.directives) {
    const bool is_count = std::find(kCounts.begin(), kCounts.end(), one.name) != kCounts.end();
    // What a variable or a placeholder stands for is told by itself.
    const bool is_word = !one.value.empty() && one.value.find_first_of("0123456789$`{}<>[]%=#") == std::string::npos;
    if (!is_count || !is_word || one.is_late) continue;
    num_more += first == nullptr ? 0 : 1;
    if (first == nullptr) first = &one;
  }
  if (first == nullptr) return;
  const bool is_template = num_more > 0 || is_called_template(in);
  in.report.add("SL029", in.d, first->span,
                fmt::format("'--{}' is '{}', expected a number: sbatch refuses the job", first->name, first->value),
                {"write the number", "", {}, is_template ? std::optional<Severity>(Severity::kWarning) : std::nullopt});
}

// "--nodes==2": what stands behind the first sign is the value.
void sl_two_signs(const JobScript& in) {
  for (const Directive& one : in.part.script.directives) {
    if (one.is_late || !one.value.starts_with('=')) continue;
    in.report.add("SL029", in.d, one.span, fmt::format("'--{}' has the value '{}': sbatch refuses the job", one.name, one.value),
                  {fmt::format("write --{}={}", one.name, one.value.substr(1)), "", {}, {}});
  }
}

// SLURM runs a copy of the script, in a folder of its own (slurmd's spool): what stands beside the script is not there.
void sl_own_folder(const JobScript& in) {
  static constexpr std::array<std::string_view, 5> kOwn = {"$0", "${0}", "$BASH_SOURCE", "${BASH_SOURCE}", "${BASH_SOURCE[0]}"};
  for (const char* mark :
       {"SLURM_SUBMIT_DIR", "scontrol show job", "sbatch \"$0\"", "sbatch $0", "SLURM_JOB_ID:-", "SLURM_JOB_ID}\" ]"}) {
    if (in.d.text.find(mark) != std::string::npos) return;  // it knows where it is
  }
  for (const ShellCommand& command : in.part.script.commands) {
    const std::string name = command.words.empty() ? "" : command.words[0].text;
    if (command.is_dead || (name != "dirname" && name != "realpath" && name != "readlink")) continue;
    const bool is_own = std::any_of(command.words.begin() + 1, command.words.end(), [](const ShellWord& word) {
      return std::find(kOwn.begin(), kOwn.end(), word.text) != kOwn.end();
    });
    if (!is_own) continue;
    in.report.add("SL040", in.d, {command.words.front().span.begin, command.words.back().span.end},
                  "sbatch runs a copy of the script from its spool folder: files beside the script are not found from there");
    return;
  }
}

void sl_unset_gpus(const JobScript& in) {
  const bool asks_otherwise =
      in.directive("gres") != nullptr || in.directive("gpus-per-node") != nullptr || in.directive("gpus-per-task") != nullptr;
  if (!asks_otherwise || in.directive("gpus") != nullptr) return;
  for (const ShellCommand& command : in.part.script.commands) {
    for (const ShellAssignment& one : command.assignments)
      if (one.name == "SLURM_GPUS") return;
  }
  for (const ShellCommand& command : in.part.script.commands) {
    if (command.words.empty()) continue;
    const TextSpan all{command.words.front().span.begin, command.words.back().span.end};
    for (const auto& [name, at] : expansions(in.d.text, all)) {
      const bool has_default = in.d.text.compare(at, 13, "${SLURM_GPUS:") == 0 || in.d.text.compare(at, 13, "${SLURM_GPUS-") == 0;
      if (name != "SLURM_GPUS" || has_default) continue;
      return in.report.add("SL033", in.d, {at, at + name.size() + 1},
                           "'$SLURM_GPUS' is empty: only --gpus sets it, and the job asks for its GPUs in another way");
    }
  }
}

// srun gives its tasks the job's GPUs whatever the batch script has put into CUDA_VISIBLE_DEVICES (run on SLURM 22.05.8). True: all
// that trains is started by srun.
bool sl_overwritten_devices(const JobScript& in, long long gpus) {
  const auto trains = [&in](const LaunchLine& line) { return starts_training_itself(line) && !in.command(line).in_substitution; };
  const bool has_any = std::any_of(in.part.lines.begin(), in.part.lines.end(), trains);
  const bool are_all = std::all_of(in.part.lines.begin(), in.part.lines.end(),
                                   [&](const LaunchLine& line) { return !trains(line) || is_under_srun(in.part, line); });
  if (!has_any || !are_all) return false;
  for (const ShellCommand& command : in.part.script.commands) {
    for (const ShellAssignment& one : command.assignments) {
      const std::string& list = one.known;
      const bool is_list = !list.empty() && list.find_first_not_of("0123456789,") == std::string::npos;
      const auto count = 1 + std::count(list.begin(), list.end(), ',');
      if (one.name != "CUDA_VISIBLE_DEVICES" || command.depth > 0 || command.is_dead || !is_list || count == gpus) continue;
      in.report.add(
          "SL038", in.d, {one.span.begin, one.span.begin + one.name.size()},
          fmt::format("srun sets CUDA_VISIBLE_DEVICES of its tasks to the {} GPUs of the job: '{}' is silently ignored", gpus, list));
      return true;
    }
  }
  return true;
}

// The GPUs of a job are numbered from 0 where SLURM hides the others, and are not the job's to choose where it does not.
void sl_devices(const JobScript& in) {
  const Directive* asked = in.directive("gpus-per-node") != nullptr ? in.directive("gpus-per-node") : in.directive("gres");
  const auto gpus = asked == nullptr ? std::nullopt : option_count(asked->name, asked->value);
  if (!gpus || sl_overwritten_devices(in, *gpus) || in.directive("exclusive") != nullptr) return;
  for (const EnvironmentSetting& one : in.d.environment) {
    if (one.name != "CUDA_VISIBLE_DEVICES" || one.value.empty()) continue;
    long long highest = -1;
    for (const std::string& device : split_words(one.value, ',')) {
      const auto n = number(device);
      highest = n ? std::max<long long>(highest, *n) : -1;
      if (!n) break;
    }
    if (highest < *gpus) continue;
    in.report.add("SL034", in.d, one.name_span,
                  fmt::format("CUDA_VISIBLE_DEVICES names device {}, the job has {} of a node's GPUs, which are numbered from 0",
                              highest, *gpus));
    return;
  }
}

// --gres and --gpus-per-node both count the GPUs of a node. Run on SLURM 22.05.8: the job gets what --gres says, SLURM_GPUS_PER_NODE
// and with it every step asks for the other number; fewer GPUs in the whole job than on a node are refused.
void sl_two_counts(const JobScript& in) {
  const Directive *gres = in.directive("gres"), *per_node = in.directive("gpus-per-node"), *all = in.directive("gpus");
  const auto count = [](const Directive* one) {
    const bool is_one_kind = one != nullptr && one->value.find(',') == std::string::npos;
    return is_one_kind ? option_count(one->name, one->value) : std::nullopt;
  };
  const auto by_gres = count(gres), by_node = count(per_node), of_job = count(all);
  if (by_gres && by_node && *by_gres != *by_node) {
    return in.report.add("SL035", in.d, per_node->span,
                         fmt::format("--gres asks for {} GPUs of a node and --gpus-per-node for {}: {}", *by_gres, *by_node,
                                     *by_node > *by_gres ? "the job gets the first number, and srun is refused the second"
                                                         : "the job holds the first number, and its steps get the second"));
  }
  const auto has_type = [](const Directive* one) {
    const size_t colon = one->value.find(':');
    return one->name == "gres" ? colon != one->value.rfind(':') : colon != std::string::npos;
  };
  if (by_gres && by_node && has_type(gres) != has_type(per_node)) {
    return in.report.add("SL035", in.d, per_node->span,
                         "--gres and --gpus-per-node: one names a type of GPU and the other none, which sbatch refuses",
                         {"", "parse", {}, {}});
  }
  const Directive* of_node = by_gres ? gres : per_node;
  const auto here = by_gres ? by_gres : by_node;
  if (here && of_job && *of_job < *here) {
    in.report.add("SL035", in.d, of_node->span,
                  fmt::format("--gpus asks for {} GPUs in the whole job, --{} for {} on each node: sbatch refuses the job", *of_job,
                              of_node->name, *here),
                  {"", "parse", {}, {}});
    return;
  }
  // select/cons_tres: the GPUs of the job are those of a node times its nodes.
  const Directive* nodes = in.directive("nodes");
  const auto num_nodes = nodes == nullptr ? std::nullopt : number(nodes->value);
  if (here && of_job && *here > 0 && (*of_job % *here != 0 || (num_nodes && *of_job != *here * *num_nodes))) {
    in.report.add("SL035", in.d, all->span,
                  fmt::format("--gpus asks for {} GPUs in the whole job, --{} for {} on each of {} nodes: sbatch refuses the job",
                              *of_job, of_node->name, *here, num_nodes ? fmt::format("{}", *num_nodes) : "its"),
                  {"", "parse", {}, {}});
  }
}

// "48:00" is minutes and seconds. Nobody asks for 48 minutes in these words; "30:00" and "60:00" are asked for.
void sl_time(const JobScript& in) {
  const Directive* time = in.directive("time");
  if (time == nullptr) return;
  static constexpr std::array<std::string_view, 7> kHours = {"24:00", "36:00", "48:00", "72:00", "96:00", "144:00", "168:00"};
  if (std::find(kHours.begin(), kHours.end(), time->value) == kHours.end()) return;
  const std::string hours = time->value.substr(0, time->value.find(':'));
  in.report.add("SL030", in.d, time->span, fmt::format("'{}' is {} minutes, not {} hours", time->value, hours, hours),
                {fmt::format("write {}:00:00 for hours, or {} for minutes", hours, hours), "", {}, {}});
}

// Nodes with GPUs have 288 cores or hardware threads at most, but for two sockets of the largest ones (768).
void sl_cores(const JobScript& in) {
  constexpr int64_t kUsual = 288, kLargest = 768;
  const int64_t tasks = in.count("ntasks-per-node"), cpus = in.count("cpus-per-task");
  if (tasks < 1 || cpus < 1 || tasks * cpus <= kUsual) return;
  in.report.add("SL031", in.d, in.directive("cpus-per-task")->span,
                fmt::format("{} tasks with {} cores each are {} cores: {} has so many", tasks, cpus, tasks * cpus,
                            tasks * cpus > kLargest ? "no node" : "hardly a node"),
                {"", "", {}, tasks * cpus > kLargest ? std::optional<Severity>() : Severity::kWarning});
}

}  // namespace

void check_job_text(const JobScript& in) {
  sl_activation(in);
  sl_conda_init(in);
  sl_placeholders(in);
  sl_empty_values(in);
  sl_two_signs(in);
  sl_words_for_numbers(in);
  if (in.is_batch) sl_own_folder(in);
  sl_unset_gpus(in);
  sl_devices(in);
  sl_two_counts(in);
  sl_time(in);
  sl_cores(in);
}

}  // namespace distsetup::lint
