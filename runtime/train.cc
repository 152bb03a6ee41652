// See train.h. A run is a straight line of phases; the current one's name goes into the error line. Everything that can fail on one
// rank alone (a file, a disk, a checkpoint) is followed by agree(), so that all ranks end together.
#include "runtime/train.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/quantity.h"
#include "base/value.h"
#include "plan/schedule.h"
#include "runtime/checkpoint/collective.h"
#include "runtime/comm/nccl.h"
#include "runtime/comm/tracing.h"
#include "runtime/data/corpus.h"
#include "runtime/data/sampler.h"
#include "runtime/device/meter.h"
#include "runtime/device/plugin.h"
#include "runtime/engine/engine.h"
#include "runtime/monitor/curve.h"
#include "runtime/monitor/environment.h"
#include "runtime/monitor/failure.h"
#include "runtime/monitor/metrics.h"
#include "runtime/monitor/replicas.h"
#include "runtime/monitor/report.h"
#include "runtime/monitor/signals.h"
#include "runtime/optim/learning_rate.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNumEvaluations = 10;     // of the held-out files over a run, besides start and end
constexpr int64_t kNumConsoleLines = 100;   // step lines on the terminal; metrics.jsonl has every step
constexpr int64_t kReplicaCheckSteps = 50;  // parameter checksums across replicas

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class Run {
 public:
  explicit Run(const TrainOptions& options) : options_(options) {}

  const RankEnvironment& environment() const { return environment_; }
  const std::string& phase() const { return phase_; }

  int run() {
    catch_early_signals();
    phase_ = "environment";
    Result<RankEnvironment> environment = read_environment();
    throw_on_error(environment.diagnostics, kExitBadEnvironment);
    environment_ = std::move(*environment);
    phase_ = "plan";
    read_plan();
    if (options_.dry_run) return dry_run();
    connect();
    phase_ = "data";
    Result<Corpus> corpus = read_corpus(plan_, plan_directory_);
    agree(*communicator_, corpus.diagnostics, kExitBadEnvironment);
    corpus_ = std::move(*corpus);
    phase_ = "checkpoint";
    prepare_output();
    const FoundCheckpoint found = find_checkpoint(*communicator_, place_.directory);
    for (const auto& refused : found.refused) say("checkpoint_{} is refused: {}", refused.first, refused.second);
    place_.refused = found.refused_steps;
    if (found.newest && found.newest->step >= plan_.train.steps) {
      if (first())
        fmt::print("this run is finished: {} holds step {} of {}, nothing is left to do\n",
                   checkpoint_path(place_.directory, found.newest->step), found.newest->step, plan_.train.steps);
      return kExitDone;
    }
    phase_ = "load";
    build_engine();
    start_from(found.newest);
    train();
    return kExitDone;
  }

 private:
  bool first() const { return environment_.rank == 0; }

  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) const {
    fmt::print(stderr, "{}\n", fmt::format(format, std::forward<Args>(args)...));
  }

  void read_plan() {
    const Result<std::string> text = read_file(options_.plan_path);
    throw_on_error(text.diagnostics, kExitBadPlan);
    Result<Plan> plan = plan_from_json(*text, options_.plan_path);
    throw_on_error(plan.diagnostics, kExitBadPlan);
    plan_ = std::move(*plan);
    plan_directory_ = fs::path(options_.plan_path).parent_path().string();
    place_.plan_digest = sha256(*text);
    if (plan_.strategy.trainer != "native")
      throw Failure(kExitBadPlan, fmt::format("the plan is for the trainer '{}', expected 'native'", plan_.strategy.trainer));
    if (plan_.verdict == Verdict::kDoesNotFit)
      throw Failure(kExitBadPlan, "the plan is marked 'does_not_fit', expected one that fits",
                    "plan again with one of the fixes that `distsetup plan` prints");
    throw_on_error(validate(plan_), kExitBadPlan);
    if (plan_.train.steps < 1) throw Failure(kExitBadPlan, fmt::format("train.steps is {}, expected at least 1", plan_.train.steps));
    if (plan_.checkpoint.keep < 0 || plan_.checkpoint.every_steps < 0)
      throw Failure(kExitBadPlan, "checkpoint.keep or checkpoint.every_steps is negative");
    if (const std::string digest = schedule_digest(plan_); digest != plan_.schedule_digest) {
      throw Failure(
          kExitBadPlan,
          fmt::format("this trainer compiles another schedule than the plan was made with (digest {:.12}…, expected {:.12}…)", digest,
                      plan_.schedule_digest),
          "plan again with the distsetup of the same build: the prediction belongs to that schedule");
    }
    if (!options_.dry_run || environment_.source != "no launcher")
      throw_on_error(check_environment(environment_, plan_), kExitBadEnvironment);
    output_ = options_.output_dir.empty() ? plan_directory_ : options_.output_dir;
    place_.directory = (fs::path(output_) / plan_.checkpoint.directory).string();
    place_.keep = plan_.checkpoint.keep;
    place_.mesh = plan_.mesh;
  }

  int dry_run() {
    phase_ = "data";
    Result<Corpus> corpus = read_corpus(plan_, plan_directory_);
    throw_on_error(corpus.diagnostics, kExitBadEnvironment);
    corpus_ = std::move(*corpus);
    phase_ = "checkpoint";
    std::optional<CheckpointMetadata> newest;
    for (int64_t step : list_checkpoints(place_.directory)) {
      const Result<CheckpointMetadata> metadata = verify_checkpoint(place_.directory, step);
      if (metadata.ok()) {
        newest = *metadata;
        break;
      }
      if (first()) say("checkpoint_{} is refused: {}", step, metadata.diagnostics.front().message);
    }
    if (newest) check_resume(*newest);
    if (!first()) return kExitDone;
    print_start(newest);
    fmt::print("dry run: the plan, its schedule, the environment and {} data files are as they should be; nothing was trained\n",
               plan_.data.files.size());
    return kExitDone;
  }

  void connect() {
    const bool cuda = plan_.hardware.accelerator == Accelerator::kCuda;
    if (cuda) {
      phase_ = "device";
      try {
        device_ = load_cuda_device(environment_.local_rank);
      } catch (const DeviceError& error) {
        throw Failure(kExitBadEnvironment, fmt::format("the plan is for '{}': {}", plan_.hardware.gpu, error.what()), error.help());
      }
    }
    phase_ = "rendezvous";
    Rendezvous rendezvous = environment_.rendezvous;
    rendezvous.init_timeout_s = plan_.launch.init_timeout_s;
    rendezvous.collective_timeout_s = plan_.launch.collective_timeout_s;
    real_communicator_ = plan_.mesh.world() == 1 ? make_self_communicator(plan_.mesh) : make_gloo_communicator(plan_.mesh, rendezvous);
    if (cuda && plan_.mesh.world() > 1) {
      const NcclOptions nccl = {"", rendezvous.init_timeout_s, rendezvous.collective_timeout_s};
      real_communicator_ = make_nccl_communicator(plan_.mesh, *device_, std::move(real_communicator_), nccl);
    }
    communicator_ = real_communicator_.get();
    if (!options_.trace_path.empty()) {
      tracer_ = std::make_unique<TracingCommunicator>(*real_communicator_);
      communicator_ = tracer_.get();
    }
  }

  // The directory can be made and written to, and one checkpoint fits on the disk.
  void prepare_output() {
    Diagnostics mine;
    if (first()) {
      std::error_code failure;
      fs::create_directories(place_.directory, failure);
      if (failure || ::access(place_.directory.c_str(), W_OK | X_OK) != 0) {
        mine.push_back(
            error(code::kUnwritableFile, {place_.directory},
                  fmt::format("cannot write into '{}', {}", place_.directory, errno_text(failure ? failure.value() : errno))));
      } else if (const fs::space_info space = fs::space(place_.directory, failure);
                 !failure && static_cast<int64_t>(space.available) < plan_.memory.checkpoint_bytes) {
        mine.push_back(
            error(code::kUnwritableFile, {place_.directory},
                  fmt::format("'{}' has {} free, one checkpoint takes {}", place_.directory,
                              format_bytes(static_cast<int64_t>(space.available)), format_bytes(plan_.memory.checkpoint_bytes)),
                  "make room, or name another --output"));
      }
    }
    agree(*communicator_, mine, kExitBadEnvironment);
  }

  void build_engine() {
    if (!device_) install_meter();  // of CPU memory; a GPU's device brings its own
    set_compute_threads(options_.num_threads > 0 ? options_.num_threads : compute_threads(environment_.local_world));
    if (!device_) device_ = make_cpu_device();
    engine_ = std::make_unique<Engine>(plan_, *device_, *communicator_, EngineOptions{options_.poison, true});
    sampler_ = std::make_unique<Sampler>(corpus_, plan_, environment_.rank);
    held_out_ = held_out_batch(corpus_, plan_, environment_.rank);
  }

  void check_resume(const CheckpointMetadata& metadata) const {
    const std::string which = checkpoint_path(place_.directory, metadata.step);
    const char* const help = "name another --output, or plan with the same data, sequence length and seed";
    if (metadata.data_digest != corpus_.digest)
      throw Failure(kExitFailed, fmt::format("'{}' was trained on other data or another sequence length than this plan's", which),
                    help);
    if (metadata.seed != plan_.train.seed)
      throw Failure(kExitFailed, fmt::format("'{}' was trained with seed {}, expected {}", which, metadata.seed, plan_.train.seed),
                    help);
    if (metadata.cursor.position > static_cast<int64_t>(corpus_.training.size()))
      throw Failure(kExitFailed, fmt::format("the data position of '{}' lies outside the data", which));
  }

  ShardState shard() {
    return {&engine_->layout(), engine_->shard_index(), engine_->master(), engine_->moment1(), engine_->moment2()};
  }

  void start_from(const std::optional<CheckpointMetadata>& newest) {
    if (newest) {
      check_resume(*newest);
      agree(*communicator_, load_shard(place_.directory, newest->step, shard()), kExitFailed);
      sampler_->seek(newest->cursor);
      done_ = saved_step_ = newest->step;
      loss_ = newest->loss;
    } else {
      engine_->initialize_parameters();
    }
    double steps[2] = {static_cast<double>(done_), static_cast<double>(done_) * static_cast<double>(done_)};
    communicator_->control_sum(steps, 2);
    const double world = communicator_->world();
    CHECK(steps[0] == world * static_cast<double>(done_) && steps[1] == steps[0] * static_cast<double>(done_),
          "ranks start at different steps");
    engine_->set_steps_done(done_);
    engine_->load();
    Diagnostics mine;
    if (first()) {
      const Result<int64_t> dropped = metrics_.open((fs::path(output_) / "metrics.jsonl").string(), newest ? done_ : -1);
      mine = dropped.diagnostics;
      if (dropped.ok() && *dropped > 0)
        say("metrics.jsonl: {} lines after step {} are dropped, these steps are trained again", *dropped, done_);
    }
    agree(*communicator_, mine, kExitFailed);
    if (first()) print_start(newest);
  }

  void print_start(const std::optional<CheckpointMetadata>& newest) const {
    const int64_t num_held_out =
        std::count_if(plan_.data.files.begin(), plan_.data.files.end(), [](const DataFile& file) { return file.held_out; });
    RunFacts facts;
    facts.data = fmt::format("{} files, {} sequences, {} tokens an epoch; {} files held out, {} tokens",
                             static_cast<int64_t>(plan_.data.files.size()) - num_held_out,
                             format_count(static_cast<int64_t>(corpus_.training.size())), format_count(corpus_.training_tokens),
                             num_held_out, format_count(corpus_.held_out_tokens));
    facts.checkpoint =
        fmt::format("{}, {}, keep {}", place_.directory,
                    plan_.checkpoint.every_steps > 0 ? fmt::format("every {} steps", plan_.checkpoint.every_steps) : "at the end",
                    plan_.checkpoint.keep);
    facts.start = newest ? fmt::format("checkpoint_{}, {} of {} steps are done", newest->step, newest->step, plan_.train.steps)
                         : "from the beginning";
    facts.device = device_ ? device_->description() : "not started";
    fmt::print("{}", format_start(plan_, facts));
    std::fflush(stdout);
  }

  void evaluate() {
    if (corpus_.held_out.empty()) return;
    const std::string phase = std::exchange(phase_, fmt::format("evaluation after step {}", done_));
    const double loss = engine_->evaluate({held_out_.ids, held_out_.targets, held_out_.global_valid_tokens});
    if (!std::isfinite(loss)) throw Failure(kExitFailed, fmt::format("the held-out loss is {}", loss));
    held_out_loss_ = loss;
    held_out_curve_.push_back({done_, loss});
    if (first()) {
      throw_on_error(metrics_.write({{"kind", "evaluation"}, {"step", done_}, {"held_out_loss", loss}}), kExitFailed);
      fmt::print("step {:>6}  held-out loss {:.4f}\n", done_, loss);
      std::fflush(stdout);
    }
    phase_ = phase;
  }

  void step() {
    phase_ = fmt::format("training step {}", done_ + 1);
    const double begin_s = now_s();
    const Batch batch = sampler_->next();
    const double rate = learning_rate(plan_.train, done_);
    const StepStats stats = engine_->step({batch.ids, batch.targets, batch.global_valid_tokens, rate});
    if (!std::isfinite(stats.loss)) throw Failure(kExitFailed, fmt::format("the loss is {}", stats.loss));
    device_->synchronize();
    const double step_s = now_s() - begin_s;
    ++done_;
    ++done_here_;
    loss_ = stats.loss;
    last_rate_ = rate;
    time_.add(stats, step_s);
    write_trace();
    if (!first()) return;
    curve_.push_back({done_, stats.loss});
    const double tokens_per_s = static_cast<double>(batch.global_valid_tokens) / step_s;
    throw_on_error(metrics_.write({{"kind", "step"},
                                   {"step", done_},
                                   {"loss", stats.loss},
                                   {"learning_rate", rate},
                                   {"gradient_norm", stats.gradient_norm},
                                   {"tokens", sampler_->cursor().tokens},
                                   {"valid_tokens", batch.global_valid_tokens},
                                   {"step_s", step_s},
                                   {"tokens_per_s", tokens_per_s},
                                   {"wait_s", stats.wait_s}}),
                   kExitFailed);
    const int64_t every = std::max<int64_t>(1, plan_.train.steps / kNumConsoleLines);
    if (done_ % every != 0 && done_ != plan_.train.steps && done_here_ > 1) return;
    fmt::print("step {:>6}  loss {:.4f}  lr {:.2e}  grad norm {:.3f}  {} tokens/s  {} (predicted {})\n", done_, stats.loss, rate,
               stats.gradient_norm, format_count(std::llround(tokens_per_s)), format_duration(step_s),
               format_duration(plan_.time.step_s));
    std::fflush(stdout);
  }

  void write_trace() {
    if (!tracer_) return;
    Json records = Json::array();
    for (const CommunicationRecord& record : tracer_->records()) {
      records.push_back({{"op", record.op},
                         {"group", name(record.group)},
                         {"channel", static_cast<int>(record.channel)},
                         {"bytes", record.bytes},
                         {"event", record.event},
                         {"waited", record.waited}});
    }
    tracer_->clear();
    const std::string path = first() ? options_.trace_path : fmt::format("{}.rank{}", options_.trace_path, environment_.rank);
    std::ofstream file(path, done_here_ == 1 ? std::ios::trunc : std::ios::app);
    file << Json({{"step", done_}, {"records", records}}).dump() << '\n';
    if (!file.flush()) throw Failure(kExitFailed, fmt::format("cannot write '{}'", path));
  }

  void compare_replicas() {
    const std::string phase = std::exchange(phase_, fmt::format("comparison of replicas after step {}", done_));
    check_replicas(*communicator_, engine_->layout().shard_ranks, engine_->shard_index(), engine_->master());
    phase_ = phase;
  }

  void save() {
    if (saved_step_ == done_) return;
    const std::string phase = std::exchange(phase_, fmt::format("checkpoint of step {}", done_));
    compare_replicas();
    CheckpointMetadata metadata = {done_,         sampler_->cursor().tokens, loss_, last_rate_, sampler_->cursor(), plan_.train.seed,
                                   corpus_.digest};
    for (const std::string& complaint : save_checkpoint(*communicator_, place_, shard(), engine_->writes_checkpoint(), metadata))
      say("{}", complaint);
    saved_step_ = done_;
    phase_ = phase;
  }

  // Whether any rank was asked to stop; the signal, 0 = none.
  int asked_to_stop() {
    double signals[2] = {stop_signal() != 0 ? 1.0 : 0.0, static_cast<double>(stop_signal())};
    communicator_->control_sum(signals, 2);
    return signals[0] > 0 ? static_cast<int>(signals[1] / signals[0]) : 0;
  }

  void train() {
    phase_ = "training";
    catch_stop_signals();
    reset_meter_peak();
    if (tracer_) tracer_->clear();
    if (done_ == 0) evaluate();
    if (tracer_) tracer_->clear();
    const int64_t steps = plan_.train.steps, evaluate_every = std::max<int64_t>(1, steps / kNumEvaluations),
                  save_every = plan_.checkpoint.every_steps;
    while (done_ < steps) {
      const int signal = asked_to_stop();
      const bool enough = options_.stop_after > 0 && done_here_ >= options_.stop_after;
      if (signal != 0 || enough) return stop_early(signal);
      if (tracer_) tracer_->clear();
      step();
      if (done_ % evaluate_every == 0 || done_ == steps) evaluate();
      if ((save_every > 0 && done_ % save_every == 0) || done_ == steps)
        save();
      else if (done_ % kReplicaCheckSteps == 0)
        compare_replicas();
    }
    finish("completed");
  }

  void stop_early(int signal) {
    if (done_ > 0) save();
    if (first()) {
      const std::string why =
          signal != 0 ? fmt::format("stopped by signal {}", signal) : fmt::format("stopped after {} steps as asked", done_here_);
      fmt::print("{} at step {} of {}{}; run the same command to go on\n", why, done_, plan_.train.steps,
                 done_ > 0 ? fmt::format(", saved as {}", checkpoint_name(done_)) : ", nothing was trained");
      std::fflush(stdout);
    }
    finish("stopped");
  }

  // Every rank takes part; rank 0 prints and writes. Before any step nothing is reported.
  void finish(const std::string& status) {
    phase_ = "report";
    if (done_here_ == 0) return;
    const MemoryReport memory = engine_->memory();
    std::vector<double> peaks(static_cast<size_t>(communicator_->world()), 0.0);
    peaks[static_cast<size_t>(communicator_->rank())] = static_cast<double>(memory.metered_peak_bytes);
    communicator_->control_sum(peaks.data(), static_cast<int64_t>(peaks.size()));
    Diagnostics mine;
    if (first()) {
      const MeasuredTime time = time_.mean();
      const std::vector<Comparison> rows = compare(plan_, memory, time);
      Json report = {{"schema_version", 1},
                     {"status", status},
                     {"step", done_},
                     {"steps", plan_.train.steps},
                     {"optimizer_steps", done_here_},
                     {"loss", loss_},
                     {"tokens", sampler_->cursor().tokens},
                     {"plan_digest", place_.plan_digest},
                     {"schedule_digest", plan_.schedule_digest},
                     {"comparison", comparison_json(rows)},
                     {"peak_allocated_bytes_by_rank", Json::array()},
                     {"predicted_peak_instruction", plan_.memory.peak_instruction},
                     {"measured_peak_instruction", memory.peak_instruction},
                     {"wait_s", time.wait_s},
                     {"timed_steps", time.num_steps}};
      for (double peak : peaks) report["peak_allocated_bytes_by_rank"].push_back(static_cast<int64_t>(peak));
      if (held_out_loss_) report["held_out_loss"] = *held_out_loss_;
      fmt::print("{}", format_curve(curve_, held_out_curve_));
      fmt::print("{} at step {} of {}: loss {:.4f}{}\n{}", status, done_, plan_.train.steps, loss_,
                 held_out_loss_ ? fmt::format(", held-out loss {:.4f}", *held_out_loss_) : "", format_comparison(rows));
      std::fflush(stdout);
      mine = write_file_atomic((fs::path(output_) / "report.json").string(), dump_json(report), Overwrite::kForce).diagnostics;
    }
    agree(*communicator_, mine, kExitFailed);
  }

  const TrainOptions options_;
  RankEnvironment environment_;
  std::string phase_ = "start";
  Plan plan_;
  std::string plan_directory_, output_;
  CheckpointPlace place_;
  Corpus corpus_;
  std::unique_ptr<Device> device_;  // outlives the communicator, which uses its streams
  std::unique_ptr<Communicator> real_communicator_;
  std::unique_ptr<TracingCommunicator> tracer_;
  Communicator* communicator_ = nullptr;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Sampler> sampler_;
  Batch held_out_;
  MetricsFile metrics_;
  TimeMeter time_;
  int64_t done_ = 0, done_here_ = 0, saved_step_ = 0;
  double loss_ = 0, last_rate_ = 0;
  std::optional<double> held_out_loss_;
  std::vector<LossPoint> curve_, held_out_curve_;
};

}  // namespace

int run_training(const TrainOptions& options) {
  Run run(options);
  int code = kExitFailed;
  std::string what, help;
  try {
    return run.run();
  } catch (const Failure& failure) {
    code = failure.exit_code();
    what = failure.what();
    help = failure.help();
  } catch (const CommunicationError& failure) {
    code = run.phase() == "rendezvous" ? kExitBadEnvironment : kExitPeer;
    what = failure.what();
  } catch (const std::bad_alloc&) {
    what = "out of memory";
  } catch (const std::exception& failure) {
    what = failure.what();
    what = what.substr(0, what.find('\n'));
  }
  std::fflush(stdout);
  fmt::print(stderr, "rank {} on {}, {}, {}{}\n", run.environment().rank,
             run.environment().host.empty() ? "this host" : run.environment().host, run.phase(), what,
             help.empty() ? "" : "; help: " + help);
  std::fflush(stderr);
  ::_exit(code);  // destructors would wait for peers that may be gone
}

}  // namespace distsetup
