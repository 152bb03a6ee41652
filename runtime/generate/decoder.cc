#include "runtime/generate/decoder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "model/rope.h"
#include "plan/expand.h"
#include "runtime/device/cpu_device.h"
#include "runtime/engine/bind.h"
#include "runtime/engine/ops_attention.h"
#include "runtime/kernels/cpu/bf16.h"
#include "runtime/kernels/cpu/rope.h"

namespace distsetup {
namespace {

// The plan's model alone, on one rank: all parameters here, one sequence of `rows` tokens.
Plan on_one_rank(Plan plan, int64_t rows) {
  plan.mesh = Mesh{};
  plan.hardware.nodes = plan.hardware.gpus_per_node = 1;
  StrategyPlan alone;
  alone.sharding = Sharding::kDdp;
  alone.trainer = plan.strategy.trainer;
  plan.strategy = alone;
  plan.offload = OffloadPlan{};
  plan.checkpoint.async = false;
  plan.recompute = RecomputePlan{};
  plan.micro_batch = plan.gradient_accumulation = plan.train.global_batch = 1;
  plan.train.sequence_length = rows;
  plan.data.packing = false;
  plan.train.method = "pretrain";  // one sequence; a preference pair would be two
  return plan;
}

// An evaluation's list without what only training has: gradients and the optimizer's states take no memory.
Schedule evaluation(const Plan& plan, int64_t rows) {
  Schedule list = compile_expanded(on_one_rank(plan, rows), Phase::kEvaluate);
  for (Buffer& b : list.buffers) {
    const bool is_of_training = b.name == "gradient" || b.buffer_class == BufferClass::kOptimizerState;
    if (b.lifetime == BufferLifetime::kRun && is_of_training) b.bytes = 0;
  }
  return list;
}

// A call whose rows of a table begin at the position of the first token.
struct ShiftedRead {
  size_t call = 0, read = 0;
  char* base = nullptr;
  int64_t row_bytes = 0;
};

// The list for a fixed number of rows.
struct Rows {
  int64_t num = 0;
  OpContext context;
  BoundList list;
  std::vector<size_t> calls;  // in order, up to the logits
  std::vector<int> attends;   // per call: the layer whose attention it is, or -1
  std::vector<ShiftedRead> shifted;
  Argument logits;                      // [num, vocabulary]
  double multiplier = 1, soft_cap = 0;  // of the logits
};

// Experts take all rows: what becomes of a token does not depend on how many are read together.
Plan without_capacity(Plan plan) {
  plan.model.expert_capacity = 0;
  return plan;
}

struct RopeTable {
  std::vector<float> cos, sin;
  int64_t row = 0;
};

}  // namespace

struct Decoder::State {
  State(const Plan& p, int64_t most);
  void fill_rope(int64_t length);
  bool follow_length(int64_t length);
  void bind_rows(Rows& rows, Schedule list);
  void shift(Rows& rows, size_t call, size_t read, const void* table);
  void run(Rows& rows, std::span<const int64_t> ids);
  template <class E>
  void take_logits(const Rows& rows);

  const Plan plan;
  const int64_t most_tokens;
  std::unique_ptr<Device> device = make_cpu_device();
  std::unique_ptr<RankMemory> memory;
  Rows one, several;
  RopeTable rope, local_rope;
  std::vector<KeyValueCache> caches;  // per layer
  std::vector<float> logits;
  int64_t num_tokens = 0, rope_length = 0;
  std::vector<int64_t> ids_read;  // with longrope, whose keys are made again once
};

Decoder::State::State(const Plan& p, int64_t most) : plan(without_capacity(p)), most_tokens(most) {
  CHECK(most_tokens > 0, "{}", most_tokens);
  one.num = 1, several.num = kPromptRows;
  Schedule of_one = evaluation(plan, one.num), of_several = evaluation(plan, several.num);
  memory = std::make_unique<RankMemory>(*device, std::vector<const Schedule*>{&of_one, &of_several}, RunSizes::kLargest);
  fill_rope(1);
  const int64_t row_bytes = plan.model.num_kv_heads * plan.model.head_size * size_bytes(plan.precision.compute);
  caches.resize(size_t(plan.model.num_layers));
  for (KeyValueCache& cache : caches) {
    cache.keys.resize(size_t(most_tokens * row_bytes));
    cache.values.resize(size_t(most_tokens * row_bytes));
  }
  bind_rows(one, std::move(of_one));
  bind_rows(several, std::move(of_several));
  logits.resize(size_t(plan.model.vocabulary));
}

// Tables of all positions, as they turn in a sequence of `length` tokens.
void Decoder::State::fill_rope(int64_t length) {
  rope_length = length;
  for (const bool local : {false, true}) {
    if (!memory->has_run(local ? "cos_local" : "cos")) continue;
    const RopeFrequencies f = rope_frequencies(plan.model, local, length);
    RopeTable& table = local ? local_rope : rope;
    table.row = int64_t(f.per_pair.size());
    table.cos.resize(size_t((most_tokens + kPromptRows) * table.row));
    table.sin.resize(table.cos.size());
    cpu::rope_tables(table.cos.data(), table.sin.data(), own_positions(most_tokens + kPromptRows), f.per_pair, f.amplitude);
  }
}

// Tables for a text that the next tokens make that long: beyond the original context two kinds of scaling have other ones. True where
// kept keys have to be made again, too, as Transformers does it: with longrope, once; a base that grows leaves them.
bool Decoder::State::follow_length(int64_t length) {
  const int64_t original = plan.model.rope_original_positions;
  const std::string& kind = plan.model.rope_scaling;
  if ((kind != "longrope" && kind != "dynamic") || length <= std::max(original, rope_length)) return false;
  if (kind == "longrope" && rope_length > original) return false;
  fill_rope(length);
  return kind == "longrope";
}

void Decoder::State::bind_rows(Rows& rows, Schedule list) {
  rows.context = op_context(list, plan.model, Coordinates{});
  rows.list = bind(std::move(list), *memory, Coordinates{}, rows.context, device->kernels());
  const Schedule& schedule = rows.list.schedule;
  rows.attends.assign(schedule.steps.size(), -1);
  for (const Instruction& i : schedule.instructions) {
    if (!is_program(i.op)) continue;
    for (int n = i.first_step; n < i.first_step + i.num_steps; ++n) {
      const Step& step = schedule.steps[size_t(n)];
      const Call& call = rows.list.calls[size_t(n)];
      if (step.kernel.starts_with("cross_entropy")) {
        rows.logits = call.reads[0];
        rows.multiplier = call.attributes->multiplier;
        rows.soft_cap = call.attributes->soft_cap;
        continue;
      }
      if (step.program_op->kind == OpKind::kAttention) rows.attends[size_t(n)] = i.unit - 1;
      for (size_t r = 0; r < call.reads.size(); ++r) {
        const void* const data = call.reads[r].data;
        const bool is_learned = step.kernel == "position_add" && r == 1;
        if (is_learned) {
          const int64_t bytes = call.reads[r].dim(1) * size_bytes(call.reads[r].dtype);
          rows.shifted.push_back({size_t(n), r, static_cast<char*>(call.reads[r].data), bytes});
        } else {
          shift(rows, size_t(n), r, data);
        }
      }
      rows.calls.push_back(size_t(n));
    }
  }
  CHECK(rows.logits.data != nullptr, "a model without logits");
}

// A read of cos or sin is one of the table of all positions.
void Decoder::State::shift(Rows& rows, size_t call, size_t read, const void* table) {
  for (RopeTable* of : {&rope, &local_rope}) {
    if (of->row == 0) continue;
    const std::string suffix = of == &rope ? "" : "_local";
    for (std::vector<float>* values : {&of->cos, &of->sin}) {
      const std::string name = (values == &of->cos ? "cos" : "sin") + suffix;
      if (table != memory->run(name)) continue;
      rows.shifted.push_back({call, read, reinterpret_cast<char*>(values->data()), of->row * int64_t(sizeof(float))});
    }
  }
}

void Decoder::State::run(Rows& rows, std::span<const int64_t> ids) {
  device->copy_to_device(memory->run("ids"), ids.data(), int64_t(ids.size_bytes()));
  for (const ShiftedRead& s : rows.shifted) rows.list.calls[s.call].reads[s.read].data = s.base + num_tokens * s.row_bytes;
  for (const size_t n : rows.calls) {
    const Call& call = rows.list.calls[n];
    if (rows.attends[n] >= 0)
      attend_to_cache(call, caches[size_t(rows.attends[n])], num_tokens);
    else
      call.function(call);
  }
  num_tokens += rows.num;
}

template <class E>
void Decoder::State::take_logits(const Rows& rows) {
  const int64_t width = rows.logits.dim(1);
  const E* const last = static_cast<const E*>(rows.logits.data) + (rows.num - 1) * width;
  for (size_t v = 0; v < logits.size(); ++v) {
    const double z = double(to_float(last[v])) * rows.multiplier;
    logits[v] = float(rows.soft_cap > 0 ? rows.soft_cap * std::tanh(z / rows.soft_cap) : z);
  }
}

Decoder::Decoder(const Plan& plan, int64_t most_tokens) {
  const c10::InferenceMode guard;
  state_ = std::make_unique<State>(plan, most_tokens);
}
Decoder::~Decoder() = default;

ShardState Decoder::state() {
  const Layout* const layout = state_->one.list.schedule.layout.get();
  return {layout, Coordinates{}, {static_cast<float*>(state_->memory->run("master")), size_t(layout->shard_numel)}, {}};
}

void Decoder::load() {
  State& s = *state_;
  if (!s.memory->has_run("parameters")) return;  // fp32: programs read the master itself
  const Layout& layout = *s.one.list.schedule.layout;
  const float* const master = static_cast<const float*>(s.memory->run("master"));
  char* const parameters = static_cast<char*>(s.memory->run("parameters"));
  const Dtype to = s.plan.precision.compute;
  for (const UnitLayout& unit : layout.units)
    s.device->kernels().cast(Stream::kCompute, master + unit.shard_offset, parameters + unit.gathered_offset * size_bytes(to), to,
                             unit.shard_numel);
}

std::span<const float> Decoder::read(std::span<const int64_t> ids) {
  const c10::InferenceMode guard;
  State& s = *state_;
  CHECK(!ids.empty() && s.num_tokens + int64_t(ids.size()) <= s.most_tokens, "{} tokens behind {} of {}", ids.size(), s.num_tokens,
        s.most_tokens);
  for (const int64_t id : ids) CHECK(id >= 0 && id < s.plan.model.vocabulary, "token {} of {}", id, s.plan.model.vocabulary);
  if (s.plan.model.rope_scaling == "longrope") {
    s.ids_read.insert(s.ids_read.end(), ids.begin(), ids.end());
    if (s.follow_length(std::ssize(s.ids_read))) s.num_tokens = 0, ids = s.ids_read;
  } else {
    s.follow_length(s.num_tokens + std::ssize(ids));
  }
  while (!ids.empty()) {
    Rows& rows = int64_t(ids.size()) >= kPromptRows ? s.several : s.one;
    s.run(rows, ids.first(size_t(rows.num)));
    ids = ids.subspan(size_t(rows.num));
    if (!ids.empty()) continue;
    if (rows.logits.dtype == Dtype::kBf16)
      s.take_logits<Bf16>(rows);
    else if (rows.logits.dtype == Dtype::kF16)
      s.take_logits<F16>(rows);
    else
      s.take_logits<float>(rows);
  }
  return s.logits;
}

int64_t Decoder::num_tokens() const { return state_->num_tokens; }
int64_t Decoder::vocabulary() const { return state_->plan.model.vocabulary; }

}  // namespace distsetup
