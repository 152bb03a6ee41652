// See start.h.
#include "runtime/start.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/diagnostic_codes.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "base/quantity.h"
#include "plan/check_job.h"
#include "plan/plan_json.h"
#include "plan/schedule.h"
#include "plan/schedule_text.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/load.h"
#include "runtime/checkpoint/load_weights.h"
#include "runtime/monitor/evaluations.h"
#include "runtime/monitor/failure.h"
#include "runtime/monitor/report.h"
#include "weights/export.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

void check_plan(const Plan& plan) {
  if (plan.strategy.trainer != "native") {
    throw Failure(kExitBadPlan, fmt::format("the plan is for the trainer '{}', expected 'native'", plan.strategy.trainer));
  }
  if (plan.verdict == Verdict::kDoesNotFit) {
    throw Failure(kExitBadPlan, "the plan is marked 'does_not_fit', expected one that fits",
                  "plan again with one of the fixes that `distsetup plan` prints");
  }
  throw_on_error(validate(plan), kExitBadPlan);
  throw_on_error(check_trainable(plan), kExitBadPlan);
  if (plan.train.steps < 1) throw Failure(kExitBadPlan, fmt::format("train.steps is {}, expected at least 1", plan.train.steps));
  if (plan.checkpoint.keep < 0 || plan.checkpoint.every_steps < 0) {
    throw Failure(kExitBadPlan, "checkpoint.keep or checkpoint.every_steps is negative");
  }
  if (const std::string digest = schedule_digest(plan); digest != plan.schedule_digest) {
    throw Failure(kExitBadPlan,
                  fmt::format("this trainer compiles another schedule than the plan was made with (digest {:.12}…, expected {:.12}…)",
                              digest, plan.schedule_digest),
                  "plan again with the distsetup of the same build: the prediction belongs to that schedule");
  }
  if (const std::vector<std::string> broken = check_job(plan); !broken.empty()) {
    throw Failure(kExitBadPlan, fmt::format("the schedule of this plan breaks a rule: {}", broken.front()),
                  "this is a mistake in distsetup: please report it with plan.json; nothing was trained");
  }
}

TrainingPlan training_plan(const std::string& text, const std::string& name) {
  Result<Plan> plan = plan_from_json(text, name);
  throw_on_error(plan.diagnostics, kExitBadPlan);
  check_plan(*plan);
  TrainingPlan training;
  training.digest = sha256(text);
  training.plan = std::move(*plan);
  return training;
}

Diagnostics keep_plan(const TrainingPlan& training) {
  std::error_code failure;
  fs::create_directories(training.output, failure);
  Plan plan = training.plan;
  const fs::path from = fs::weakly_canonical(training.output, failure);
  const auto seen_from_there = [&from](const std::string& path) {
    std::error_code ignored;
    const fs::path here = fs::weakly_canonical(path.empty() ? "." : path, ignored);
    return fs::path(path).is_absolute() ? path : here.lexically_relative(from).string();
  };
  if (!plan.data.files.empty()) plan.data.root = seen_from_there(plan.data.root);
  if (!plan.weights.files.empty()) plan.weights.directory = seen_from_there(plan.weights.directory);
  if (!plan.adapter.files.empty()) plan.adapter.directory = seen_from_there(plan.adapter.directory);
  plan.checkpoint.directory = seen_from_there(plan.checkpoint.directory);
  return write_file_atomic((fs::path(training.output) / "plan.json").string(), dump_json(to_json(plan)), Overwrite::kForce)
      .diagnostics;
}

Diagnostics prepare_directory(const std::string& directory, int64_t checkpoint_bytes) {
  std::error_code failure;
  fs::create_directories(directory, failure);
  if (failure || ::access(directory.c_str(), W_OK | X_OK) != 0) {
    const int number = failure ? failure.value() : errno;
    return {error(code::kUnwritableFile, {directory}, fmt::format("cannot write into '{}', {}", directory, errno_text(number)))};
  }
  const fs::space_info space = fs::space(directory, failure);
  const int64_t free_bytes = static_cast<int64_t>(space.available);
  if (failure || free_bytes >= checkpoint_bytes) return {};
  return {error(
      code::kUnwritableFile, {directory},
      fmt::format("'{}' has {} free, one checkpoint takes {}", directory, format_bytes(free_bytes), format_bytes(checkpoint_bytes)),
      "make room, or name another --output")};
}

}  // namespace

TrainingPlan read_training_plan(const std::string& plan_path, const std::string& output) {
  const Result<std::string> text = read_file(plan_path);
  throw_on_error(text.diagnostics, kExitBadPlan);
  TrainingPlan training = training_plan(*text, plan_path);
  training.directory = fs::path(plan_path).parent_path().string();
  training.output = output.empty() ? training.directory : output;
  training.checkpoint_directory = (fs::path(training.output) / training.plan.checkpoint.directory).string();
  return training;
}

TrainingPlan asked_training_plan(const std::string& text, const std::string& output) {
  TrainingPlan training = training_plan(text, "the planner's answer");
  training.is_asked = true;
  training.checkpoint_directory = training.plan.checkpoint.directory;
  training.output = output.empty() ? training.checkpoint_directory : output;
  return training;
}

Diagnostics prepare_run(const TrainingPlan& training, RunLock& lock) {
  Diagnostics found = prepare_directory(training.checkpoint_directory, training.plan.memory.checkpoint_bytes);
  if (!has_error(found)) append(found, lock.take(training.checkpoint_directory));
  for (const Diagnostic& one : found)
    if (one.severity == Severity::kWarning) fmt::print(stderr, "warning: {}\n", one.message);
  if (!has_error(found) && training.is_asked) append(found, keep_plan(training));
  return found;
}

std::optional<CheckpointMetadata> newest_checkpoint(const std::string& directory, std::vector<std::string>& refused) {
  for (int64_t step : list_checkpoints(directory)) {
    const Result<CheckpointMetadata> metadata = verify_checkpoint(directory, step);
    if (metadata.ok()) return *metadata;
    refused.push_back(fmt::format("checkpoint_{} is refused: {}", step, metadata.diagnostics.front().message));
  }
  return std::nullopt;
}

bool is_finished(const CheckpointMetadata& newest, const Plan& plan) {
  return newest.step >= plan.train.steps || lost_patience(newest.held_out, plan.train.patience);
}

std::string finished_text(const CheckpointMetadata& newest, const TrainingPlan& training) {
  const TrainPlan& train = training.plan.train;
  const std::string why =
      newest.step < train.steps ? fmt::format(", after {} evaluations without a smaller held-out loss", train.patience) : "";
  return fmt::format("this run is finished: {} holds step {} of {}{}, nothing is left to do\n",
                     checkpoint_path(training.checkpoint_directory, newest.step), newest.step, train.steps, why);
}

void check_resume(const CheckpointMetadata& metadata, const std::string& path, const Corpus& corpus, const Plan& plan) {
  const char* const help = "name another --output, or plan with the same data, order, sequence length and seed";
  if (metadata.data_digest != corpus.digest) {
    throw Failure(
        kExitFailed,
        fmt::format("'{}' was trained on other data, another sequence length or another order of the data than this plan's", path),
        help);
  }
  if (metadata.seed != plan.train.seed) {
    throw Failure(kExitFailed, fmt::format("'{}' was trained with seed {}, expected {}", path, metadata.seed, plan.train.seed), help);
  }
  const CheckpointMetadata& m = metadata;
  if (m.cursor.epoch < 0 || m.cursor.position > training_rows(corpus, m.seed, m.cursor.epoch).size()) {
    throw Failure(kExitFailed, fmt::format("the data position of '{}' lies outside the data", path));
  }
}

void check_frozen(const std::string& stored, const std::string& found, const std::string& path, const Plan& plan) {
  if (stored == found) return;
  const std::string source =
      starts_from_weights(plan) ? fmt::format("the weights in '{}'", plan.weights.directory) : std::string("the seed's first values");
  throw Failure(kExitFailed,
                fmt::format("'{}' was trained beside frozen parameters of the digest {}, {} have {}", path,
                            stored.empty() ? "(none)" : stored, source, found.empty() ? "(none)" : found),
                "give the weights that the run began with, or name another --output");
}

std::string write_adapter(Communicator& communicator, const TrainingPlan& training, const std::string& checkpoint) {
  if (!tuning_of(training.plan.train).has_adapters()) return "";
  const std::string folder = (fs::path(training.output) / "adapter").string();
  Plan plan = training.plan;
  plan.weights.directory = (fs::path(training.directory) / plan.weights.directory).string();
  const ExportRequest request = {checkpoint, folder, StoredType::kF32, 0, Overwrite::kForce, false};
  agree(communicator, communicator.rank() == 0 ? export_adapter(plan, request).diagnostics : Diagnostics{}, kExitFailed);
  return folder;
}

void check_start(const TrainingPlan& training, const std::optional<CheckpointMetadata>& newest, const Corpus& corpus) {
  if (newest)
    check_resume(*newest, checkpoint_path(training.checkpoint_directory, newest->step), corpus, training.plan);
  else if (starts_from_weights(training.plan))
    throw_on_error(open_weights(training.plan, training.directory).diagnostics, kExitBadEnvironment);
}

namespace {

std::string data_text(const Plan& plan, const Corpus& corpus) {
  const std::string sequences = format_count(static_cast<int64_t>(corpus.training.size()));
  if (plan.data.tokenizer == kPreparedTokens) {
    const std::string_view what = learns_preferences(plan.train) ? "pairs" : "sequences";
    const std::string packed =
        plan.data.packing ? fmt::format(" packed in {} rows", format_count(training_rows(corpus, plan.train.seed, 0).size())) : "";
    return fmt::format("a prepared set, {} {}{}, {} trained tokens an epoch; {} {} held out, {} trained tokens", sequences, what,
                       packed, format_count(corpus.training_tokens), format_count(static_cast<int64_t>(corpus.held_out.size())), what,
                       format_count(corpus.held_out_tokens));
  }
  const std::vector<DataFile>& files = plan.data.files;
  const int64_t num_held_out = std::count_if(files.begin(), files.end(), [](const DataFile& file) { return file.held_out; });
  return fmt::format("{} files, {} sequences, {} tokens an epoch; {} files held out, {} tokens",
                     static_cast<int64_t>(files.size()) - num_held_out, sequences, format_count(corpus.training_tokens), num_held_out,
                     format_count(corpus.held_out_tokens));
}

}  // namespace

std::string start_text(const TrainingPlan& training, const Corpus& corpus, const std::optional<CheckpointMetadata>& newest,
                       const std::string& device) {
  const Plan& plan = training.plan;
  RunFacts facts;
  facts.data = data_text(plan, corpus);
  const int64_t every = plan.checkpoint.every_steps;
  facts.checkpoint = fmt::format("{}, {}, keep {}", training.checkpoint_directory,
                                 every > 0 ? fmt::format("every {} steps", every) : "at the end", plan.checkpoint.keep);
  facts.start =
      newest ? fmt::format("checkpoint_{}, {} of {} steps are done", newest->step, newest->step, plan.train.steps)
      : starts_from_weights(plan)
          ? fmt::format("from the weights in {}", (fs::path(training.directory) / plan.weights.directory).lexically_normal().string())
          : "from the beginning";
  facts.device = device;
  return format_start(plan, facts);
}

}  // namespace distsetup
