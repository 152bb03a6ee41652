#include "service/slurm_job.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "service/job_folder.h"
#include "service/sibling_program.h"

namespace distsetup {
namespace {

constexpr int kJobFailedCode = 6;
constexpr size_t kShownBytes = size_t{1} << 16;
constexpr auto kLook = std::chrono::seconds(2);

// Of `scontrol show job`: "JobState=RUNNING"; "": SLURM does not know the job any more.
std::string field_of_job(const std::string& number, const std::string& name) {
  const Said said = run_program({"scontrol", "--oneliner", "show", "job", number}, 60, "", Spawn::Errors::kDropped);
  for (const std::string& word : said.started&& said.code == 0 ? split_words(said.text, ' ') : std::vector<std::string>{}) {
    if (word.starts_with(name + "=")) return word.substr(name.size() + 1);
  }
  return "";
}

bool is_in_queue(const std::string& state) {
  return state == "PENDING" || state == "RUNNING" || state == "CONFIGURING" || state == "COMPLETING" || state == "SUSPENDED" ||
         state == "REQUEUED" || state == "STOPPED";
}

// A job is in SLURM's queue, though it is not in our file: the keeper was killed before it could write the number down.
std::string number_of_folder(const std::string& folder) {
  const std::optional<std::vector<SlurmJob>> jobs = own_slurm_jobs();
  for (const SlurmJob& one : jobs.value_or(std::vector<SlurmJob>{})) {
    if (one.folder == folder) return one.number;
  }
  return "";
}

// The number that sbatch gave; "": it was refused.
std::string submit_job(const std::vector<std::string>& flags) {
  std::vector<std::string> words = {sibling_program(), "launch", "--plan", "plan.json", "--target", "slurm", "--yes", "--force"};
  words.insert(words.end(), flags.begin(), flags.end());
  std::string number;
  const Said said = follow_program(words, [&number](std::string_view line) {
    if (line.find_first_not_of("0123456789") == std::string_view::npos && !line.empty()) number = line;
    return true;
  });
  fmt::print(stderr, "{}", said.text);
  return said.code == 0 ? number : "";
}

// What the job wrote, into ours: its files are named after its number.
void show_output(const std::string& folder, const std::string& number) {
  std::error_code failure;
  for (std::filesystem::directory_iterator it(folder, failure), end; !failure && it != end; it.increment(failure)) {
    const std::string name = it->path().filename().string();
    if (name.find(number) == std::string::npos || !name.starts_with("slurm-")) continue;
    const Result<std::string> text = read_file(it->path().string());
    if (text.ok()) fmt::print("{}", text->substr(text->size() - std::min(text->size(), kShownBytes)));
  }
}

}  // namespace

std::optional<std::vector<SlurmJob>> own_slurm_jobs() {
  const Said said = run_program({"squeue", "--noheader", "--user", std::to_string(::getuid()), "--format", "%A|%Z"}, 60, "",
                                Spawn::Errors::kDropped);
  if (!said.started || said.code != 0) return std::nullopt;
  std::vector<SlurmJob> out;
  for (const std::string& line : split_words(said.text, '\n')) {
    const size_t bar = line.find('|');
    if (bar != std::string::npos) out.push_back({line.substr(0, bar), line.substr(bar + 1)});
  }
  return out;
}

bool cancel_slurm_job(const std::string& number) {
  return run_program({"scancel", number}, 60, "", Spawn::Errors::kDropped).code == 0;
}

int run_slurm_phase(const std::string& folder, const std::vector<std::string>& flags) {
  sigset_t awaited;
  sigemptyset(&awaited);
  for (const int number : {SIGTERM, SIGINT}) sigaddset(&awaited, number);
  ::sigprocmask(SIG_BLOCK, &awaited, nullptr);
  const std::string path = folder + "/slurm_job.json";
  const Json before = read_json(path);
  std::string number = before.is_object() ? before.value("number", "") : "";
  if (number.empty() || !is_in_queue(field_of_job(number, "JobState"))) number = number_of_folder(folder);
  if (number.empty()) number = submit_job(flags);
  if (number.empty()) return 1;
  (void)write_file_atomic(path, Json{{"number", number}}.dump() + "\n", Overwrite::kForce);
  fmt::print("job {} of SLURM\n", number);
  std::fflush(stdout);
  std::string state = field_of_job(number, "JobState"), shown;
  while (is_in_queue(state)) {
    if (state != shown) fmt::print("job {}: {}\n", number, state);
    shown = state;
    std::fflush(stdout);
    const timespec wait = {kLook.count(), 0};
    if (::sigtimedwait(&awaited, nullptr, &wait) > 0) (void)cancel_slurm_job(number);
    state = field_of_job(number, "JobState");
  }
  const std::string code = field_of_job(number, "ExitCode");
  show_output(folder, number);
  fmt::print("job {}: {}, exit code {}\n", number, state.empty() ? "gone" : state, code);
  return state == "COMPLETED" ? 0 : kJobFailedCode;
}

}  // namespace distsetup
