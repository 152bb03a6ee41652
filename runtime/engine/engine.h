// Engine: executes compiled schedules on one rank. Binding turns every step of a list into a function pointer and prebuilt tensors
// over run buffers and one arena; executing is a loop over them. The engine decides nothing: order, lifetimes, collectives and
// offsets are the schedule's.
//
//   Engine engine(plan, device, communicator, options);
//   engine.initialize_parameters();  or fill master(), optimizer_states() from a checkpoint and set_steps_done()
//   engine.load();                   replicas in the compute dtype, where the strategy keeps any
//   engine.step({ids, targets, ...}); engine.evaluate({ids, targets, ...});
//
// Left out: data, checkpoints, printing. Errors: CommunicationError (runtime/comm), NonFiniteError, UnsupportedOpError (bind.h, from
// the constructor), std::runtime_error from libtorch.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "plan/layout.h"
#include "plan/optimizer.h"
#include "plan/plan.h"
#include "plan/preference_loss.h"
#include "plan/schedule.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/meter.h"
#include "runtime/engine/ops.h"
#include "runtime/engine/profile.h"
#include "runtime/engine/progress.h"
#include "runtime/engine/step_meter.h"
#include "weights/frozen_source.h"
#include "weights/manifest.h"

namespace distsetup {

class NonFiniteError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Tokens of this rank for one optimizer step: gradient_accumulation micro-batches, each micro_batch × sequence_length, one after
// another. Ranks that share sequences (context parallelism) are given the same tokens, whole, and take their own. targets are already
// shifted; -1 is ignored. ids and targets are checked against the vocabulary.
struct StepInput {
  std::span<const int64_t> ids, targets;
  int64_t num_terms = 0;  // what the loss is a mean of, over all ranks and micro-batches: targets that are not -1, or pairs
  double learning_rate = 0;
  // Of preference pairs (src/plan/preference_loss.h): what the reference makes of each sequence.
  std::span<const float> reference_logps = {};
  std::span<const int64_t> positions = {};  // of packed rows: each token's place in its document
};

using PreferenceNumbers = std::array<double, kNumPreferenceNumbers>;

struct OpSeconds {
  double seconds = 0;
  int64_t count = 0;
};
inline constexpr std::string_view kReplay = "Replay";
struct StepStats {
  double loss = 0;                              // mean over the global batch's trained tokens, or pairs; the same on every rank
  std::optional<PreferenceNumbers> preference;  // of pairs; the same on every rank
  double own_loss = 0;                          // of it, this rank's terms
  double gradient_norm = 0;                     // global, before clipping
  bool is_updated = true;                       // false: EngineOptions::takes_update has refused it, or is_overflow
  double loss_scale = 0, next_loss_scale = 0;  // with fp16: of this step, and of the next; 0: there is none. loss and norm are without
  bool is_overflow = false;                    // the scale has to fall: it is not fixed, the loss is finite and the norm is not
  double seconds = 0;
  double wait_s = 0;  // of it, blocked on collectives
  // By name of the instruction: "Forward", "AllGather", ... Time blocked on a collective counts for the collective; what programs
  // exchange on their way (tensor parallelism) counts for the program. On a device with
  // streams: the time on the instruction's stream, overlapped or not; wait_s then is the host's, not the streams'.
  // Instructions that are replayed together (plan/recorded_step.h) have one entry, kReplay.
  std::map<std::string, OpSeconds> by_instruction;
  std::vector<StepAllocation> allocations;  // in metered steps
  StepTrack profile;                        // of a profiled step
};

struct EngineOptions {
  // Fills the arena before a step, every range at its last use, and padding that no op writes with 0xff (NaN): results must not
  // change. Slower.
  bool poison = false;
  // In so many training steps from the first, reads the meter around every step of the list (see StepStats::allocations); needs
  // install_meter() before the engine is made. The list is the same in every step, and asking costs microseconds per op.
  int64_t metered_steps = 0;
  // Training steps, the first is 1, whose every op is timed (StepStats::profile); 0: none.
  int64_t first_profiled_step = 0, last_profiled_step = 0;
  // Called before each op of a program is started, for looking inside. On the CPU its operands are complete then; on a device with
  // streams they may still be in the making.
  std::function<void(const Step& step, const Call& call)> watch;
  // Called with loss and gradient norm before the optimizer's step. False: parameters and moments stay as they are, and the step does
  // not count for AdamW's bias correction. It has to say the same on every rank, and may throw. Without it a loss or a norm that is
  // not finite throws NonFiniteError.
  std::function<bool(const StepStats& stats)> takes_update;
  Progress* progress = nullptr;  // told of each instruction; none: nobody looks
  std::string offload_folder;    // of a local disk, for what the plan keeps there; empty: $TMPDIR, else /tmp
};

struct EvaluateInput {  // as StepInput, any number of whole micro-batches; the same number on every rank
  std::span<const int64_t> ids, targets;
  int64_t num_terms = 0;
  std::span<const float> reference_logps = {};
  std::span<const int64_t> positions = {};
};

struct MemoryReport {
  std::array<int64_t, kNumBufferClasses> run_bytes{};         // allocated, each run buffer by itself
  std::array<int64_t, kNumBufferClasses> arena_peak_bytes{};  // most of a class that the bound list has in the arena at once
  int64_t arena_bytes = 0;                                    // allocated
  int64_t host_bytes = 0;                                     // allocated in the host's memory: run buffers and its arena
  int64_t disk_bytes = 0;                                     // allocated on a local disk
  // Measured, with the meter; 0 without it.
  std::array<int64_t, Device::kNumTags> metered_bytes{};  // alive now, by what it was allocated for
  int64_t metered_peak_bytes = 0;                         // most that was ever alive, since the engine was made
  int64_t metered_workspace_bytes = 0;                    // largest undeclared need of a metered step
  // Where live buffers and metered workspace together were largest in a metered step: "Backward 41/down_dw micro-batch 0".
  std::string peak_instruction;
  int64_t peak_instruction_bytes = 0;  // run buffers + live part of the arena + workspace there
  // The same sum where it is largest in a phase of a step, "backward"; of metered steps only.
  std::map<std::string, int64_t> phase_bytes;
};

class Engine {
 public:
  // Compiles and binds the lists of the plan (load, step, evaluate) for communicator.rank().
  Engine(const Plan& plan, Device& device, Communicator& communicator, EngineOptions options = {});
  // The same with a given step list: tests execute mutants.
  Engine(const Plan& plan, Schedule step, Device& device, Communicator& communicator, EngineOptions options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // This rank's flat shard: fp32 master parameters, what the optimizer keeps, and the gradient that the last step used. layout() says
  // where each parameter's elements are (boxes_of at place()). Padding is zero. Where device memory is not the host's
  // (Device::host_memory) these are copies: valid until the next step, and what is written into them counts from load() on.
  // Where a save that training does not wait for copies them to; for plans that have one.
  std::span<float> checkpoint_copy();
  std::span<float> master();
  std::vector<StateValues> optimizer_states();
  std::span<const float> gradient() const;
  // Puts values into this rank's flat shards of what is frozen (layout.h), rounded to the compute type; and
  // bytes of what is held as nf4.
  StoreFrozen frozen_store();
  const Layout& layout() const;
  Coordinates place() const;       // of this rank in the plan's mesh
  bool writes_checkpoint() const;  // false on ranks whose shard another rank, the first that has it, writes

  // Steps so far. AdamW's bias correction counts those that changed the parameters: all but `skipped`.
  int64_t steps_done() const;
  void set_steps_done(int64_t steps, int64_t skipped = 0);

  void initialize_parameters();  // from plan.train.seed; the same values on every mesh
  void initialize_trained();     // of these, what is not frozen
  void load();
  StepStats step(const StepInput& input);
  double evaluate(const EvaluateInput& input);  // mean loss over num_terms, the same on every rank
  // Of preference pairs: what the parameters of now make of each sequence of this rank. All ranks take part; those that are not in
  // the last stage of a pipeline return zeros.
  std::vector<float> sequence_logps(const EvaluateInput& input);

  // With fp16; a checkpoint has it. A scale that is fixed by the plan stays.
  const std::optional<LossScaleState>& loss_scale() const;
  void set_loss_scale(const LossScaleState& state);

  const Schedule& schedule(Phase phase) const;  // kLoad, kStep, kEvaluate
  MemoryReport memory() const;
  int64_t peak_bytes() const;  // its metered_peak_bytes; cheap enough for every step

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distsetup
