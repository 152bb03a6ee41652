// Tiny models, plans and batches for tests of the executor, and a run of several ranks that returns what they agree on.
#pragma once
#include <fmt/format.h>

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "plan/chunked_loss.h"
#include "plan/native_program.h"
#include "plan/workspace.h"
#include "runtime/device/cpu_device.h"
#include "runtime/engine/engine.h"
#include "runtime/optim/learning_rate.h"
#include "runtime/ranks.h"

namespace distsetup::tiny {

// Sizes that are multiples of nothing: shards are padded, tiles have tails.
inline Geometry odd_geometry() {
  Geometry g;
  g.name = "odd";
  g.family = "llama";
  g.num_layers = 2;
  g.hidden = 30;
  g.num_heads = 3;
  g.num_kv_heads = 1;
  g.head_size = 10;
  g.feed_forward = 37;
  g.vocabulary = 53;
  g.max_positions = 64;
  return g;
}

struct TinyOptions {
  Geometry geometry = odd_geometry();
  Sharding sharding = Sharding::kDdp;
  int replicate = 1, shard = 1, tp = 1, cp = 1, pp = 1, chunks = 1, ep = 1;
  CpMethod cp_method = CpMethod::kAllGather;
  Recompute recompute = Recompute::kNone;
  int64_t accumulation = 1;
  Dtype precision = Dtype::kF32;
  bool reshard = true;
  int64_t global_batch = 8, sequence_length = 12, steps = 20;
  std::optional<PreferencePlan> preference;     // given: pairs are learned from
  std::vector<std::string> trainable, targets;  // what is trained, where it is not all; modules with adapters of that rank
  int64_t rank = 0;
  bool quantized = false;  // adapters beside nf4
  bool packed = false;
  bool chunked_loss = false;
  int reductions_in_flight = 1;
  int nodes = 1;  // more: gradients are reduced within each first
};

// A way to train a part of the model, or adapters beside it.
struct TunedCase {
  std::string name;
  std::vector<std::string> trainable, targets;
  int64_t rank = 0;
  bool quantized = false;
};
inline void tune(TinyOptions& o, const TunedCase& c) {
  o.trainable = c.trainable, o.targets = c.targets, o.rank = c.rank, o.quantized = c.quantized;
}

inline Plan tiny_plan(const TinyOptions& o) {
  Plan p;
  p.verdict = Verdict::kFits;
  p.model = o.geometry;
  p.hardware.accelerator = Accelerator::kCpu;
  p.mesh.dp_replicate = o.replicate;
  p.mesh.dp_shard = o.shard;
  p.mesh.tp = o.tp;
  p.mesh.cp = o.cp;
  p.strategy.cp_method = name(o.cp_method);
  p.mesh.pp = o.pp;
  p.mesh.ep = o.ep;
  p.strategy.virtual_stages = o.chunks;
  p.strategy.sequence_parallel = o.tp > 1;
  p.hardware.nodes = o.nodes;
  p.hardware.gpus_per_node = p.mesh.world() / o.nodes;
  p.strategy.hierarchical_reduction = o.nodes > 1;
  p.strategy.sharding = o.sharding;
  p.strategy.reshard_after_forward = o.reshard;
  p.strategy.reductions_in_flight = o.reductions_in_flight;
  if (o.chunked_loss) p.strategy.loss_head = kChunkedLoss;
  p.gradient_accumulation = o.accumulation;
  p.micro_batch = o.global_batch / (o.accumulation * p.mesh.data_parallel());
  p.recompute.policy = o.recompute;
  p.recompute.every_k = o.recompute == Recompute::kEveryK ? 2 : 0;
  p.train.trainable = o.trainable;
  p.train.finetune = o.quantized ? "qlora" : o.rank > 0 ? "lora" : "full";
  p.train.lora_rank = o.rank;
  p.train.lora_alpha = 2 * static_cast<double>(o.rank);
  p.train.lora_targets = o.targets;
  p.recompute.dropped = dropped_tensors(o.geometry, o.recompute, tuning_of(p.train));
  p.precision.compute = o.precision;
  p.train.sequence_length = o.sequence_length;
  p.train.global_batch = o.global_batch;
  p.train.steps = o.steps;
  p.train.learning_rate = 1e-2;
  p.train.min_learning_rate = 1e-3;
  p.train.warmup_steps = 3;
  p.train.grad_clip = 1.0;
  p.train.seed = 7;
  if (o.preference) p.train.method = kDpo, p.train.preference = *o.preference;
  p.data.packing = o.packed;
  if (o.packed) p.data.tokenizer = kPreparedTokens;
  return p;
}

// One global batch: sequences that follow a rule a model can learn, each with an ignored tail of another length, so that ranks have
// different numbers of valid tokens. Of pairs the rejected sequence follows another rule, and what a reference would make of them is
// made up. Of a packed plan each sequence is cut into documents of 1 to 6 tokens.
struct Batch {
  std::vector<int64_t> ids, targets, positions;
  int64_t valid = 0;  // what the loss is a mean of
  std::vector<float> reference;
};
inline Batch global_batch(const Plan& plan, int64_t step) {
  const int64_t S = plan.train.sequence_length, V = plan.model.vocabulary, each = sequences_per_sample(plan);
  Batch b;
  for (int64_t q = 0; q < plan.train.global_batch * each; ++q) {
    int64_t token = (q / each * 17 + step * 5) % V;
    const int64_t tail = (q * q + step) % (S / 2);
    for (int64_t s = 0, position = 0; s < S; ++s, ++position) {
      if (position > (q + s + step) % 6) position = 0;
      if (plan.data.packing) b.positions.push_back(s == 0 ? position = 0 : position);
      const int64_t next = (token * (3 + 2 * (q % each)) + 1) % V;
      b.ids.push_back(token);
      b.targets.push_back(s < S - tail ? next : -1);
      b.valid += s < S - tail;
      token = next;
    }
    if (each > 1) b.reference.push_back(-4.0f * float(S - tail) - float(q % 5) / 8);
  }
  if (each > 1) b.valid = plan.train.global_batch;
  return b;
}
// The part of data-parallel rank `index`: micro-batch m holds sequences (m · ranks + index) · micro_batch ...
inline Batch rank_batch(const Plan& plan, const Batch& global, int index) {
  const int64_t sequences = plan.micro_batch * sequences_per_sample(plan);
  Batch mine;
  mine.valid = global.valid;
  for (int64_t m = 0; m < plan.gradient_accumulation; ++m) {
    const auto take = [&](auto& to, const auto& from, int64_t each) {
      const auto first = from.begin() + (m * plan.mesh.data_parallel() + index) * sequences * each;
      to.insert(to.end(), first, first + sequences * each);
    };
    take(mine.ids, global.ids, plan.train.sequence_length);
    take(mine.targets, global.targets, plan.train.sequence_length);
    if (!global.reference.empty()) take(mine.reference, global.reference, 1);
    if (!global.positions.empty()) take(mine.positions, global.positions, plan.train.sequence_length);
  }
  return mine;
}

struct RunResult {
  std::vector<double> losses, norms;
  std::vector<std::vector<float>> parameters, gradients;  // per unit, valid elements; gradients of the last step, as clipped
  double held_out = 0;
  bool operator==(const RunResult&) const = default;
};

// What every rank of a run sees is written by rank 0; shards by the ranks that own them, into units as one rank has them.
inline void collect(const Geometry& geometry, Engine& engine, std::span<const float> shard, std::vector<std::vector<float>>& units) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  const Layout &layout = engine.layout(), whole = make_layout(geometry, {}, Sharding::kZero3, 0, 1, layout.tuning);
  std::map<std::string, std::pair<size_t, int64_t>> place;  // unit and offset by name
  units.resize(whole.units.size());
  for (size_t u = 0; u < whole.units.size(); ++u) {
    if (whole.units[u].is_frozen) continue;
    units[u].resize(size_t(whole.units[u].numel));
    for (const Parameter& p : whole.units[u].parameters) place[p.name] = {u, p.offset};
  }
  for (const UnitLayout& unit : layout.units) {
    for (const Parameter& p : unit.parameters) {
      if (unit.is_frozen) continue;
      const auto [u, offset] = place.at(p.name);
      const int64_t width = p.full_shape.size() > 1 ? p.full_shape[1] : 1;
      for (const Box& box : boxes_of(layout, unit, p, engine.place())) {
        const int64_t columns = box.size.size() > 1 ? box.size[1] : 1, first_column = box.size.size() > 1 ? box.start[1] : 0;
        for (int64_t i = 0; i < box.numel(); ++i) {
          const int64_t to = (box.start[0] + i / columns) * width + first_column + i % columns;
          units[u][size_t(offset + to)] = shard[size_t(box.shard_offset + i)];
        }
      }
    }
  }
}

// One rank of train(): `steps` steps, and the loss of a batch they have not seen. Rank 0 calls `seen` after each step.
inline void train_rank(const Plan& plan, int64_t steps, EngineOptions options, Communicator& communicator, Device& device,
                       RunResult& result, const std::function<void(const StepStats&)>& seen = {}) {
  Engine engine(plan, device, communicator, options);
  engine.initialize_parameters();
  engine.load();
  const int index = data_index(plan.mesh, communicator.rank());
  for (int64_t s = 0; s < steps; ++s) {
    const Batch batch = rank_batch(plan, global_batch(plan, s), index);
    const StepStats stats =
        engine.step({batch.ids, batch.targets, batch.valid, learning_rate(plan.train, s), batch.reference, batch.positions});
    if (communicator.rank() != 0) continue;
    result.losses.push_back(stats.loss);
    result.norms.push_back(stats.gradient_norm);
    if (seen) seen(stats);
  }
  const Batch batch = rank_batch(plan, global_batch(plan, 1000), index);
  const double held_out = engine.evaluate({batch.ids, batch.targets, batch.valid, batch.reference, batch.positions});
  if (communicator.rank() == 0) result.held_out = held_out;
  if (!engine.writes_checkpoint()) return;
  collect(plan.model, engine, engine.master(), result.parameters);
  collect(plan.model, engine, engine.gradient(), result.gradients);
}

inline RunResult train(const Plan& plan, int64_t steps, EngineOptions options = {}) {
  RunResult result;
  run_ranks(plan.mesh, [&](Communicator& communicator) {
    const auto device = make_cpu_device();
    train_rank(plan, steps, options, communicator, *device, result);
  });
  return result;
}

// One metered step of one rank: the first op that allocates more than is declared for it; empty: none does.
inline std::string undeclared_bytes(const Plan& plan, Communicator& communicator) {
  install_meter();
  const auto device = make_cpu_device();
  EngineOptions metered;
  metered.metered_steps = 1;
  Engine engine(plan, *device, communicator, metered);
  engine.initialize_parameters();
  engine.load();
  const Batch batch = rank_batch(plan, global_batch(plan, 0), data_index(plan.mesh, communicator.rank()));
  const StepStats stats = engine.step({batch.ids, batch.targets, batch.valid, 1e-3, batch.reference, batch.positions});
  const Schedule& list = engine.schedule(Phase::kStep);
  for (const StepAllocation& a : stats.allocations) {
    const Step& step = list.steps[size_t(a.step)];
    const int64_t declared = workspace_bytes(step, list, Accelerator::kCpu);
    if (a.peak_bytes > declared) return fmt::format("{} {}: {} bytes, declared {}", step.op, step.kernel, a.peak_bytes, declared);
  }
  return engine.memory().arena_bytes >= list.arena_bytes ? "" : "the arena is smaller than the list's";
}

// Largest difference of two sets of units over the largest magnitude per unit.
inline double difference(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  double worst = a.size() == b.size() ? 0 : 1e9;
  for (size_t u = 0; u < a.size() && u < b.size(); ++u) {
    double largest = 0, d = a[u].size() == b[u].size() ? 0 : 1e9;
    for (size_t i = 0; i < a[u].size() && i < b[u].size(); ++i) {
      largest = std::max(largest, std::abs(double(b[u][i])));
      const double e = std::abs(double(a[u][i]) - double(b[u][i]));
      d = e <= 1e9 ? std::max(d, e) : 1e9;  // NaN too
    }
    worst = std::max(worst, d / largest);
  }
  return worst;
}
inline double difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0 : 1e9;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double e = std::abs(a[i] - b[i]) / std::abs(b[i]);
    worst = e <= 1e9 ? std::max(worst, e) : 1e9;
  }
  return worst;
}

}  // namespace distsetup::tiny
