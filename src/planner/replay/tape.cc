// The tape of tape.h. Tensors are indices into one table; a freed tensor leaves an event and keeps its index.
#include "planner/replay/tape.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "planner/replay/tape_tensors.h"

namespace distsetup::replay {
namespace {

struct TapeNode {
  const Kernel* kernel = nullptr;
  int16_t weight = -1, second_weight = -1;
  int64_t weight_elements = 0;
  bool trained = false;
  MemoryClass memory_class = MemoryClass::kActivation;
  std::array<int32_t, kMaxLocals> locals{};
  int32_t output = -1;
  bool gathered = false;  // a marker, no kernel
  bool experts = false;   // which one
};

enum class Cache { kOff, kStore, kLoad };

class Tracer {
 public:
  Tracer(const ProgramSection& section, uint64_t facts, const int64_t* symbols, const std::vector<bool>& trained,
         const TraceOptions& options)
      : section_(section), facts_(facts), trained_(trained), options_(options) {
    std::copy(symbols, symbols + kFirstLocal, values_);
    tensors_.tensors.reserve(256);
    tensors_.num_slots = &trace_.num_slots;
    tape_.reserve(64);
    trace_.forward.reserve(192);
    trace_.backward.reserve(320);
    last_saving_ = last_saving_op();
  }

  Trace run() {
    tensors_.events = &trace_.forward;
    const int32_t x = tensors_.external(Trace::kInput, options_.input_bytes);
    const bool keeps_all = options_.mode == TraceMode::kKeepAll;
    saving_ = keeps_all;
    cache_ = options_.mode == TraceMode::kOpSelective ? Cache::kStore : Cache::kOff;
    const int32_t out = run_ops(x);
    if (out >= 0) {
      CHECK(tensors_.at(out).references == 1, "the output of a block is saved by it");
      trace_.output = tensors_.at(out).slot;
    }
    const bool no_gradient = options_.mode == TraceMode::kNoGradient;
    if (!keeps_all && !no_gradient) tensors_.reference(x);
    if (options_.retains_input) tensors_.reference(x);
    // The training loop drops x after the block, at run time and not by an event of the trace; a head drops x itself.
    if (names_[0] == x) trace_.input_freed_forward = --tensors_.at(x).references == 0;
    if (no_gradient) return std::move(trace_);

    tensors_.events = &trace_.backward;
    const int32_t gradient = tensors_.external(Trace::kGradient, options_.input_bytes);
    if (options_.retains_input) tensors_.reference(gradient);
    if (keeps_all) {
      if (out >= 0) tensors_.at(out).gradient = gradient;
      run_backward();
    } else {
      saving_ = true;
      cache_ = options_.mode == TraceMode::kOpSelective ? Cache::kLoad : Cache::kOff;
      recomputing_ = true;
      const int32_t again = run_ops(x);
      cache_ = Cache::kOff;
      if (options_.reentrant) tensors_.reference(gradient);
      tensors_.at(again).gradient = gradient;
      run_backward();
      for (; next_cached_ < cached_.size(); ++next_cached_) tensors_.unreference(cached_[next_cached_]);
      tensors_.unreference(again);
      tensors_.unreference(x);
      if (options_.reentrant) tensors_.unreference(gradient);
    }
    const int32_t of_input = tensors_.at(x).gradient;
    if (of_input >= 0) trace_.input_gradient = tensors_.at(of_input).slot;
    return std::move(trace_);
  }

 private:
  int last_saving_op() const {
    int last = -1;
    for (size_t i = 0; i < section_.ops.size(); ++i) {
      const ProgramOp& op = section_.ops[i];
      if (op.kind != ProgramOp::Kind::kKernel || !op.when.holds(facts_)) continue;
      if (op.kernel->weight || !op.kernel->saves.empty()) last = static_cast<int>(i);
    }
    if (last < 0) return last;
    for (const int8_t local : section_.ops[static_cast<size_t>(last)].kernel->saves) {
      if (local >= section_.ops[static_cast<size_t>(last)].kernel->first_write()) return last + 1;  // it must run to save its own
    }
    return last;
  }

  int32_t run_ops(int32_t x) {
    names_.assign(section_.names.size(), -1);
    names_[0] = x;  // "x" is the first name of every section that reads one
    const bool reads_input = !section_.names.empty() && section_.names[0] == "x";
    if (!reads_input) names_[0] = -1;
    const bool stops_early = recomputing_ && !options_.reentrant;
    tensors_.phantom = false;
    for (size_t i = 0; i < section_.ops.size(); ++i) {
      const ProgramOp& op = section_.ops[i];
      if (!op.when.holds(facts_)) continue;
      if (stops_early && static_cast<int>(i) >= last_saving_) tensors_.phantom = true;
      switch (op.kind) {
        case ProgramOp::Kind::kKernel: call(op); break;
        case ProgramOp::Kind::kDrop:
          for (const int16_t name : op.in) drop(name);
          break;
        case ProgramOp::Kind::kMove:
          for (size_t j = 0; j < op.in.size(); ++j) {
            const int32_t tensor = names_[static_cast<size_t>(op.in[j])];
            names_[static_cast<size_t>(op.in[j])] = -1;
            bind(op.out[j], tensor);
          }
          break;
        case ProgramOp::Kind::kHold:
          for (const int16_t name : op.in) {
            const int32_t tensor = std::exchange(names_[static_cast<size_t>(name)], -1);
            if (tensor >= 0) trace_.held.push_back(tensors_.at(tensor).slot);
          }
          break;
        case ProgramOp::Kind::kGathered:
        case ProgramOp::Kind::kExperts: {
          if (!saving_) break;
          TapeNode node;
          node.gathered = true;
          node.experts = op.kind == ProgramOp::Kind::kExperts;
          tape_.push_back(node);
          break;
        }
      }
    }
    tensors_.phantom = false;
    int32_t out = -1;
    for (size_t name = reads_input ? 1 : 0; name < names_.size(); ++name) {
      if (section_.names[name] == "out") {
        out = std::exchange(names_[name], -1);
      } else {
        drop(static_cast<int16_t>(name));
      }
    }
    return out;
  }

  void drop(int16_t name) { tensors_.unreference(std::exchange(names_[static_cast<size_t>(name)], -1)); }
  void bind(int16_t name, int32_t tensor) { tensors_.unreference(std::exchange(names_[static_cast<size_t>(name)], tensor)); }

  bool is_logits(const ProgramOp& op) const {
    const auto logits = [this](int16_t name) {
      return std::find(section_.first_logits.begin(), section_.first_logits.end(), name) != section_.first_logits.end();
    };
    return std::any_of(op.in.begin(), op.in.end(), logits) || std::any_of(op.out.begin(), op.out.end(), logits);
  }

  // A policy that keeps every product saves what backward or the recomputed ops read: not what is reduced at once, nor what comes
  // last.
  bool is_kept(const ProgramOp& op) const {
    if (options_.drops_matmuls && op.kernel->kind == "gemm") return false;
    if (!options_.keeps_matmuls) return op.keep;
    const auto at = static_cast<int>(&op - section_.ops.data());
    if (at >= last_saving_) return false;
    if (op.kernel->kind != "gemm") return op.keep;
    for (size_t i = static_cast<size_t>(at) + 1; i < section_.ops.size(); ++i) {
      const ProgramOp& next = section_.ops[i];
      if (next.kind != ProgramOp::Kind::kKernel || !next.when.holds(facts_)) continue;
      if (std::find(next.in.begin(), next.in.end(), op.out.front()) != next.in.end()) return next.kernel->kind != "reduce_scatter";
    }
    return true;
  }

  void call(const ProgramOp& op) {
    const Kernel& kernel = recomputing_ && op.recomputed != nullptr ? *op.recomputed : *op.kernel;
    TapeNode node;
    node.kernel = &kernel;
    node.weight = op.weight;
    node.second_weight = op.second_weight;
    if (op.weight >= 0) {
      const ProgramWeight& weight = section_.weights[static_cast<size_t>(op.weight)];
      node.weight_elements = weight.out.evaluate(values_) * weight.in.evaluate(values_);
      values_[static_cast<size_t>(Symbol::kWeightElements)] = node.weight_elements;
    }
    node.trained = op.weight >= 0 && trained_[static_cast<size_t>(op.weight)];
    node.memory_class = !section_.first_logits.empty() && is_logits(op) ? MemoryClass::kLogits : MemoryClass::kActivation;
    node.locals.fill(-1);
    for (size_t i = 0; i < op.in.size(); ++i) {
      const int32_t tensor = names_[static_cast<size_t>(op.in[i])];
      CHECK(tensor >= 0, "an op reads '{}', which no op left", section_.names[static_cast<size_t>(op.in[i])]);
      set_local(node, kernel.first_read() + static_cast<int>(i), tensor);
    }
    const int first_write = kernel.first_write(), end_write = first_write + kernel.num_writes;
    const bool kept = cache_ != Cache::kOff && is_kept(op);
    if (kept && cache_ == Cache::kLoad) {
      for (int i = first_write; i < end_write; ++i) set_local(node, i, cached_[next_cached_++]);
    } else {
      size_t sizes = 0;
      run_steps(kernel.forward, node, -1, [&] { return op.bytes[sizes++].evaluate(values_); });
      if (kept) {
        for (int i = first_write; i < end_write; ++i) {
          tensors_.reference(node.locals[static_cast<size_t>(i)]);
          cached_.push_back(node.locals[static_cast<size_t>(i)]);
        }
      }
    }
    if (kernel.num_writes > 0) node.output = node.locals[static_cast<size_t>(first_write)];
    if (saving_) {
      for_saved(node, [this](int32_t tensor) { tensors_.reference(tensor); });
      for (const KernelStep& step : kernel.backward) {
        if (step.kind == KernelStep::Kind::kRebuild) ++tensors_.at(node.locals[1]).rebuild_users;
      }
      tape_.push_back(node);
    }
    for (size_t i = static_cast<size_t>(end_write); i < kernel.locals.size(); ++i) {  // temporaries that forward left
      for (int32_t tensor = node.locals[i]; tensor >= 0; tensor = tensors_.at(tensor).below) tensors_.unreference(tensor);
    }
    for (size_t i = 0; i < op.out.size(); ++i) bind(op.out[i], node.locals[static_cast<size_t>(first_write) + i]);
  }

  template <class Visit>
  void for_saved(const TapeNode& node, Visit visit) {
    const auto all = [&](const std::vector<int8_t>& names) {
      for (const int8_t local : names) {
        int32_t tensor = node.locals[static_cast<size_t>(local)];
        const bool temporary = local >= node.kernel->first_write() + node.kernel->num_writes;
        while (tensor >= 0) {
          visit(tensor);
          tensor = temporary ? tensors_.at(tensor).below : -1;
        }
      }
    };
    all(node.kernel->saves);
    if (node.trained) all(node.kernel->saves_for_weight);
  }

  void set_local(TapeNode& node, int local, int32_t tensor) {
    node.locals[static_cast<size_t>(local)] = tensor;
    values_[kFirstLocal + local] = tensor >= 0 ? tensors_.at(tensor).bytes : 0;
  }

  template <class CallSize>
  void run_steps(const std::vector<KernelStep>& steps, TapeNode& node, int32_t gradient, CallSize call_size) {
    std::array<int64_t, 4> left{};  // of nested loops
    size_t depth = 0;
    for (size_t at = 0; at < steps.size(); ++at) {
      const KernelStep& step = steps[at];
      if (step.when_trained && !node.trained) continue;
      if (step.kind == KernelStep::Kind::kRepeat) {
        left[depth] = step.size.evaluate(values_);
        if (left[depth] <= 0)
          at = static_cast<size_t>(step.partner);
        else
          ++depth;
      } else if (step.kind == KernelStep::Kind::kEnd) {
        if (--left[depth - 1] > 0)
          at = static_cast<size_t>(step.partner);
        else
          --depth;
      } else {
        run_step(step, node, gradient, call_size);
      }
    }
  }

  // One that is not of a loop.
  template <class CallSize>
  void run_step(const KernelStep& step, TapeNode& node, int32_t gradient, CallSize call_size) {
    const auto named = [&]() -> int32_t& { return node.locals[static_cast<size_t>(step.name)]; };
    const auto other = [&]() -> int32_t& { return node.locals[static_cast<size_t>(step.other)]; };
    switch (step.kind) {
      case KernelStep::Kind::kNew: {
        const int64_t bytes = step.size.empty() ? call_size() : step.size.evaluate(values_);
        const int32_t tensor = tensors_.create(bytes, node.memory_class);
        tensors_.at(tensor).below = named();
        set_local(node, step.name, tensor);
        break;
      }
      case KernelStep::Kind::kFree: tensors_.unreference(std::exchange(named(), tensors_.at(named()).below)); break;
      case KernelStep::Kind::kGradient: tensors_.accumulate(named(), std::exchange(other(), -1)); break;
      case KernelStep::Kind::kSharedGradient: {
        const int32_t given = step.other == 0 ? gradient : other();
        if (given < 0) break;
        tensors_.reference(given);
        tensors_.accumulate(named(), given);
        break;
      }
      case KernelStep::Kind::kWeight:
        if (node.trained) tensors_.events->push_back({Event::Kind::kWeightGradient, MemoryClass::kGradient, node.weight, 0});
        break;
      case KernelStep::Kind::kSecondWeight:
        if (node.trained) tensors_.events->push_back({Event::Kind::kWeightGradient, MemoryClass::kGradient, node.second_weight, 0});
        break;
      case KernelStep::Kind::kRebuild: {
        const int32_t source = node.locals[1];
        if (tensors_.at(source).rebuilt >= 0) break;
        const int32_t made = tensors_.create(tensors_.at(source).bytes, node.memory_class);
        tensors_.at(source).rebuilt = made;
        break;
      }
      case KernelStep::Kind::kRebuilt: {
        TapeTensor& source = tensors_.at(node.locals[1]);
        if (--source.rebuild_users == 0) tensors_.unreference(std::exchange(source.rebuilt, -1));
        break;
      }
      case KernelStep::Kind::kRepeat:
      case KernelStep::Kind::kEnd: break;  // run_steps()
    }
  }

  void run_backward() {
    while (!tape_.empty()) {
      TapeNode node = tape_.back();
      tape_.pop_back();
      if (node.gathered) {
        tensors_.events->push_back({node.experts ? Event::Kind::kExperts : Event::Kind::kGathered, MemoryClass::kGathered, 0, 0});
        continue;
      }
      const int32_t gradient = node.output >= 0 ? std::exchange(tensors_.at(node.output).gradient, -1) : -1;
      const TapeNode saved = node;
      for (size_t i = 1; i < node.kernel->locals.size(); ++i) {
        values_[kFirstLocal + i] = node.locals[i] >= 0 ? tensors_.at(node.locals[i]).bytes : 0;
      }
      values_[static_cast<size_t>(Symbol::kWeightElements)] = node.weight_elements;
      node.locals[0] = gradient;
      values_[kFirstLocal] = node.output >= 0 ? tensors_.at(node.output).bytes : 0;
      const bool reached = node.output < 0 || gradient >= 0;  // an output that nobody used gets no gradient, and no backward
      if (reached) run_steps(node.kernel->backward, node, gradient, [] { return int64_t{0}; });
      release_saved(saved, node);
      tensors_.unreference(gradient);
    }
  }

  // What backward did not free itself (chunks of a loss are freed one by one).
  void release_saved(const TapeNode& before, const TapeNode& after) {
    const auto all = [&](const std::vector<int8_t>& names) {
      for (const int8_t local : names) {
        const bool temporary = local >= before.kernel->first_write() + before.kernel->num_writes;
        int32_t tensor = (temporary ? after : before).locals[static_cast<size_t>(local)];
        while (tensor >= 0) {
          const int32_t below = tensors_.at(tensor).below;
          tensors_.unreference(tensor);
          tensor = temporary ? below : -1;
        }
      }
    };
    all(before.kernel->saves);
    if (before.trained) all(before.kernel->saves_for_weight);
  }

  const ProgramSection& section_;
  uint64_t facts_;
  const std::vector<bool>& trained_;
  TraceOptions options_;
  SymbolValues values_{};
  TensorTable tensors_;
  std::vector<TapeNode> tape_;
  std::vector<int32_t> names_;
  std::vector<int32_t> cached_;
  size_t next_cached_ = 0;
  Trace trace_;
  int last_saving_ = -1;
  Cache cache_ = Cache::kOff;
  bool saving_ = true, recomputing_ = false;
};

}  // namespace

int64_t Trace::bytes_of_slot(int16_t slot, int64_t input_bytes) const {
  for (const Event& event : forward) {
    if (event.kind == Event::Kind::kAllocate && event.slot == slot) return event.bytes;
  }
  return input_bytes;
}

Trace trace_section(const ProgramSection& section, uint64_t facts, const int64_t* symbols, const std::vector<bool>& trained,
                    const TraceOptions& options) {
  return Tracer(section, facts, symbols, trained, options).run();
}

}  // namespace distsetup::replay
