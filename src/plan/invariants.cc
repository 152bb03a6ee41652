// What must hold for every schedule, checked by walking it. Tests run this on random and on all small plans; the trainer runs it once
// before the first step. Each violated rule is one message.
#include "plan/invariants.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "plan/activation_rules.h"
#include "plan/host_writer.h"
#include "plan/live.h"
#include "plan/memory_rules.h"
#include "plan/node_reduction.h"
#include "plan/update_rules.h"

namespace distsetup {
namespace {

class ScheduleChecker {
 public:
  ScheduleChecker(const Plan& plan, const Schedule& s)
      : plan_(plan),
        s_(s),
        backward_(touched_by_units(s, InstructionOp::kBackward)),
        alive_(s.buffers.size()),
        allocated_(s.buffers.size()) {
    for (size_t b = 0; b < s.buffers.size(); ++b)
      if (s.buffers[b].lifetime == BufferLifetime::kRun) alive_[b] = s.phase != Phase::kLoad;
  }

  std::vector<std::string> run() {
    segments();
    for (index_ = 0; index_ < static_cast<int>(s_.instructions.size()); ++index_) instruction(s_.instructions[index_]);
    end();
    return std::move(out_);
  }

 private:
  template <class... A>
  void require(bool holds, fmt::format_string<A...> text, A&&... args) {
    if (!holds) out_.push_back(fmt::format("instruction {}: {}", index_, fmt::format(text, std::forward<A>(args)...)));
  }
  void say(const std::string& problem) { require(problem.empty(), "{}", problem); }
  bool is_step() const { return s_.phase == Phase::kStep; }
  bool is_pipeline() const { return plan_.mesh.pp > 1; }
  const UnitLayout& unit(int u) const { return s_.layout->units[u]; }

  void segments() {
    int next = 0;
    for (const Segment& g : s_.segments) {
      require(g.first_instruction == next && g.num_instructions >= 0 && g.repeat >= 1, "segment at {} does not follow {}",
              g.first_instruction, next);
      next = g.first_instruction + g.num_instructions;
    }
    require(next == static_cast<int>(s_.instructions.size()), "segments cover {} of {} instructions", next, s_.instructions.size());
    int64_t micro_batches = 0;
    if (is_step())
      for (const Segment& g : s_.segments) micro_batches += g.repeat;
    if (is_step() && !is_pipeline())
      require(micro_batches == plan_.gradient_accumulation, "{} micro-batches run, accumulation is {}", micro_batches,
              plan_.gradient_accumulation);
  }

  void instruction(const Instruction& i) {
    for (const int e : i.waits) {
      require(signalled_.contains(e), "waits for event {} that nothing before it signals", e);
      in_flight_.erase(e);
    }
    for (const int b : i.allocates) allocate(b);
    for (const int b : i.uses) require(b >= 0 && alive_[b], "{} uses '{}' that is not allocated", name(i.op), s_.buffers[b].name);
    // What belongs to the update has rules of its own.
    switch (belongs_to_update(s_, i) ? InstructionOp::kWait : i.op) {
      case InstructionOp::kCast: cast(i); break;
      case InstructionOp::kAllGather: gather(i); break;
      case InstructionOp::kForward:
      case InstructionOp::kBackward: compute(i); break;
      case InstructionOp::kReduceScatter: reduce(i); break;
      case InstructionOp::kAccumulate: accumulate(i); break;
      case InstructionOp::kAllReduce: all_reduce(i); break;
      case InstructionOp::kGradNorm: grad_norm(i); break;
      case InstructionOp::kOptimizerStep: optimizer(i); break;
      case InstructionOp::kSend:
      case InstructionOp::kRecv: transfer(i); break;
      case InstructionOp::kCopyToHost: copy_to_host(i); break;
      case InstructionOp::kCopyToDevice: copy_to_device(i); break;
      default: break;
    }
    if (i.signals >= 0) {
      require(signalled_.insert(i.signals).second, "event {} is signalled twice", i.signals);
      in_flight_[i.signals] = i.uses;
      if (i.op == InstructionOp::kCopyToDevice) filling_[i.signals] = {i.uses.back(), i.unit};
      for (const int b : i.allocates) in_flight_[i.signals].push_back(b);
    }
    for (const int b : i.frees) {
      require(alive_[b] && s_.buffers[b].lifetime != BufferLifetime::kRun, "frees '{}' that is not a live span buffer",
              s_.buffers[b].name);
      for (const auto& [event, buffers] : in_flight_)
        require(event == i.signals || std::find(buffers.begin(), buffers.end(), b) == buffers.end(),
                "frees '{}' while event {} is in flight", s_.buffers[b].name, event);
      alive_[b] = false;
      filled_.erase(b);
      std::erase_if(cast_, [b](const auto& c) { return c.first == b; });
    }
  }

  void allocate(int b) {
    const bool run = s_.buffers[b].lifetime == BufferLifetime::kRun;
    require(!allocated_[b], "allocates '{}' a second time", s_.buffers[b].name);
    require(!run || s_.phase == Phase::kLoad, "allocates run buffer '{}' outside load", s_.buffers[b].name);
    allocated_[b] = alive_[b] = true;
  }

  bool is_moving(int buffer) const {
    return std::any_of(in_flight_.begin(), in_flight_.end(), [buffer](const auto& transfer) {
      return std::find(transfer.second.begin(), transfer.second.end(), buffer) != transfer.second.end();
    });
  }

  bool is_filling(int buffer, int u) const {
    return std::any_of(in_flight_.begin(), in_flight_.end(), [&](const auto& transfer) {
      const auto found = filling_.find(transfer.first);
      return found != filling_.end() && found->second == std::pair(buffer, u);
    });
  }

  void cast(const Instruction& i) {
    require(!has_host_optimizer(plan_) || i.stream != Stream::kHost || s_.phase == Phase::kLoad || has_stepped(i.unit),
            "rounds parameters of unit {} before the host has stepped", i.unit);
    require(cast_.insert({i.uses[1], i.unit}).second, "fills the own chunk of unit {} in '{}' twice", i.unit,
            s_.buffers[i.uses[1]].name);
  }

  void gather(const Instruction& i) {
    require(cast_.contains({i.uses[0], i.unit}), "gathers unit {} before its own chunk is filled", i.unit);
    require(!is_filling(i.uses[0], i.unit), "gathers unit {} while its own chunk is on its way", i.unit);
    require(i.group == unit(i.unit).shard_group, "gathers unit {} over {}", i.unit, name(i.group));
    const int64_t expected =
        unit(i.unit).shard_numel * unit(i.unit).shard_ranks * size_bytes(unit(i.unit).is_quantized ? Dtype::kInt8 : s_.compute);
    require(i.bytes == expected, "gathers {} bytes of unit {}, expected {}", i.bytes, i.unit, expected);
    filled_[i.uses[0]] = i.signals;
  }

  // Every parameter a program reads is in a buffer that is complete: cast, and gathered and waited for when sharded.
  void compute(const Instruction& i) {
    const TouchedUnits touched = touched_units(s_, i);
    for (const int u : touched.parameters) {
      bool found = false;
      for (const int b : i.uses) {
        const Buffer& buffer = s_.buffers[b];
        const bool is_gathered = buffer.buffer_class == BufferClass::kGatheredParameter;
        if (!holds_unit(s_, b, u) || !(is_gathered || buffer.buffer_class == BufferClass::kParameterShard)) continue;
        found |= is_gathered || buffer.lifetime == BufferLifetime::kRun;
        if (!is_gathered || buffer.lifetime == BufferLifetime::kRun) continue;
        require(cast_.contains({b, u}), "unit {} computes with '{}' before it is filled", i.unit, buffer.name);
        require(!is_filling(b, u), "unit {} computes with '{}' while it is on its way", i.unit, buffer.name);
        if (unit(u).shard_ranks > 1)
          require(filled_.contains(b) && !in_flight_.contains(filled_[b]),
                  "unit {} computes with '{}' before its gather is waited for", i.unit, buffer.name);
      }
      require(found, "unit {} computes without the parameters of unit {}", i.unit, u);
    }
    if (is_reference(i)) return reference(i, touched);
    if (i.op == InstructionOp::kForward) {
      require(forwards_.insert({i.unit, i.micro_batch}).second, "forward of unit {} runs twice in a micro-batch", i.unit);
      if (is_pipeline() && arrives(i.stage.x, Stream::kFromPrevious, i)) return;
      const auto before = forwards_.find({i.unit - 1, i.micro_batch});
      require(i.unit == 0 || before != forwards_.end(), "forward of unit {} before unit {}", i.unit, i.unit - 1);
      require(!runs_reference(s_) || i.unit + 1 < s_.layout->num_programs || references_.contains({i.unit, i.micro_batch}),
              "the loss of micro-batch {} before its reference", i.micro_batch);
      return;
    }
    require(forwards_.contains({i.unit, i.micro_batch}), "backward of unit {} before its forward", i.unit);
    require(backwards_.insert({i.unit, i.micro_batch}).second, "backward of unit {} runs twice in a micro-batch", i.unit);
    const bool turns = i.unit + 1 == s_.layout->num_programs;
    if (!arrives(i.stage.dy, Stream::kFromNext, i))
      require(turns || backwards_.contains({i.unit + 1, i.micro_batch}), "backward of unit {} before unit {}", i.unit, i.unit + 1);
    for (const int u : touched.gradients) {
      const int b = gradient_holder(i, u);
      require(b >= 0, "backward of unit {} has nowhere to write the gradient of unit {}", i.unit, u);
      if (b < 0) continue;
      require(!reduced_.contains({b, u}), "backward of unit {} writes '{}' after its reduction started", i.unit, s_.buffers[b].name);
      contributions_[{b, u}].insert({i.unit, i.micro_batch});
    }
  }

  // Of the reference: a forward through all units, on what no step changes.
  void reference(const Instruction& i, const TouchedUnits& touched) {
    require(i.op == InstructionOp::kForward && touched.gradients.empty(), "the reference runs {}", name(i.op));
    for (const int u : touched.parameters) require(unit(u).is_frozen, "the reference reads unit {}, which is trained", u);
    require(references_.insert({i.unit, i.micro_batch}).second, "the reference runs unit {} twice in a micro-batch", i.unit);
    if (is_pipeline() && arrives(i.stage.x, Stream::kFromPrevious, i)) return;
    require(i.unit == 0 || references_.contains({i.unit - 1, i.micro_batch}), "the reference leaves unit {} out", i.unit - 1);
  }

  void transfer(const Instruction& i) {
    require(is_pipeline() && i.stream >= Stream::kToNext, "sends or receives on stream {}", name(i.stream));
    require(i.signals >= 0 && i.uses.size() == 1, "a transfer that nothing can wait for");
    require(i.group == Group::kPp, "sends or receives over {}", name(i.group));
    require(i.uses.empty() || aligned(i.bytes) == s_.buffers[i.uses[0]].bytes, "moves {} bytes of '{}'", i.bytes,
            s_.buffers[i.uses[0]].name);
    if (i.op == InstructionOp::kRecv && !i.uses.empty()) arrived_[{i.uses[0], i.stream}] = i.micro_batch;
  }

  // What a stage's first unit reads has been received, for this micro-batch. False: nothing of another stage's.
  bool arrives(int buffer, Stream from, const Instruction& i) {
    if (buffer < 0 || s_.buffers[buffer].lifetime == BufferLifetime::kSpan) return false;  // the unit below made it
    const auto found = arrived_.find({buffer, from});
    require(found != arrived_.end() && found->second == i.micro_batch, "{} of unit {} reads '{}', which was not received for it",
            name(i.op), i.unit, s_.buffers[buffer].name);
    require(!is_moving(buffer), "reads '{}' before it has arrived", s_.buffers[buffer].name);
    return true;
  }

  int gradient_holder(const Instruction& i, int u) const {
    for (const int b : i.uses) {
      const Buffer& buffer = s_.buffers[b];
      if (buffer.buffer_class == BufferClass::kGradient && holds_unit(s_, b, u)) return b;
    }
    return -1;
  }

  void reduce(const Instruction& i) {
    require(!unit(i.unit).is_frozen, "reduces unit {}, which is frozen", i.unit);
    require(i.group == unit(i.unit).shard_group, "reduces unit {} over {}", i.unit, name(i.group));
    say(hop_problem(plan_, s_, i, node_sums_.contains(i.uses[0])));
    reduced_.insert({i.uses[0], i.unit});
    received_[i.allocates.empty() ? -1 : i.allocates[0]] = i.uses[0];
    require(!contributions_[{i.uses[0], i.unit}].empty(), "reduces '{}' that holds no gradient", s_.buffers[i.uses[0]].name);
  }

  // Moves contributions from a unit buffer to an accumulator or to the rank's gradient.
  void accumulate(const Instruction& i) {
    const int from = i.uses[0], to = i.uses.back();
    if (i.uses.size() == 3) {
      require(received_.contains(i.uses[1]) && received_[i.uses[1]] == from, "adds '{}' that no reduction of '{}' filled",
              s_.buffers[i.uses[1]].name, s_.buffers[from].name);
      require(!is_moving(i.uses[1]), "adds '{}' before it has arrived", s_.buffers[i.uses[1]].name);
    }
    say(hop_problem(plan_, s_, i, node_sums_.contains(i.uses[0])));
    if (i.hop == Hop::kWithinNode) node_sums_.insert(to);
    move_contributions(i, from, to);
  }

  void move_contributions(const Instruction& i, int from, int to) {
    auto& target = contributions_[{to, i.unit}];
    require(i.accumulate || target.empty(), "overwrites the gradient of unit {} that holds {} contributions", i.unit, target.size());
    require(!i.accumulate || !target.empty(), "adds to the gradient of unit {} before anything was set", i.unit);
    for (const auto& c : contributions_[{from, i.unit}])
      require(target.insert(c).second, "the gradient of unit {} from unit {} micro-batch {} enters twice", i.unit, c.first, c.second);
    contributions_.erase({from, i.unit});
    reduced_.erase({from, i.unit});
  }

  // An activation or a unit's gradient on its way to the host; of a save, what the host does not have.
  void copy_to_host(const Instruction& i) {
    if (s_.phase == Phase::kSave) return;
    require(i.uses.size() == 2 && i.signals >= 0 && i.stream == Stream::kToHost, "copies to the host what nothing waits for");
    require(is_on_device(s_.buffers[i.uses[0]]) && !is_on_device(s_.buffers[i.uses.back()]), "copies from '{}' to '{}'",
            s_.buffers[i.uses[0]].name, s_.buffers[i.uses.back()].name);
    require(!is_moving(i.uses[0]), "copies '{}' before it has arrived", s_.buffers[i.uses[0]].name);
    if (i.unit >= 0 && !moves_activation(s_, i) && !moves_update(s_, i)) move_contributions(i, i.uses[0], i.uses.back());
  }

  // The norm; an activation; a unit's parameters, as the host has rounded them.
  void copy_to_device(const Instruction& i) {
    require(i.uses.size() == 2 && i.signals >= 0 && i.stream == Stream::kToDevice, "copies to the device what nothing waits for");
    require(!is_on_device(s_.buffers[i.uses[0]]) && is_on_device(s_.buffers[i.uses.back()]), "copies from '{}' to '{}'",
            s_.buffers[i.uses[0]].name, s_.buffers[i.uses.back()].name);
    if (i.unit < 0 || moves_activation(s_, i) || moves_update(s_, i)) return;
    const bool is_held = s_.buffers[i.uses[0]].lifetime == BufferLifetime::kRun && stepped_units_.empty();
    require(is_held || cast_.contains({i.uses[0], i.unit}), "copies parameters of unit {} that the host has not rounded", i.unit);
    require(cast_.insert({i.uses[1], i.unit}).second, "copies parameters of unit {} twice", i.unit);
  }

  void all_reduce(const Instruction& i) {
    if (i.group == Group::kTied) {
      require(i.unit == 0 && !tied_, "sums the gradient of unit {} over first and last stage", i.unit);
      require(complete(i.uses[0], 0), "sums the gradient of unit 0 over stages before it is complete");
      require(group_size(plan_.mesh, s_.layout->replica_group) == 1 || replicated_.contains(0),
              "sums unit 0 over stages before it is summed over replicas");
      tied_ = true;
      return;
    }
    if (i.unit >= 0) {
      require(i.group == unit(i.unit).replica_group && !unit(i.unit).is_frozen, "all-reduces unit {} over {}", i.unit, name(i.group));
      require(replicated_.insert(i.unit).second, "the gradient of unit {} is summed over replicas twice", i.unit);
      require(complete(i.uses[0], i.unit), "sums the gradient of unit {} over replicas before it is complete", i.unit);
      return;
    }
    const Buffer& b = s_.buffers[i.uses[0]];
    const Group expected = b.name == "loss" ? loss_group(plan_.mesh) : s_.layout->state_group;
    require(i.group == expected, "all-reduces '{}' over {}, expected {}", b.name, name(i.group), name(expected));
    require(scalars_.insert(b.name).second, "sums '{}' over its group twice", b.name);
  }

  // Every (unit, micro-batch) that contributes to unit u has entered the gradient buffer.
  bool complete(int gradient, int u) {
    std::set<std::pair<int, int>> expected;
    const int64_t m = plan_.gradient_accumulation;
    const int micro_batches = static_cast<int>(is_pipeline() ? m : std::min<int64_t>(m, 3));
    for (int writer = 0; writer < s_.layout->num_programs; ++writer) {
      if (!backward_[writer].gradients.contains(u)) continue;
      for (int m = 0; m < micro_batches; ++m) expected.insert({writer, m});
    }
    return contributions_[{gradient, u}] == expected;
  }

  void grad_norm(const Instruction& i) {
    for (int u = 0; u < static_cast<int>(s_.layout->units.size()); ++u) {
      if (unit(u).numel == 0 || unit(u).is_frozen) continue;
      require(complete(i.uses[0], u), "the gradient norm is taken before the gradient of unit {} is complete", u);
      if (group_size(plan_.mesh, unit(u).replica_group) > 1)
        require(replicated_.contains(u), "the gradient of unit {} was not summed over replicas", u);
    }
    require(!s_.layout->sums_tied_over_stages() || tied_,
            "the gradient norm is taken before the tied embedding is summed over stages");
    require(!is_moving(i.uses[0]), "the gradient norm is taken while the gradient is on its way");
    require(!normed_, "the gradient norm is taken twice");
    normed_ = true;
  }

  void optimizer(const Instruction& i) {
    for (const int b : i.uses) require(!holds_frozen(s_.buffers[b]), "the optimizer changes '{}'", s_.buffers[b].name);
    require(normed_, "the optimizer steps before the gradient norm");
    if (group_size(plan_.mesh, s_.layout->state_group) > 1)
      require(scalars_.contains("sumsq"), "the optimizer steps before the norm is summed over shards");
    if (group_size(plan_.mesh, loss_group(plan_.mesh)) > 1)
      require(scalars_.contains("loss"), "the optimizer steps before the loss is summed");
    require(i.unit < 0 ? stepped_units_.empty() : !stepped_units_.contains(-1) && !stepped_units_.contains(i.unit),
            "the optimizer steps twice");
    if (stepped_units_.empty()) cast_.clear();
    stepped_units_.insert(i.unit);
    replica_stale_ = true;
  }

  bool has_stepped(int u) const { return stepped_units_.contains(-1) || stepped_units_.contains(u); }

  void end() {
    require(in_flight_.empty(), "{} events are never waited for", in_flight_.size());
    for (size_t b = 0; b < s_.buffers.size(); ++b) {
      const Buffer& buffer = s_.buffers[b];
      if (buffer.lifetime == BufferLifetime::kRun) {
        require(alive_[b], "run buffer '{}' is not there at the end", buffer.name);
      } else if (s_.steps.empty() || buffer.lifetime == BufferLifetime::kStep ||
                 buffer.buffer_class == BufferClass::kGatheredParameter || buffer.buffer_class == BufferClass::kGradient ||
                 buffer.buffer_class == BufferClass::kCommunication) {
        require(allocated_[b] && !alive_[b], "span buffer '{}' is {} at the end", buffer.name,
                allocated_[b] ? "still live" : "never allocated");
      }
    }
    if (!is_step()) return;
    require(normed_ && (!stepped_units_.empty() || has_host_optimizer(plan_)), "there is no gradient norm, or no optimizer step");
    for (int u = 0; u < static_cast<int>(s_.layout->units.size()); ++u) {
      require(has_stepped(u) || unit(u).is_frozen || unit(u).numel == 0, "there is no optimizer step of unit {}", u);
      const bool is_raised = has_host_optimizer(plan_) && !unit(u).is_frozen && unit(u).numel > 0;
      if (!replica_stale_ || (replica_of(s_, u) < 0 && !is_raised)) continue;
      const bool fresh = std::any_of(cast_.begin(), cast_.end(), [u, this](const auto& c) {
        const Buffer& buffer = s_.buffers[static_cast<size_t>(c.first)];
        return c.second == u && (is_on_device(buffer) || (has_host_parameters(plan_) && buffer.name == kDeviceShard));
      });
      require(fresh, "the replica of unit {} is stale after the optimizer step", u);
    }
  }

  const Plan& plan_;
  const Schedule& s_;
  const std::vector<TouchedUnits> backward_;  // per unit with a program
  int index_ = 0;
  std::vector<std::string> out_;
  std::vector<bool> alive_, allocated_;
  std::set<int> signalled_, replicated_, stepped_units_, node_sums_;  // events; units; units, -1: all at once; sums of a node
  std::map<int, std::vector<int>> in_flight_;                         // event → buffers of the transfer
  std::map<int, std::pair<int, int>> filling_;                        // event → (buffer, unit) that a copy fills
  std::set<std::pair<int, int>> cast_, reduced_;                      // (buffer, unit): own chunk filled; its reduction has begun
  std::map<int, int> filled_, received_;  // gathered buffer → event of its gather; receive buffer → source
  std::set<std::pair<int, int>> forwards_, backwards_, references_;             // (unit, micro-batch)
  std::map<std::pair<int, int>, std::set<std::pair<int, int>>> contributions_;  // (buffer, unit) → (unit, micro-batch) summed in it
  std::set<std::string> scalars_;
  std::map<std::pair<int, Stream>, int> arrived_;  // receive buffer → micro-batch
  bool normed_ = false, replica_stale_ = false, tied_ = false;
};

}  // namespace

std::vector<std::string> check_invariants(const Plan& plan, const Schedule& schedule) {
  std::vector<std::string> out = ScheduleChecker(plan, schedule).run();
  for (std::string& message : check_memory(schedule)) out.push_back(std::move(message));
  for (std::string& message : check_activations(schedule)) out.push_back(std::move(message));
  if (schedule.phase == Phase::kStep && out.empty()) {
    out = check_update(plan, schedule);
    const std::vector<InstructionLive> live = walk_live(schedule);
    if (!live.empty() && live.back().after_bytes != 0)
      out.push_back(fmt::format("{} bytes are live after the step", live.back().after_bytes));
  }
  return out;
}

}  // namespace distsetup
