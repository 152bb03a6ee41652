// The options that a job script gives its scheduler in comments. SLURM takes what its command line takes, long and short; PBS single
// letters; LSF words behind one dash.
#include "codegen/shell/directives.h"

#include <algorithm>
#include <array>

#include "codegen/shell/slurm_names.h"
#include "codegen/shell/words.h"

namespace distsetup::foreign {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 24> kSlurmLetters = {
    {{"N", "nodes"},        {"n", "ntasks"},   {"c", "cpus-per-task"}, {"p", "partition"},  {"t", "time"},    {"o", "output"},
     {"e", "error"},        {"i", "input"},    {"J", "job-name"},      {"G", "gpus"},       {"A", "account"}, {"a", "array"},
     {"w", "nodelist"},     {"x", "exclude"},  {"d", "dependency"},    {"C", "constraint"}, {"q", "qos"},     {"D", "chdir"},
     {"m", "distribution"}, {"L", "licenses"}, {"F", "nodefile"},      {"b", "begin"},      {"k", "no-kill"}, {"s", "oversubscribe"}}};

void name_slurm(Directive& d, const std::string& word) {
  const bool is_long = word.size() > 1 && word[1] == '-';
  const size_t equals = word.find('=');
  d.name = is_long ? word.substr(2, equals == std::string::npos ? equals : equals - 2) : word.substr(1, 1);
  d.spelled = is_long ? word.substr(0, equals) : word.substr(0, 2);
  if (is_long && equals != std::string::npos) d.value = word.substr(equals + 1);
  if (!is_long && word.size() > 2) d.value = word.substr(word[2] == '=' ? 3 : 2);
  if (!is_long) {
    const auto* known =
        std::find_if(kSlurmLetters.begin(), kSlurmLetters.end(), [&d](const auto& one) { return one.first == d.name; });
    if (known != kSlurmLetters.end()) d.name = known->second;
  }
  std::replace(d.name.begin(), d.name.end(), '_', '-');
  if (is_long) d.name = whole_slurm_name(d.name, SlurmCommand::kSbatch);
  if (d.name == "tasks-per-node") d.name = "ntasks-per-node";  // SLURM takes both
}

// "gpu:a100:4,nvme:100": a node's local disk is no GPU. Shards are parts of them, and stay beside.
std::string gpus_of(const std::string& gres) {
  if (gres.find("shard") != std::string::npos) return gres;
  for (size_t at = 0; at < gres.size();) {
    const size_t comma = std::min(gres.find(',', at), gres.size());
    const std::string_view item = std::string_view(gres).substr(at, comma - at);
    if (item == "gpu" || item.starts_with("gpu:") || item.starts_with("gpu=")) return std::string(item);
    at = comma + 1;
  }
  return gres;
}

struct DirectiveWord {
  std::string text;  // without quotes and backslashes
  TextSpan span;
};

// A scheduler takes the line apart by itself (sbatch: _get_argument of src/sbatch/opt.c): blanks, quotes, backslashes and comments are
// as in a shell, but nothing pipes or redirects there.
std::vector<DirectiveWord> words_of(std::string_view text, TextSpan line) {
  std::vector<DirectiveWord> words;
  for (size_t at = line.begin; at < line.end;) {
    if (is_shell_blank(text[at]) || text[at] == '\r') {
      ++at;
      continue;
    }
    if (text[at] == '#') break;
    DirectiveWord word;
    word.span.begin = at;
    char quote = '\0';
    for (; at < line.end && (quote != '\0' || !(is_shell_blank(text[at]) || text[at] == '\r')); ++at) {
      const char c = text[at];
      const bool is_quote = c == '"' || c == '\'';
      if (quote != '\0' && c == quote) {
        quote = '\0';
      } else if (quote == '\0' && is_quote) {
        quote = c;
      } else if (c == '\\' && quote != '\'' && at + 1 < line.end) {
        word.text += text[++at];
      } else {
        word.text += c;
      }
    }
    word.span.end = at;
    words.push_back(std::move(word));
  }
  return words;
}

}  // namespace

std::vector<Directive> read_directives(std::string_view text, TextSpan options, Scheduler scheduler) {
  std::vector<Directive> out;
  const std::vector<DirectiveWord> words = words_of(text, options);
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i].text;
    if (word.size() < 2 || word[0] != '-') continue;
    Directive d;
    d.span = words[i].span;
    d.line_end = options.end;
    if (scheduler == Scheduler::kSlurm) {
      name_slurm(d, word);
    } else if (scheduler == Scheduler::kPbs) {
      d.name = word.substr(1, 1);
      d.spelled = word.substr(0, 2);
      d.value = word.substr(2);
    } else {
      d.name = word.substr(1);
      d.spelled = word;
    }
    const bool takes_next = d.value.empty() && i + 1 < words.size() && !words[i + 1].text.empty() && words[i + 1].text[0] != '-' &&
                            words[i + 1].text[0] != '#';
    if (takes_next) {
      d.value = words[++i].text;
      d.span.end = words[i].span.end;
    }
    if (scheduler == Scheduler::kSlurm && d.name == "gres") d.value = gpus_of(d.value);
    out.push_back(std::move(d));
  }
  return out;
}

std::string options_of_sbatch(const ShellCommand& sbatch, size_t end) {
  std::string options;
  for (size_t i = 1; i < std::min(end, sbatch.expanded.size()); ++i) {
    std::string quoted = "\"";
    for (const char c : sbatch.expanded[i].text) {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
    const bool is_plain = sbatch.expanded[i].text.find_first_of(" \t\"'\\#") == std::string::npos;
    options += (options.empty() ? "" : " ") + (is_plain ? sbatch.expanded[i].text : quoted + '"');
  }
  return options;
}

std::string with_options(std::string job, const std::string& options) {
  if (options.empty()) return job;
  size_t at = 0, last = std::string::npos;  // of the first command; behind the last directive
  while (at < job.size() && (job[at] == '#' || job[at] == '\n')) {
    const size_t end = std::min(job.find('\n', at), job.size());
    if (std::string_view(job).substr(at).starts_with("#SBATCH ") && job.find(" #", at) >= end) last = end;
    at = std::min(end + 1, job.size());
  }
  if (last != std::string::npos) return job.insert(last, " " + options);
  const bool is_broken_off = at > 0 && job[at - 1] != '\n';
  return job.insert(at, (is_broken_off ? "\n#SBATCH " : "#SBATCH ") + options + "\n");
}

}  // namespace distsetup::foreign
