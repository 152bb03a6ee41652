// Seconds of one step: a cost per operation and per collective, and streams that wait for each other as the schedule says.
#pragma once
#include <set>

#include "plan/live.h"
#include "plan/schedule.h"
#include "planner/native/op_time.h"

namespace distsetup {

struct Fabric;

// A step's schedule as plain numbers, in the order of its instructions: what simulate walks for seconds and bytes. Lists of plans that
// differ in the micro-batch alone are the same; `programs` then costs another number of tokens (program_time, profile).
struct StepList {
  struct TimedItem {
    InstructionOp op = InstructionOp::kForward;
    uint8_t stream = 0;
    int16_t program = -1, live_variant = -1;  // of kForward and kBackward
    bool ends_backward = false;               // of a micro-batch on this stage: the lowest unit that backward reaches
    bool waits_for_stage = false;             // for a message of another stage
    int first_wait = 0, num_waits = 0, signals = -1;
    double seconds = 0;  // of all others
    LiveChange live;
  };
  std::vector<TimedItem> items;
  std::vector<int> waits;
  std::vector<Segment> segments;
  int num_events = 0;
  std::vector<UnitProgram> programs;
  struct LiveVariant {
    int program = 0;
    std::set<int> elsewhere;  // tensors that lie in buffers of the step (pipelines)
  };
  std::vector<LiveVariant> live_variants;  // what programs' profiles are taken of
  Dtype compute = Dtype::kF32;
  // Buffers that live all the run: these, and for each token and each sequence of a micro-batch.
  int64_t run_bytes = 0, run_bytes_per_token = 0, run_bytes_per_sequence = 0;
  int64_t host_run_bytes = 0;  // those that the host has in its memory
  int64_t message_bytes = 0;   // of a pipeline: what a stage sends to the next for one micro-batch
  double flops_per_token = 0;
};
StepList step_list(const Plan& plan, const Schedule& schedule);

Fabric fabric_of(const HardwarePlan& hardware);  // what transfers between its GPUs go over

double straggling(const Plan& plan);  // the slowest of many ranks sets the pace: a factor of a step's seconds

// One collective over `group` that moves `bytes` (the full message of a gather or reduction).
double collective_s(const Plan& plan, InstructionOp op, Group group, int64_t bytes);

// The first or the second hop of a reduction (plan/node_reduction.h).
double hop_s(const Plan& plan, Group group, Hop hop, int node_ranks, int64_t bytes);
// What arrives for a chunk of so many elements is added up; `ranks` share its unit.
double sums_s(const Plan& plan, Hop hop, double chunk, double ranks, int node_ranks, double element_bytes);
// The first of two hops of a reduction of chunks of so many elements, one for each rank of the group; where it goes in one, all of it.
double first_hop_s(const Plan& plan, Group group, double chunk, double element_bytes);
// Transfers of a reduction, in one hop or two: of chunks of so many elements, one for each rank of the group.
double reduction_s(const Plan& plan, Group group, double chunk, double element_bytes);

// Rates of a step that takes so long without stragglers; nothing of its instructions.
TimePlan time_plan(const Plan& plan, const StepList& list, double busy_s);

// times: per program of the list. Micro-batches between the first and the last are one segment, done as often as the plan says.
TimePlan step_time(const Plan& plan, const StepList& list, const std::vector<ProgramTime>& times);

}  // namespace distsetup
