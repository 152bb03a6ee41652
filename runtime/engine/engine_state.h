// What an engine has and does: the executor, a loop over instructions; programs are calls of bound functions, the other instructions a
// switch. engine.cc is what others see of it.
#pragma once
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "plan/layout_ranges.h"
#include "runtime/engine/arena_guard.h"
#include "runtime/engine/bind.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/exchange.h"
#include "runtime/engine/feed.h"
#include "runtime/engine/host_shards.h"
#include "runtime/engine/step_meter.h"
#include "runtime/optim/loss_scale.h"
#include "runtime/optim/optimizer.h"

namespace distsetup {

struct Engine::State {
  State(const Plan& p, Schedule step, Device& d, Communicator& c, EngineOptions o);

  using Feed = std::function<void(int64_t micro_batch)>;
  void execute(BoundList& list, const Feed& feed);
  void run_instruction(BoundList& list, int index, int64_t repetition);
  void run_steps(BoundList& list, const Instruction& i);
  void metered(BoundList& list, const Instruction& i, int step, const std::function<void()>& op);  // `op` is its work
  void run_op(const Step& step, const Call& call);
  void before_step(const BoundList& list, int step) const {
    if (!guards_arenas()) return;
    for (const BoundList::ByteRange& r : list.births[size_t(step)]) open_bytes(r.data, r.num_bytes);
  }
  void after_step(BoundList& list, int step);
  std::unique_ptr<Work> start(BoundList& list, const Instruction& i);
  void optimizer_step(const Instruction& i, const Call& call);
  void correct_routers(int unit, double by);
  void decide();
  void wait(int event);
  // Of a step or an evaluation; what the reference makes where it runs in the list is not taken from outside.
  Tokens tokens_of(std::span<const int64_t> ids, std::span<const int64_t> targets, std::span<const int64_t> positions,
                   std::span<const float> reference_logps, int64_t num_micro_batches);
  void feed(const Tokens& tokens, int64_t m) { distsetup::feed(tokens, m, context, *memory, device, own_tokens, documents); }
  double scale() const { return loss_scale ? loss_scale->scale : 1; }
  void set_loss_terms(int64_t num_terms, double times, double router_share) {
    set_loss_scales(times / double(num_terms), times * router_share, *memory, device);
  }
  bool learns_preferences() const { return memory->has_run("reference_logps"); }
  void evaluate(const EvaluateInput& input, const std::function<void(int64_t micro_batch)>& after);
  bool is_metering() const { return meter.steps_left > 0; }
  // Not where memory is poisoned: lists that are wrong on purpose are known by their numbers.
  bool guards_arenas() const { return kGuardsArenas && device.host_memory() && !options.poison; }
  bool is_profiled() const { return steps_done + 1 >= options.first_profiled_step && steps_done < options.last_profiled_step; }
  double scalar(const char* name) {
    double value = 0;
    device.copy_to_host(&value, memory->run(name), sizeof(value));
    communicator.check();  // on a device with streams a collective may have failed since it was issued
    return value;
  }
  bool records(const BoundList& list) const;
  void replay(BoundList& list, int first, int end);
  void collect_times();
  std::span<float> shard(const char* name) const { return {static_cast<float*>(memory->run(name)), size_t(layout().shard_numel)}; }
  const Layout& layout() const { return *list(Phase::kStep).schedule.layout; }
  ElementRange owned_by(const UnitLayout& unit) const { return owned_range(unit, shard_index(layout(), unit, place)); }
  const Kernels& kernels_of(const Instruction& i) const { return (i.stream == Stream::kHost ? *host : device).kernels(); }
  void make_optimizers();
  void copy(const Schedule& schedule, const Instruction& i, const Call& call);
  void poison(void* data, int64_t num_bytes, bool is_on_host);
  const BoundList& list(Phase phase) const { return lists.at(phase); }

  const Plan plan;
  Device& device;
  Communicator& communicator;
  EngineOptions options;
  Coordinates place;
  OpContext context;
  std::unique_ptr<RankMemory> memory;
  std::map<Phase, BoundList> lists;
  std::unique_ptr<Device> host;                          // where the optimizer is the host's: what it computes with
  std::map<int, std::unique_ptr<Optimizer>> optimizers;  // by unit; -1: of all
  int64_t steps_done = 0, steps_skipped = 0;
  int64_t steps_here = 0;                                      // since the engine was made
  std::map<int, std::shared_ptr<const Recording>> recordings;  // of the step's list, by their first instruction
  bool is_recording = false;

  // Of the list that runs.
  struct StartedWork {
    std::unique_ptr<Work> work;                // null: nothing to wait for on the host, or waited for already
    const Instruction* instruction = nullptr;  // what signals the event; null: nothing yet
    int profiled = -1;                         // its entry in the profile
  };
  std::vector<StartedWork> events;
  StepStats stats;
  bool is_decided = false;                               // whether the optimizer's step is taken
  std::optional<LossScaleState> loss_scale;              // with fp16
  std::vector<std::pair<std::string_view, int>> timers;  // of instructions, by name, and of replays
  std::unique_ptr<Profile> profile;                      // of a step that is profiled
  double rate = 0;
  std::vector<int64_t> own_tokens;  // of a micro-batch, where ranks share sequences
  std::vector<int64_t> documents;   // OpContext::documents
  std::unique_ptr<HostShards> host_shards;
  StepMeter meter;
  Shifts shifts;
  std::vector<int64_t> row_starts;  // of an exchange of rows of experts
};

}  // namespace distsetup
