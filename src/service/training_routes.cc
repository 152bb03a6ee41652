#include "service/training_routes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <set>

#include "service/dataset_rows.h"
#include "service/job_plan.h"
#include "service/job_planning.h"
#include "service/job_queue.h"
#include "service/launcher.h"
#include "service/model_lookup.h"
#include "service/plan_shape.h"
#include "service/route_makers.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

// A folder that goes away unless it is kept.
class PlannedFolder {
 public:
  explicit PlannedFolder(std::string path) : path_(std::move(path)) {
    std::error_code failure;
    fs::remove_all(path_, failure);  // of a server that was killed before the job was in the store
    fs::create_directories(path_, failure);
    is_made_ = !failure;
  }
  ~PlannedFolder() {
    std::error_code failure;
    if (!is_kept_) fs::remove_all(path_, failure);
  }
  PlannedFolder(const PlannedFolder&) = delete;
  PlannedFolder& operator=(const PlannedFolder&) = delete;
  const std::string& path() const { return path_; }
  bool is_made() const { return is_made_; }
  void keep() { is_kept_ = true; }

 private:
  std::string path_;
  bool is_made_ = false, is_kept_ = false;
};

// One request for an id at a time.
class IdInWork {
 public:
  explicit IdInWork(const std::string& id) : id_(id) {
    const std::lock_guard lock(mutex());
    is_alone_ = ids().insert(id).second;
  }
  ~IdInWork() {
    const std::lock_guard lock(mutex());
    if (is_alone_) ids().erase(id_);
  }
  IdInWork(const IdInWork&) = delete;
  IdInWork& operator=(const IdInWork&) = delete;
  bool is_alone() const { return is_alone_; }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::set<std::string>& ids() {
    static std::set<std::string> all;
    return all;
  }
  std::string id_;
  bool is_alone_ = false;
};

std::string text_of(const Json& body, const char* key) {
  return body.contains(key) && body[key].is_string() ? body[key].get<std::string>() : "";
}

// checkpoint_dir as a path below the job's folder; an absolute one, or one that leads out of it, is none.
std::optional<std::string> checkpoint_folder(const std::string& asked) {
  if (asked.empty()) return "checkpoints";
  const fs::path path = fs::path(asked).lexically_normal();
  if (path.is_absolute() || asked.find('\0') != std::string::npos) return std::nullopt;
  for (const fs::path& part : path) {
    if (part == "..") return std::nullopt;
  }
  std::string text = path.string();
  while (text.ends_with("/")) text.pop_back();
  if (text.empty() || text == ".") return "checkpoints";
  static const std::set<std::string> kTaken = {"set",     "set.new",       "log",         "lock",     "plan.json", "job.json",
                                               kRowsFile, kValidationFile, kTuningFolder, kTunedFile, "tuning.new"};
  const std::string first = path.begin()->string();
  return kTaken.contains(first) || first.starts_with("attempt_") ? "checkpoints/" + text : text;
}

HttpAnswer no_such_model(const ServiceSettings& settings, const std::string& name) {
  std::string known;
  for (const FoundModel& one : served_models(settings)) {
    if (known.size() < 400) known += (known.empty() ? "" : ", ") + one.name;
  }
  const std::string help = settings.model_roots.empty() ? "start the service with --models FOLDER, below which models lie"
                           : known.empty()              ? "there is no model below the folders of --models"
                                                        : "there are " + known;
  return refusal(400, fmt::format("no model '{}' below the folders of --models; {}", name, help),
                 {{"model", fmt::format("no model '{}' below the folders of --models", name), help}});
}

HttpAnswer no_such_dataset(const std::string& key, const std::string& id) {
  const std::string detail = fmt::format("no data set '{}'", id);
  return refusal(400, detail,
                 {{"training_config.data_config." + key, detail, "POST /v1/datasets, or distsetup jobs submit --rows FILE.jsonl"}});
}

HttpAnswer does_not_fit(const PlanningOutcome& outcome) {
  std::string detail = "the plan does not fit";
  for (const Json& one : outcome.plan["diagnostics"]) {
    if (one.value("severity", "") == "error") detail = one.value("message", detail);
  }
  Json fixes = outcome.plan["fixes"];
  for (const Json& one : fixes) detail += "; " + one.get<std::string>();
  Json body = {{"detail", detail}, {"errors", Json::array()}, {"plan", outcome.plan}, {"fixes", fixes}};
  body["errors"].push_back({{"where", "model"}, {"message", detail}, {"help", fixes.empty() ? Json("") : fixes[0]}});
  return json_answer(body, 400);
}

// The rows as they are now: a link where the file system has them, else a copy.
bool keep_rows(const std::string& from, const std::string& to) {
  std::error_code failure;
  fs::create_hard_link(from, to, failure);
  if (!failure) return true;
  return fs::copy_file(from, to, failure) && !failure;
}

std::string identifier_for(const JobRecord& job, int64_t epochs) {
  std::string text = fmt::format("{}-fsdp-{}-{}", job.finetuned_model, job.method, epochs);
  std::replace(text.begin(), text.end(), '/', '_');
  return text;
}

std::string strategy_of(const Json& provider) {
  const Json fsdp = provider.is_object() ? provider.value("fsdp_config", Json::object()) : Json::object();
  return fsdp.value("sharding_strategy", "FULL_SHARD");
}

HttpAnswer begin_training(Service& service, const Json& body, const std::string& method) {
  const ServiceSettings& settings = service.settings;
  const std::string id = body["job_uuid"];
  const IdInWork in_work(id);
  if (!in_work.is_alone() || service.jobs->find(id)) return refusal(409, fmt::format("there is a job '{}'", id));
  const std::string asked = text_of(body, "model"), name = asked.empty() ? text_of(body, "finetuned_model") : asked;
  if (name.empty()) return refusal(422, "model is missing", {{"model", "is missing", ""}});
  const std::string dataset_id = body["training_config"]["data_config"]["dataset_id"];
  const std::optional<FoundModel> model = find_served_model(settings, name);
  if (!model) return no_such_model(settings, name);
  if (!model->has_tokenizer) return refusal(400, fmt::format("model '{}' has no tokenizer.json", name));
  if (!model->has_weights && !settings.may_start_from_random)
    return refusal(
        400,
        fmt::format("model '{}' has a config.json and no weights; --random-parameters trains such models from random ones", name));
  const std::optional<DatasetRecord> dataset = service.datasets->find(dataset_id);
  if (!dataset) return no_such_dataset("dataset_id", dataset_id);
  if (const std::optional<std::string> mistake = rows_mistake(dataset->path, method, has_chat_template(*model)))
    return refusal(400, fmt::format("data set '{}', {}", dataset_id, *mistake));
  const std::string validation_id = text_of(body["training_config"]["data_config"], "validation_dataset_id");
  const std::optional<DatasetRecord> validation = service.datasets->find(validation_id);
  if (!validation_id.empty() && !validation) return no_such_dataset("validation_dataset_id", validation_id);
  if (const std::optional<std::string> mistake =
          validation ? rows_mistake(validation->path, method, has_chat_template(*model)) : std::nullopt)
    return refusal(400, fmt::format("data set '{}', {}", validation_id, *mistake));
  const std::optional<std::string> checkpoints = checkpoint_folder(text_of(body, "checkpoint_dir"));
  if (!checkpoints)
    return refusal(400, "checkpoint_dir leads out of the job's folder",
                   {{"checkpoint_dir", "leads out of the job's folder", "a relative path, such as checkpoints"}});
  if (settings.device == "cuda" && static_cast<int64_t>(settings.devices.size()) < settings.ranks_per_node &&
      settings.launcher != LauncherKind::kSlurm)
    return refusal(400,
                   fmt::format("a job needs {} GPUs of this machine, and it has {}", settings.ranks_per_node, settings.devices.size()),
                   {{"", "there are not enough GPUs", "nproc_per_node of torch_run_config, or --device cpu"}});

  PlannedFolder folder(settings.data_folder + "/jobs/" + id);
  if (!folder.is_made()) return refusal(503, "the job's folder cannot be made: is the disk full?");
  PlanningInput input;
  input.request = body;
  input.request["model"] = name;
  input.method = method;
  input.model = model->folder;
  input.provider_text = provider_text_of(settings);
  input.provider = provider_tree_of(settings);
  input.num_rows = dataset->num_rows;
  PlanningOutcome outcome = plan_training(service, folder.path(), input);
  if (outcome.refused) return *outcome.refused;
  if (!outcome.does_fit) return does_not_fit(outcome);
  outcome.plan["recommendation"] = recommendation(folder.path(), outcome);

  JobRecord job;
  job.id = id;
  job.method = method;
  job.model = name;
  job.finetuned_model = text_of(body, "finetuned_model").empty() ? id : text_of(body, "finetuned_model");
  job.dataset_id = dataset_id;
  job.priority = body.contains("priority") && body["priority"].is_number() ? body["priority"].get<int64_t>() : 0;
  job.max_retries = settings.max_restarts;
  job.num_nodes = settings.nodes;
  job.ranks_per_node = settings.ranks_per_node;
  job.created_ms = wall_clock_ms();
  JobFacts facts;
  facts.epochs = outcome.counts.epochs;
  facts.steps_per_epoch = outcome.counts.steps_per_epoch;
  facts.steps = outcome.counts.steps;
  facts.num_rows = dataset->num_rows;
  facts.retry_delay_s = static_cast<int64_t>(settings.retry_delay_s);
  facts.model_folder = model->folder;
  facts.checkpoint_dir = *checkpoints;
  facts.identifier = identifier_for(job, facts.epochs);
  facts.strategy = strategy_of(input.provider);
  facts.backend = settings.world() == 1 ? "" : settings.device == "cuda" ? "nccl" : "gloo";
  facts.held_out_one_in = outcome.counts.held_out_one_in;
  facts.has_validation = validation.has_value();
  facts.trains_prompts = body["training_config"]["data_config"].value("train_on_input", Json()) == true;
  facts.is_packed = body["training_config"]["data_config"].value("packed", Json()) == true;
  facts.is_capped = body["training_config"].value("max_steps_per_epoch", Json(nullptr)).is_number() &&
                    body["training_config"]["max_steps_per_epoch"] > 0;
  facts.prompt_format = outcome.prompt_format;
  if (method == "dpo") facts.longest_prompt = outcome.plan.value("sequence_length", int64_t{0}) / 2;  // as the seed's trainer has it
  constexpr int64_t kLinesPerEpoch = 50;  // as the seed's trainer has, where logging_steps does not say it
  if (settings.launcher != LauncherKind::kSlurm)
    facts.log_every = outcome.log_every > 0 ? outcome.log_every : std::max<int64_t>(1, facts.steps_per_epoch / kLinesPerEpoch);
  facts.tune_steps = outcome.tune_steps;
  facts.plan_words = outcome.words;
  facts.plan = outcome.plan;
  const bool is_written = keep_rows(dataset->path, folder.path() + "/" + kRowsFile) &&
                          (!validation || keep_rows(validation->path, folder.path() + "/" + kValidationFile)) &&
                          write_file_atomic(folder.path() + "/job.json", facts.json().dump(1) + "\n", Overwrite::kForce).ok();
  if (!is_written) return refusal(503, "the job's files cannot be written: is the disk full?");
  switch (service.jobs->add(job, settings.limits.queued_jobs)) {
    case JobStore::Added::kDuplicate: return refusal(409, fmt::format("there is a job '{}'", id));
    case JobStore::Added::kFull: {
      HttpAnswer answer = refusal(429, fmt::format("{} jobs wait or run, which is the limit", settings.limits.queued_jobs));
      answer.headers.emplace_back("Retry-After", "60");
      return answer;
    }
    case JobStore::Added::kYes: break;
  }
  folder.keep();
  service.queue->notify();
  service.log->write(LogLevel::kInfo, "job_queued", {{"job_uuid", id}, {"method", method}, {"model", name}, {"steps", facts.steps}});
  return json_answer({{"job_uuid", id}});
}

HttpAnswer answer_preferences(Service& service, const HttpRequest&, const Json& body) { return begin_training(service, body, "dpo"); }
HttpAnswer answer_supervised(Service& service, const HttpRequest&, const Json& body) { return begin_training(service, body, "sft"); }

// A plan without a job: of a model that is here or a preset, on any hardware, with a configuration of the request's own.
HttpAnswer answer_plan(Service& service, const HttpRequest&, const Json& body) {
  static std::atomic<int64_t> number{0};
  PlannedFolder folder(fmt::format("{}/tmp/plan_{}_{}", service.settings.data_folder, ::getpid(), ++number));
  if (!folder.is_made()) return refusal(503, "no file can be written: is the disk full?");
  PlanningInput input;
  input.method = text_of(body, "method").empty() ? "dpo" : text_of(body, "method");
  input.request = {{"job_uuid", "plan"}, {"model", body["model"]}};
  for (const char* key : {"algorithm_config", "training_config"}) {
    if (body.contains(key) && body[key].is_object()) input.request[key] = body[key];
  }
  const std::optional<FoundModel> model = find_served_model(service.settings, body["model"]);
  input.model = model ? model->folder : body["model"].get<std::string>();
  std::error_code failure;  // no name of a file, such as one that is too long
  if (!model && fs::exists(input.model, failure))
    return refusal(400, fmt::format("'{}' is a path of the service's machine, expected the name of a model", input.model));
  input.provider_text = provider_text_of(service.settings);
  input.provider = provider_tree_of(service.settings);
  if (body.contains("config") && body["config"].is_object() && !body["config"].empty()) {
    input.provider = body["config"];
    // By these keys the file is known as the provider's.
    if (!input.provider.contains("torch_run_config"))
      input.provider["torch_run_config"] = {{"nnodes", service.settings.nodes}, {"nproc_per_node", service.settings.ranks_per_node}};
    input.provider_text = input.provider.dump(1) + "\n";
  }
  const auto over = [&input](const char* flag, const Json& value) {
    if (!value.is_null()) input.over.insert(input.over.end(), {flag, value.is_string() ? value.get<std::string>() : value.dump()});
  };
  const Json torchrun = input.provider.is_object() ? input.provider.value("torch_run_config", Json::object()) : Json::object();
  input.takes_any_trainer = true;
  over("--gpu", body.value("gpu", Json()));
  over("--nodes", body.value("nodes", torchrun.value("nnodes", Json())));
  over("--gpus", body.value("gpus_per_node", torchrun.value("nproc_per_node", Json())));
  const std::string dataset_id = body.contains("training_config") && body["training_config"].is_object() &&
                                         body["training_config"].contains("data_config") &&
                                         body["training_config"]["data_config"].is_object()
                                     ? text_of(body["training_config"]["data_config"], "dataset_id")
                                     : "";
  if (!dataset_id.empty()) {
    const std::optional<DatasetRecord> dataset = service.datasets->find(dataset_id);
    if (!dataset) return refusal(400, fmt::format("no data set '{}'", dataset_id));
    input.num_rows = dataset->num_rows;
  }
  PlanningOutcome outcome = plan_training(service, folder.path(), input);
  if (outcome.refused) return *outcome.refused;
  outcome.plan["recommendation"] = recommendation(folder.path(), outcome);
  return json_answer(outcome.plan);
}

}  // namespace

std::vector<ServiceRoute> training_routes() {
  std::vector<ServiceRoute> out;
  const RouteAnswer refused = problem_answer(
      400,
      "it cannot be done: no such model or data set, rows that cannot be trained, or a plan that does not fit, with its arithmetic");
  ServiceRoute preferences =
      new_route("POST", "/v1/post-training/preference-optimize", "preference_optimize_v1", "trains by preference pairs (DPO)");
  preferences.body = BodyNeed::kRequired;
  preferences.body_schema = "PreferenceOptimize";
  preferences.answers = {json_result("JobId", "the job is in the queue"), refused, problem_answer(409, "there is a job of that id")};
  preferences.handler = answer_preferences;
  ServiceRoute supervised = route_alias(preferences, "/v1/post-training/supervised-fine-tune", "supervised_fine_tune_v1");
  supervised.about = "trains on what an assistant should say";
  supervised.body_schema = "SupervisedFineTune";
  supervised.handler = answer_supervised;
  out.push_back(route_alias(preferences, "/v1alpha/post-training/preference-optimize", "preference_optimize_v1alpha"));
  out.push_back(route_alias(supervised, "/v1alpha/post-training/supervised-fine-tune", "supervised_fine_tune_v1alpha"));
  ServiceRoute short_one = route_alias(preferences, "/preference-optimize", "preference_optimize_short");
  short_one.mistake_status = 400;
  out.push_back(short_one);
  short_one = route_alias(supervised, "/supervised-fine-tune", "supervised_fine_tune_short");
  short_one.mistake_status = 400;
  out.push_back(short_one);
  out.push_back(std::move(preferences));
  out.push_back(std::move(supervised));
  ServiceRoute plan =
      new_route("POST", "/v1/plan", "plan", "a plan: does it fit, what memory and time are predicted, what the rule of thumb says");
  plan.body = BodyNeed::kRequired;
  plan.body_schema = "PlanRequest";
  plan.answers = {json_result("AnyObject", "the plan, whatever its verdict"), problem_answer(400, "it cannot be planned")};
  plan.handler = answer_plan;
  out.push_back(std::move(plan));
  return out;
}

}  // namespace distsetup
