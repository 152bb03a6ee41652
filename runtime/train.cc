// See train.h. A run is a straight line of phases; the current one's name goes into the error line. Everything that can fail on one
// rank alone (a file, a disk, a checkpoint) is followed by agree(), so that all ranks end together.
#include "runtime/train.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "runtime/ask_plan.h"
#include "runtime/checkpoint/collective.h"
#include "runtime/checkpoint/load.h"
#include "runtime/checkpoint/saver.h"
#include "runtime/connect.h"
#include "runtime/data/corpus.h"
#include "runtime/data/reference.h"
#include "runtime/data/sampler.h"
#include "runtime/device/cpu_device.h"
#include "runtime/device/meter.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/threads.h"
#include "runtime/monitor/curve.h"
#include "runtime/monitor/environment.h"
#include "runtime/monitor/evaluations.h"
#include "runtime/monitor/failure.h"
#include "runtime/monitor/live_numbers.h"
#include "runtime/monitor/metrics.h"
#include "runtime/monitor/profile_file.h"
#include "runtime/monitor/replicas.h"
#include "runtime/monitor/report.h"
#include "runtime/monitor/signals.h"
#include "runtime/monitor/stage_memory.h"
#include "runtime/monitor/step_guard.h"
#include "runtime/monitor/step_line.h"
#include "runtime/monitor/trace_file.h"
#include "runtime/monitor/watchdog.h"
#include "runtime/optim/learning_rate.h"
#include "runtime/start.h"

namespace distsetup {
namespace {
namespace fs = std::filesystem;
constexpr int64_t kMeteredSteps = 3;        // whose every op is asked what it allocated
constexpr int64_t kReplicaCheckSteps = 50;  // parameter checksums across replicas

class Run {
 public:
  explicit Run(const TrainOptions& options) : options_(options) {}
  const RankEnvironment& environment() const { return environment_; }
  const std::string& phase() const { return phase_; }
  void outlast_readers() {
    if (real_communicator_ != nullptr) real_communicator_->outlast_readers();
  }

  int run() {
    catch_early_signals();
    enter("environment");
    Result<RankEnvironment> environment = read_environment();
    throw_on_error(environment.diagnostics, kExitBadEnvironment);
    environment_ = std::move(*environment);
    enter("plan");
    read_plan();
    if (options_.dry_run) return dry_run();
    connect();
    agree(*communicator_, first() ? live_.serve(options_.metrics_address, plan_) : Diagnostics{}, kExitBadEnvironment);
    enter("data");
    Result<Corpus> corpus = read_corpus(plan_, training_.directory, environment_.local_rank == 0 ? Verify::kDigests : Verify::kSizes);
    agree(*communicator_, corpus.diagnostics, kExitBadEnvironment);
    corpus_ = std::move(*corpus);
    enter("checkpoint");
    agree(*communicator_, first() ? prepare_run(training_, lock_) : Diagnostics{}, kExitBadEnvironment);
    const FoundCheckpoint found = find_checkpoint(*communicator_, place_.directory);
    for (const auto& refused : found.refused) say("checkpoint_{} is refused: {}", refused.first, refused.second);
    place_.refused = found.refused_steps;
    if (found.newest && is_finished(*found.newest, plan_)) {
      if (first()) fmt::print("{}", finished_text(*found.newest, training_));
      return kExitDone;
    }
    enter("load");
    build_engine();
    start_from(found.newest);
    train();
    return kExitDone;
  }

 private:
  std::string enter(const std::string& phase) {  // returns the one before
    if (watchdog_ != nullptr) watchdog_->enter(phase);
    return std::exchange(phase_, phase);
  }
  bool first() const { return environment_.rank == 0; }
  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) const {
    fmt::print(stderr, "{}\n", fmt::format(format, std::forward<Args>(args)...));
  }

  void read_plan() {
    training_ = options_.flags.empty() ? read_training_plan(options_.plan_path, options_.output_dir)
                                       : asked_training_plan(ask_for_plan(options_.flags, environment_), options_.output_dir);
    const bool anywhere = options_.dry_run && environment_.source == "no launcher";
    if (!anywhere) throw_on_error(check_environment(environment_, plan_), kExitBadEnvironment);
    guard_ = StepGuard(plan_.train.guard);
    place_ = {training_.checkpoint_directory, retention_of(plan_.checkpoint), training_.digest, {}};
  }

  int dry_run() {
    enter("data");
    Result<Corpus> corpus = read_corpus(plan_, training_.directory);
    throw_on_error(corpus.diagnostics, kExitBadEnvironment);
    corpus_ = std::move(*corpus);
    enter("checkpoint");
    std::vector<std::string> refused;
    const std::optional<CheckpointMetadata> newest = newest_checkpoint(place_.directory, refused);
    for (const std::string& why : first() ? refused : std::vector<std::string>{}) say("{}", why);
    check_start(training_, newest, corpus_);
    if (!first()) return kExitDone;
    print_start(newest);
    fmt::print("dry run: the plan, its schedule, the environment and {} data files are as they should be; nothing was trained\n",
               plan_.data.files.size());
    return kExitDone;
  }

  void connect() {
    enter("device");
    device_ = open_gpu(plan_, environment_);
    enter("rendezvous");
    real_communicator_ = connect_ranks(plan_, training_.digest, environment_, device_.get());
    communicator_ = real_communicator_.get();
    if (plan_.mesh.world() > 1) {
      watchdog_ = std::make_unique<Watchdog>(*real_communicator_, plan_.mesh, plan_.launch.collective_timeout_s);
      communicator_ = &watchdog_->communicator();
    }
    if (!options_.trace_path.empty()) {
      trace_ = std::make_unique<TraceFile>(*communicator_, options_.trace_path);
      communicator_ = &trace_->communicator();
    }
  }

  void build_engine() {
    if (!device_) install_meter();  // of CPU memory; a GPU's device brings its own
    set_compute_threads(options_.num_threads > 0 ? options_.num_threads : compute_threads(environment_.local_world));
    if (!device_) device_ = make_cpu_device();
    const EngineOptions options = {.poison = options_.poison,
                                   .metered_steps = kMeteredSteps,
                                   .first_profiled_step = options_.first_profiled_step,
                                   .last_profiled_step = options_.last_profiled_step,
                                   .takes_update = [this](const StepStats& stats) { return takes_update(stats); },
                                   .progress = watchdog_ != nullptr ? &watchdog_->progress() : nullptr,
                                   .offload_folder = options_.offload_folder};
    engine_ = std::make_unique<Engine>(plan_, *device_, *communicator_, options);
    saver_ = std::make_unique<CheckpointSaver>(*communicator_, place_, engine_->checkpoint_copy());
    if (options_.first_profiled_step > 0) profile_.open(training_.output, environment_.rank, engine_->place().pp, training_.digest);
    sampler_ = std::make_unique<Sampler>(corpus_, plan_, environment_.rank);
    held_out_ = held_out_batch(corpus_, plan_, environment_.rank);
  }

  ShardState shard() { return {&engine_->layout(), engine_->place(), engine_->master(), engine_->optimizer_states()}; }

  void load_start() {
    if (!starts_from_weights(plan_) || engine_->layout().tuning.has_adapters()) engine_->initialize_trained();
    if (starts_from_weights(plan_)) load_planned_weights(*communicator_, plan_, training_.directory, shard());
  }

  void start_from(const std::optional<CheckpointMetadata>& newest) {
    frozen_digest_ = load_planned_frozen(*communicator_, plan_, training_.directory, engine_->layout(), engine_->frozen_store());
    bool is_at_start = false;  // the engine
    if (learns_preferences(plan_.train)) {
      enter("reference");
      const auto load = [&] { load_start(), engine_->load(), is_at_start = true; };
      reference_ = settle_reference({plan_, corpus_, place_.directory, newest.has_value(), load}, *engine_, *communicator_);
      enter("load");
    }
    if (newest) {
      check_frozen(newest->frozen_digest, frozen_digest_, checkpoint_path(place_.directory, newest->step), plan_);
      check_resume(*newest, checkpoint_path(place_.directory, newest->step), corpus_, plan_);
      agree(*communicator_, load_shard(place_.directory, newest->step, shard()), kExitFailed);
      sampler_->seek(newest->cursor);
      done_ = newest->step;
      saver_->set_newest(done_);
      loss_ = newest->loss;
      guard_.restore(newest->losses);
      if (newest->loss_scale) engine_->set_loss_scale(*newest->loss_scale);
      evaluations_.resume(newest->held_out);
    } else if (!is_at_start) {
      load_start();
    }
    check_same_step(*communicator_, done_);
    engine_->set_steps_done(done_, guard_.history().skipped);
    engine_->load();
    Diagnostics mine;
    if (first()) {
      const fs::path output = training_.output;
      const Result<int64_t> dropped = metrics_.open((output / "metrics.jsonl").string(), newest ? done_ : -1,
                                                    options_.tensorboard ? (output / "tensorboard").string() : "");
      mine = dropped.diagnostics;
      if (dropped.ok() && *dropped > 0)
        say("metrics.jsonl: {} lines after step {} are dropped, these steps are trained again", *dropped, done_);
    }
    agree(*communicator_, mine, kExitFailed);
    if (first()) print_start(newest);
  }

  void print_start(const std::optional<CheckpointMetadata>& newest) const {
    fmt::print("{}", start_text(training_, corpus_, newest, device_ ? device_->description() : "not started"));
    std::fflush(stdout);
  }

  void evaluate() {
    if (corpus_.held_out.empty() || evaluations_.has(done_)) return;
    const std::string phase = enter(fmt::format("evaluation after step {}", done_));
    const double loss = engine_->evaluate(
        {held_out_.ids, held_out_.targets, held_out_.num_terms, logps_of(reference_.held_out, held_out_.own), held_out_.positions});
    check_evaluation(loss, plan_.train.guard);
    evaluations_.add(done_, loss);
    live_.evaluation(loss);
    if (first()) {
      throw_on_error(metrics_.write(evaluation_line(done_, loss)), kExitFailed);
      fmt::print("{}", evaluation_text(done_, loss, terminal_columns()));
      std::fflush(stdout);
    }
    enter(phase);
  }

  // Every rank answers alike. A step that is refused leaves its line in metrics.jsonl; one that ends the run does not.
  bool takes_update(const StepStats& stats) {
    const auto& judgement = stats.is_overflow ? guard_.overflow(stats) : guard_.judge(stats.loss, stats.gradient_norm);
    if (judgement.why.empty()) return true;
    const std::string what =
        judgement.why + origin_of_nan(*communicator_, stats, rows_, engine_->layout(), engine_->place(), engine_->gradient());
    if (judgement.answer == StepGuard::Answer::kStop) throw Failure(kExitFailed, what, help_after(judgement, plan_.train.guard));
    const bool takes = judgement.answer == StepGuard::Answer::kTake;
    if (first()) fmt::print("step {:>6}  {}{}\n", done_ + 1, takes ? "" : "skipped: ", what);
    return takes;
  }

  void step() {
    enter(fmt::format("training step {}", done_ + 1));
    const double begin_s = now_s();
    const Batch batch = sampler_->next();
    rows_ = batch.own;
    const double rate = learning_rate(plan_.train, done_);
    const std::vector<float> reference = logps_of(reference_.training, batch.own);
    const StepStats stats = engine_->step({batch.ids, batch.targets, batch.num_terms, rate, reference, batch.positions});
    device_->synchronize();
    const double step_s = now_s() - begin_s;
    ++done_, ++done_here_, last_rate_ = rate;
    if (std::isfinite(stats.loss)) loss_ = stats.loss;
    time_.add(stats, step_s);
    if (trace_) trace_->end_step(done_);
    profile_.add(done_, stats.profile);
    Json used;
    if (done_here_ <= kMeteredSteps) used = memory_json(plan_, memory_as_planned(*communicator_, plan_, engine_->memory()));
    if (first()) tell(stats, used, {done_, rate, sampler_->cursor().tokens, batch.global_valid_tokens, step_s, engine_->peak_bytes()});
  }

  void tell(const StepStats& stats, const Json& memory, const StepFacts& facts) {
    if (std::isfinite(stats.loss)) curve_.push_back({done_, stats.loss});
    throw_on_error(metrics_.write(step_line(facts, stats, guard_.last(), memory)), kExitFailed);
    live_.step(facts, stats, guard_.history().skipped, facts.peak_bytes);
    if (done_here_ > 1 && !has_line(done_, plan_.train.steps, options_.log_every)) return;
    const RunSoFar run = {time_.mean().step_s * static_cast<double>(plan_.train.steps - done_), facts.peak_bytes, live_.goodput()};
    fmt::print("{}", step_text(facts, stats, plan_, run, terminal_columns()));
    std::fflush(stdout);
  }

  void save(CheckpointSaver::When when) {
    const std::string phase = enter(fmt::format("checkpoint of step {}", done_));
    if (place_.retention.keep_best > 0 && place_.retention.metric == CheckpointMetric::kHeldOutLoss) evaluate();
    check_replicas(*communicator_, engine_->layout(), engine_->master());
    CheckpointMetadata metadata = {.step = done_,
                                   .tokens = sampler_->cursor().tokens,
                                   .loss = loss_,
                                   .learning_rate = last_rate_,
                                   .cursor = sampler_->cursor(),
                                   .seed = plan_.train.seed,
                                   .data_digest = corpus_.digest,
                                   .frozen_digest = frozen_digest_,
                                   .losses = guard_.history()};
    metadata.loss_scale = engine_->loss_scale();
    evaluations_.describe(metadata);
    print_news(saver_->save(shard(), engine_->writes_checkpoint(), metadata, when), first());
    enter(phase);
  }

  void train() {
    enter("training");
    catch_stop_signals();
    reset_meter_peak();
    note_memory("start");
    if (done_ == 0) evaluate();
    const int64_t steps = plan_.train.steps, every = plan_.checkpoint.every_steps, evaluate_every = evaluation_interval(plan_.train);
    const auto goes_on = [&] { return done_ < steps && !lost_patience(evaluations_.record(), plan_.train.patience); };
    while (goes_on()) {
      const int signal = agreed_stop_signal(*communicator_);
      const bool enough = options_.stop_after > 0 && done_here_ >= options_.stop_after;
      if (signal != 0 || enough) return stop_early(signal);
      if (trace_) trace_->begin_step();
      step();
      if (done_ % evaluate_every == 0 || done_ == steps) evaluate();
      if (const auto news = saver_->poll()) print_news({*news}, first());
      if ((every > 0 && done_ % every == 0) || !goes_on())
        save(goes_on() ? CheckpointSaver::When::kBeside : CheckpointSaver::When::kAtOnce);
      else if (done_ % kReplicaCheckSteps == 0)
        check_replicas(*communicator_, engine_->layout(), engine_->master());
    }
    if (first() && done_ < steps) fmt::print("{}", patience_text(done_, plan_.train.patience));
    note_memory("trained");
    enter("adapter");
    const std::string adapter = write_adapter(*communicator_, training_, checkpoint_path(place_.directory, done_));
    if (first() && !adapter.empty()) fmt::print("step {:>6}  adapters written to {}\n", done_, adapter);
    finish("completed");
  }

  void note_memory(const std::string& when) { moments_.push_back(memory_now(*communicator_, when, environment_.local_rank)); }

  void stop_early(int signal) {
    note_memory("trained");
    if (done_ > 0) save(CheckpointSaver::When::kAtOnce);
    if (first()) fmt::print("{}", stopped_text(signal, done_here_, done_, plan_.train.steps, checkpoint_name(done_)));
    finish("stopped");
  }

  // Every rank takes part; rank 0 prints and writes. Before any step nothing is reported.
  void finish(const std::string& status) {
    enter("report");
    if (done_here_ == 0) return;
    const std::vector<double> peaks = peaks_of_all(*communicator_, engine_->memory());
    const MemoryReport memory = memory_as_planned(*communicator_, plan_, engine_->memory());
    note_memory("end");
    Diagnostics mine;
    if (first()) {
      fmt::print("{}", format_curve(curve_, evaluations_.curve()));
      mine = report_end({status, done_, plan_.train.steps, done_here_, guard_.history().skipped, engine_->loss_scale(), loss_,
                         evaluations_.loss(), sampler_->cursor().tokens, place_.plan_digest, plan_.schedule_digest,
                         plan_.memory.peak_instruction, peaks, live_.goodput(), moments_},
                        plan_, memory, time_.mean(), training_.output);
    }
    agree(*communicator_, mine, kExitFailed);
  }

  const TrainOptions options_;
  RankEnvironment environment_;
  std::string phase_ = "start";
  TrainingPlan training_;
  const Plan& plan_ = training_.plan;
  CheckpointPlace place_;
  RunLock lock_;
  Corpus corpus_;
  ReferenceLogps reference_;
  std::unique_ptr<Device> device_;  // outlives the communicator, which uses its streams
  std::unique_ptr<Communicator> real_communicator_;
  std::unique_ptr<Watchdog> watchdog_;
  std::unique_ptr<TraceFile> trace_;
  ProfileFile profile_;
  StepGuard guard_{GuardPlan()};  // the plan's, once it is read
  std::vector<int64_t> rows_;     // windows of this rank in the step that runs
  Communicator* communicator_ = nullptr;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<CheckpointSaver> saver_;
  std::unique_ptr<Sampler> sampler_;
  Batch held_out_;
  MetricsFile metrics_;
  TimeMeter time_;
  LiveNumbers live_;
  int64_t done_ = 0, done_here_ = 0;
  std::string frozen_digest_;  // of the parameters that are frozen; "": none is
  double loss_ = 0, last_rate_ = 0;
  Evaluations evaluations_;
  std::vector<LossPoint> curve_;
  std::vector<MemoryMoment> moments_;
};

}  // namespace

int run_training(const TrainOptions& options) {
  Run run(options);
  Failure failure(kExitFailed, "");
  try {
    return run.run();
  } catch (...) {
    failure = failure_of(std::current_exception(), run.phase() == "rendezvous");
  }
  std::fflush(stdout);
  fmt::print(stderr, "rank {} on {}, {}, {}{}\n", run.environment().rank,
             run.environment().host.empty() ? "this host" : run.environment().host, run.phase(), failure.what(),
             failure.help().empty() ? "" : "; help: " + failure.help());
  std::fflush(stderr);
  if (failure.exit_code() == kExitPeer) run.outlast_readers();
  ::_exit(failure.exit_code());  // destructors would wait for peers that may be gone
}

}  // namespace distsetup
