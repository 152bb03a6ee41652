#include "service/job_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/file.h"
#include "base/json_text.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kCheckpointPrefix = "checkpoint_";

int64_t step_of_folder(const std::string& name) {
  int64_t step = -1;
  if (!name.starts_with(kCheckpointPrefix)) return -1;
  const char* begin = name.data() + kCheckpointPrefix.size();
  const auto [end, failure] = std::from_chars(begin, name.data() + name.size(), step);
  return failure == std::errc() && end == name.data() + name.size() ? step : -1;
}

TimeMs changed_ms(const std::string& path) {
  struct stat facts = {};
  if (::stat(path.c_str(), &facts) != 0) return 0;
  return TimeMs{facts.st_mtim.tv_sec} * 1000 + facts.st_mtim.tv_nsec / 1000000;
}

}  // namespace

Json JobFacts::json() const {
  return {{"epochs", epochs},
          {"steps_per_epoch", steps_per_epoch},
          {"steps", steps},
          {"num_rows", num_rows},
          {"retry_delay_s", retry_delay_s},
          {"model_folder", model_folder},
          {"checkpoint_dir", checkpoint_dir},
          {"identifier", identifier},
          {"strategy", strategy},
          {"backend", backend},
          {"plan", plan},
          {"held_out_one_in", held_out_one_in},
          {"has_validation", has_validation},
          {"trains_prompts", trains_prompts},
          {"is_packed", is_packed},
          {"is_capped", is_capped},
          {"longest_prompt", longest_prompt},
          {"prompt_format", prompt_format},
          {"log_every", log_every},
          {"tune_steps", tune_steps},
          {"plan_words", plan_words}};
}

JobFacts JobFacts::from(const Json& json) {
  JobFacts out;
  out.epochs = json.value("epochs", int64_t{1});
  out.steps_per_epoch = json.value("steps_per_epoch", int64_t{0});
  out.steps = json.value("steps", int64_t{0});
  out.num_rows = json.value("num_rows", int64_t{0});
  out.retry_delay_s = json.value("retry_delay_s", int64_t{5});
  out.model_folder = json.value("model_folder", "");
  out.checkpoint_dir = json.value("checkpoint_dir", "checkpoints");
  out.identifier = json.value("identifier", "");
  out.strategy = json.value("strategy", "");
  out.backend = json.value("backend", "");
  out.plan = json.value("plan", Json());
  out.held_out_one_in = json.value("held_out_one_in", int64_t{0});
  out.has_validation = json.value("has_validation", false);
  out.trains_prompts = json.value("trains_prompts", false);
  out.is_packed = json.value("is_packed", false);
  out.is_capped = json.value("is_capped", false);
  out.longest_prompt = json.value("longest_prompt", int64_t{0});
  out.prompt_format = json.value("prompt_format", "");
  out.log_every = json.value("log_every", int64_t{0});
  out.tune_steps = json.value("tune_steps", int64_t{0});
  out.plan_words = json.value("plan_words", std::vector<std::string>{});
  return out;
}

std::optional<JobFacts> JobFolder::facts() const {
  const Json json = read_json(file("job.json"));
  if (!json.is_object()) return std::nullopt;
  return JobFacts::from(json);
}

const JobArtifact* best_of(const std::vector<JobArtifact>& checkpoints) {
  const JobArtifact* best = nullptr;
  for (const JobArtifact& one : checkpoints)
    if (one.validation_loss && (best == nullptr || *one.validation_loss <= *best->validation_loss)) best = &one;
  return best != nullptr || checkpoints.empty() ? best : &checkpoints.back();
}

Json read_json(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return nullptr;
  Json json = json_from_text(*text);
  return json.is_discarded() ? Json() : json;
}

std::optional<KeeperResult> keeper_result(const JobFolder& folder, int64_t attempt) {
  const Json json = read_json(folder.attempt(attempt) + "/result.json");
  if (!json.is_object()) return std::nullopt;
  KeeperResult out;
  out.exit_code = json.value("exit_code", 1);
  out.phase = json.value("phase", "");
  out.message = json.value("message", "");
  out.is_stopped = json.value("is_stopped", false);
  out.ended_ms = json.value("ended_ms", TimeMs{0});
  return out;
}

std::string keeper_phase(const JobFolder& folder, int64_t attempt) {
  const Json json = read_json(folder.attempt(attempt) + "/progress.json");
  return json.is_object() ? json.value("phase", "") : "";
}

std::vector<JobArtifact> checkpoints_on_disk(const JobFolder& folder, const JobFacts& facts, const std::string& finetuned_model) {
  std::vector<JobArtifact> out;
  std::error_code failure;
  for (fs::directory_iterator it(folder.checkpoints(facts), failure), end; !failure && it != end; it.increment(failure)) {
    const std::string path = it->path().string();
    const int64_t step = step_of_folder(it->path().filename().string());
    if (step < 0 || !fs::exists(path + "/COMMIT", failure)) continue;
    const Json metadata = read_json(path + "/metadata.json");
    if (!metadata.is_object()) continue;
    JobArtifact one;
    one.identifier = finetuned_model + "-step-" + std::to_string(step);
    std::replace(one.identifier.begin(), one.identifier.end(), '/', '_');
    one.path = path;
    one.kind = "checkpoint";
    one.created_ms = changed_ms(path + "/COMMIT");
    one.step = metadata.value("step", step);
    one.epoch = facts.steps_per_epoch > 0 ? (one.step + facts.steps_per_epoch - 1) / facts.steps_per_epoch : 1;
    if (const auto loss = metadata.find("loss"); loss != metadata.end() && loss->is_number()) one.train_loss = loss->get<double>();
    const Json held_out = metadata.value("held_out", Json());
    if (held_out.is_object() && held_out.contains("loss") && held_out["loss"].is_number())
      one.validation_loss = held_out["loss"].get<double>();
    out.push_back(std::move(one));
  }
  std::sort(out.begin(), out.end(), [](const JobArtifact& a, const JobArtifact& b) { return a.step < b.step; });
  return out;
}

}  // namespace distsetup
