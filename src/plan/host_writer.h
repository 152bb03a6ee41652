// What a list does where master, gradient and the optimizer's states are the host's, which takes the step (OffloadPlan::optimizer),
// in its memory or, master and states, on a local disk:
//   of each unit   its gradient is copied down when it is summed: straight into the host's gradient, or, where that has the sum of
//                  micro-batches before, into a buffer (H) that the host adds. The copy is waited for one unit later.
//   then           the host takes the norm, which goes up to be summed over ranks,
//   of each unit   the host updates the master and rounds it into a buffer (U), which is copied up while it updates the next unit.
// Where parameters are the host's as well (OffloadPlan::parameters), a unit's stay where they were rounded, and are copied up when it
// is gathered; what is frozen lies there too. Copies have streams of their own. Which buffers a unit's gradient comes from, and where
// parameters go, is unit_compiler.h's.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "plan/schedule_writer.h"
#include "plan/update_writer.h"

namespace distsetup {

inline bool has_host_optimizer(const Plan& plan) { return plan.offload.optimizer != OffloadPlace::kNone; }
inline bool has_host_parameters(const Plan& plan) { return plan.offload.parameters != OffloadPlace::kNone; }
// Why this plan cannot have on the host what it says; empty: it can, or need not. And what to do about it.
struct OffloadProblem {
  std::string message, help;
};
OffloadProblem offload_problem(const Plan& plan);
// "optimizer on a local disk, parameters on the host"; "": everything stays on the device.
std::string offload_words(const OffloadPlan& offload);

class HostWriter {
 public:
  explicit HostWriter(ScheduleWriter& writer) : w_(writer) {}

  // `buffers`: the host's, but for sumsq. Adds one of its own.
  void begin(const UpdateBuffers& buffers);

  // The gradient of a unit in `source`, a rank's own elements: it is free once it is copied. `event`: of a sum that is under way, -1:
  // none. adds: to what micro-batches before have left.
  void gradient(int u, int source, int event, bool adds);
  void finish_gradient();  // what is under way

  // What the host does next comes after everything on the compute stream until here.
  void follow_compute();
  // The norm of all gradients, in sumsq, summed over `group`. The host goes on when it is there.
  void norm(Group group);
  // What the optimizer does between the two. Adafactor's sums are the host's, and go over its device to the other ranks and back.
  // Muon's matrices are the devices': for each unit the host's part goes up, and what its step takes comes down.
  void prepare_step();
  // A rank's elements of what Muon orthogonalises, copied to its own part of `target`, which begins to live. Returns the copy's event.
  int momentum(int u, int target);
  // What the step takes in place of the gradient of matrices; `from` is free then.
  void take_directions(int u, int from);
  // The host's step of a unit; -1: of none, where all that a stage has is frozen.
  void step(int u);
  // A unit's master in the compute type, copied to its own elements of `target`. Returns the copy's event.
  int parameters(int u, int target);
  // The same, where `target` is the host's: it is there when the host goes on.
  void round(int u, int target);
  void finish_parameters();  // once the compute stream has waited for what follows their copies

 private:
  struct Copy {
    int unit = -1, from = -1, to = -1, event = -1;
    bool adds = false;
  };
  int host_span(std::string name, int u, Dtype dtype);
  Instruction& on_host(InstructionOp op, int u);
  void release_oldest();
  void sum_over_ranks(int sums);
  int update_span(std::string name, int64_t numel, Dtype dtype, int u);

  ScheduleWriter& w_;
  UpdateBuffers b_;
  int host_sumsq_ = -1;
  Copy gradient_;               // under way
  int copied_ = -1;             // event of the last gradient that went straight down, unless the host has waited for a later one
  int next_wait_ = -1;          // event that the next thing on the host waits for
  std::vector<Copy> raised_;    // parameters under way
  std::vector<int> prepared_;   // what the step frees
  std::map<int, int> momenta_;  // by unit, on their way through Muon
  bool has_stepped_ = false;
};

}  // namespace distsetup
