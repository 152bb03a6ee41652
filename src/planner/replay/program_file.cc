// Reads presets/programs/: the ops of a block and of its loss heads over the kernels. Every name must be bound before it is read,
// every size and condition known: a mistake is a diagnostic at its place in the file.
#include "planner/replay/program_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/map_reader.h"
#include "planner/replay/program_words.h"

namespace distsetup::replay {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(Condition::kCount)> kConditionNames = {"tensor_parallel",
                                                                                                  "grouped_heads",
                                                                                                  "fused_norm",
                                                                                                  "fused_rope",
                                                                                                  "flash",
                                                                                                  "gated",
                                                                                                  "layer_norm",
                                                                                                  "qkv_bias",
                                                                                                  "output_bias",
                                                                                                  "mlp_bias",
                                                                                                  "head_bias",
                                                                                                  "qk_norm",
                                                                                                  "parallel_block",
                                                                                                  "two_norms",
                                                                                                  "four_norms",
                                                                                                  "tied",
                                                                                                  "logits_kept",
                                                                                                  "fused_linear_loss",
                                                                                                  "learned_positions",
                                                                                                  "adapter_q",
                                                                                                  "adapter_k",
                                                                                                  "adapter_v",
                                                                                                  "adapter_o",
                                                                                                  "adapter_gate",
                                                                                                  "adapter_up",
                                                                                                  "adapter_down",
                                                                                                  "adapter_dropout",
                                                                                                  "adapter_cast",
                                                                                                  "quantized",
                                                                                                  "attention_copied",
                                                                                                  "autocast",
                                                                                                  "low_precision_logits_kept",
                                                                                                  "residual_in_fp32",
                                                                                                  "embedding_scaled",
                                                                                                  "adapters",
                                                                                                  "kv_heads_repeated",
                                                                                                  "logits_stay_low",
                                                                                                  "experts",
                                                                                                  "shared_experts",
                                                                                                  "shared_expert_gate",
                                                                                                  "router_score_bias",
                                                                                                  "expert_parallel",
                                                                                                  "latent",
                                                                                                  "query_latent",
                                                                                                  "fp8_linears",
                                                                                                  "fp8_weights_saved",
                                                                                                  "fp8_abs_saved",
                                                                                                  "fp8_rowwise_abs_saved",
                                                                                                  "attention_recomputed",
                                                                                                  "exchanges_recomputed",
                                                                                                  "loss_gathers",
                                                                                                  "online_softmax",
                                                                                                  "fused_qkv",
                                                                                                  "many_samples",
                                                                                                  "compiled",
                                                                                                  "split_loss",
                                                                                                  "fused_swiglu",
                                                                                                  "ulysses",
                                                                                                  "liger_casts_logits",
                                                                                                  "liger_casts_share",
                                                                                                  "head_in_fp32",
                                                                                                  "logits_capped",
                                                                                                  "logits_shifted",
                                                                                                  "casts_kept"};

When when_of(const Value* value, Diagnostics& said) {
  When when;
  for (const std::string& text : texts_of(value, said)) {
    const bool negative = text.starts_with("not ");
    const std::string_view word = negative ? std::string_view(text).substr(4) : std::string_view(text);
    const auto found = std::find(kConditionNames.begin(), kConditionNames.end(), word);
    if (found == kConditionNames.end()) {
      said.push_back(error(code::kUnknownValue, value->location, fmt::format("unknown condition '{}'", word),
                           fmt::format("one of {}", fmt::join(kConditionNames, ", "))));
      continue;
    }
    (negative ? when.none : when.all) |= uint64_t{1} << (found - kConditionNames.begin());
  }
  return when;
}

struct SectionReader {
  ProgramSection& section;
  const KernelFile& kernels;
  Diagnostics& said;

  int16_t name_index(std::string_view name) {
    for (size_t i = 0; i < section.names.size(); ++i) {
      if (section.names[i] == name) return static_cast<int16_t>(i);
    }
    section.names.emplace_back(name);
    return static_cast<int16_t>(section.names.size() - 1);
  }
  int16_t bound(const std::string& name, const Location& at) {
    const auto found = std::find(section.names.begin(), section.names.end(), name);
    if (found == section.names.end()) {
      said.push_back(error(code::kUnknownValue, at, fmt::format("no op before this one writes '{}'", name),
                           fmt::format("tensors so far: {}", fmt::join(section.names, ", "))));
      return 0;
    }
    return static_cast<int16_t>(found - section.names.begin());
  }
  const Kernel* kernel(const std::string& name, const Location& at) {
    const auto found = kernels.kernels.find(name);
    if (found != kernels.kernels.end()) return &found->second;
    std::vector<std::string> known;
    for (const auto& entry : kernels.kernels) known.push_back(entry.first);
    said.push_back(
        error(code::kUnknownValue, at, fmt::format("unknown kernel '{}'", name), fmt::format("one of {}", fmt::join(known, ", "))));
    return nullptr;
  }

  void weights(const Value* value) {
    if (value == nullptr) return;
    for (const Value::Entry& entry : value->entries) {
      ProgramWeight weight;
      weight.name = entry.first;
      MapReader map(entry.second, fmt::format("weight '{}'", entry.first), said);
      std::string out, in = "1";
      map.get("out", out);
      map.require("out");
      weight.matrix = map.get("in", in);
      map.get("target", weight.target);
      map.get("adapter", weight.adapter);
      map.get("expert", weight.expert);
      const auto find = [](std::string_view name) { return symbol_index(name); };
      weight.out = size_of(out, find, entry.second.location, said);
      weight.in = size_of(in, find, entry.second.location, said);
      weight.when = when_of(map.child("when"), said);
      map.finish();
      section.weights.push_back(std::move(weight));
    }
  }

  void pairs(const Value& value, ProgramOp& op) {  // {to: from}
    for (const Value::Entry& entry : value.entries) {
      Result<std::string> from = as_text(entry.second);
      append(said, std::move(from.diagnostics));
      if (!from.value) continue;
      op.in.push_back(bound(*from.value, value.location));
      op.out.push_back(name_index(entry.first));
    }
  }

  void op(const Value& value) {
    ProgramOp op;
    MapReader map(value, "op", said);
    op.when = when_of(map.child("when"), said);
    if (const Value* drop = map.child("drop")) {
      op.kind = ProgramOp::Kind::kDrop;
      for (const std::string& name : texts_of(drop, said)) op.in.push_back(bound(name, drop->location));
    } else if (const Value* move = map.child("move")) {
      op.kind = ProgramOp::Kind::kMove;
      pairs(*move, op);
    } else if (const Value* hold = map.child("hold")) {
      op.kind = ProgramOp::Kind::kHold;
      for (const std::string& name : texts_of(hold, said)) op.in.push_back(bound(name, hold->location));
    } else if (const Value* gathered = map.child("gathered")) {
      op.kind = ProgramOp::Kind::kGathered;
      append(said, as_bool(*gathered).diagnostics);
    } else if (const Value* experts = map.child("experts_begin")) {
      op.kind = ProgramOp::Kind::kExperts;
      append(said, as_bool(*experts).diagnostics);
    } else {
      call(value, map, op);
    }
    map.finish();
    const bool adaptable =
        op.kind == ProgramOp::Kind::kKernel && op.weight >= 0 && !section.weights[static_cast<size_t>(op.weight)].target.empty();
    const ProgramOp plain = op;
    if (adaptable) op.when.none |= bit_of(Condition::kQuantized);
    const bool castable = op.kind == ProgramOp::Kind::kKernel && op.kernel != nullptr && op.kernel->name == "linear" &&
                          op.weight >= 0 && !section.weights[static_cast<size_t>(op.weight)].expert;
    if (castable) {
      ProgramOp cast = op;
      cast.kernel = kernel("linear_cast", value.location);
      cast.recomputed = nullptr;
      cast.when.all |= bit_of(Condition::kCastsKept);
      op.when.none |= bit_of(Condition::kCastsKept);
      if (cast.kernel != nullptr) section.ops.push_back(std::move(cast));
    }
    section.ops.push_back(std::move(op));
    if (adaptable) quantized_and_adapted(plain, value);
  }

  // A matrix with a target also exists quantised, and with a low-rank adapter beside it (A: r x in, B: out x r): the ops and weights
  // for both, each under its conditions.
  void quantized_and_adapted(const ProgramOp& plain, const Value& value) {
    const Kernel* quantized = kernel("linear_quantized", value.location);
    if (quantized == nullptr) return;
    ProgramOp base = plain;
    base.kernel = quantized;
    base.recomputed = nullptr;
    base.when.all |= bit_of(Condition::kQuantized);
    section.ops.push_back(std::move(base));

    const ProgramWeight matrix = section.weights[static_cast<size_t>(plain.weight)];
    static constexpr std::array<std::string_view, 7> kTargets = {"q", "k", "v", "o", "gate", "up", "down"};
    const auto target = std::find(kTargets.begin(), kTargets.end(), matrix.target);
    if (target == kTargets.end()) {
      said.push_back(error(code::kUnknownValue, value.location,
                           fmt::format("found target '{}', expected one of {}", matrix.target, fmt::join(kTargets, ", "))));
      return;
    }
    const uint64_t adapted = bit_of(static_cast<Condition>(static_cast<int>(Condition::kAdapterQuery) + (target - kTargets.begin())));
    const auto find = [](std::string_view name) { return symbol_index(name); };
    ProgramWeight a, b;
    a.name = matrix.name + ".lora_a";
    a.out = b.in = size_of("r", find, value.location, said);
    a.in = matrix.in;
    b.name = matrix.name + ".lora_b";
    b.out = matrix.out;
    a.matrix = b.matrix = a.adapter = b.adapter = true;
    a.when = matrix.when;  // and the op's: a matrix may be used by one of two
    a.when.all |= plain.when.all | adapted;
    a.when.none |= plain.when.none;
    b.when = a.when;
    section.weights.push_back(std::move(a));
    section.weights.push_back(std::move(b));
    ProgramOp low_rank;
    low_rank.weight = static_cast<int16_t>(section.weights.size() - 2);
    low_rank.second_weight = static_cast<int16_t>(section.weights.size() - 1);
    low_rank.in = {plain.in[0], plain.out[0]};
    low_rank.out = {plain.out[0]};
    for (const bool dropout : {false, true}) {
      for (const char* name : {"lora", "lora_autocast", "lora_fp32"}) {
        low_rank.kernel = kernel(std::string(name) + (dropout ? "_dropout" : ""), value.location);
        if (low_rank.kernel == nullptr) return;
        low_rank.when = plain.when;
        low_rank.when.all |= adapted;
        const std::string_view kind = name;
        (kind == "lora" ? low_rank.when.none : low_rank.when.all) |= bit_of(Condition::kAdapterCast);
        if (kind != "lora") (kind == "lora_fp32" ? low_rank.when.none : low_rank.when.all) |= bit_of(Condition::kAutocast);
        (dropout ? low_rank.when.all : low_rank.when.none) |= bit_of(Condition::kAdapterDropout);
        section.ops.push_back(low_rank);
      }
    }
  }

  void call(const Value& value, MapReader& map, ProgramOp& op) {
    std::string name, recomputed, weight;
    map.get("kernel", name);
    map.require("kernel");
    op.kernel = kernel(name, value.location);
    if (map.get("recomputed_as", recomputed)) op.recomputed = kernel(recomputed, value.location);
    map.get("keep", op.keep);
    for (const std::string& read : texts_of(map.child("in"), said)) op.in.push_back(bound(read, value.location));
    for (const std::string& written : texts_of(map.child("out"), said)) op.out.push_back(name_index(written));
    for (const std::string& bytes : texts_of(map.child("bytes"), said)) {
      op.bytes.push_back(size_of(
          bytes, [](std::string_view symbol) { return symbol_index(symbol); }, value.location, said));
    }
    if (map.get("weight", weight)) {
      for (size_t i = 0; i < section.weights.size(); ++i) {
        if (section.weights[i].name == weight) op.weight = static_cast<int16_t>(i);
      }
      if (op.weight < 0) said.push_back(error(code::kUnknownValue, value.location, fmt::format("unknown weight '{}'", weight)));
    }
    if (op.kernel == nullptr) return;
    check_call(value, op);
  }

  void check_call(const Value& value, const ProgramOp& op) {
    if (static_cast<int>(op.in.size()) != op.kernel->num_reads || static_cast<int>(op.out.size()) != op.kernel->num_writes) {
      said.push_back(error(code::kUnknownValue, value.location,
                           fmt::format("found {} tensors in and {} out, expected {} and {} (kernel '{}')", op.in.size(), op.out.size(),
                                       op.kernel->num_reads, op.kernel->num_writes, op.kernel->name)));
    }
    if (op.kernel->weight != (op.weight >= 0)) {
      said.push_back(error(code::kMissingKey, value.location,
                           fmt::format("kernel '{}' takes {} weight", op.kernel->name, op.kernel->weight ? "a" : "no")));
    }
    int unsized = 0;  // writes whose size the kernel leaves to the call
    for (const KernelStep& step : op.kernel->forward) {
      const bool written = step.kind == KernelStep::Kind::kNew && step.name >= op.kernel->first_write() &&
                           step.name < op.kernel->first_write() + op.kernel->num_writes;
      if (written && step.size.empty()) ++unsized;
    }
    if (unsized != static_cast<int>(op.bytes.size())) {
      said.push_back(
          error(code::kMissingKey, value.location,
                fmt::format("found {} sizes in 'bytes', expected {} (kernel '{}')", op.bytes.size(), unsized, op.kernel->name)));
    }
  }

  void ops(const Value* value) {
    if (value == nullptr) return;
    if (value->kind != Value::Kind::kList) {
      said.push_back(error(code::kWrongType, value->location, "found no list, expected a list of ops"));
      return;
    }
    for (const Value& item : value->items) op(item);
  }
};

}  // namespace

const char* loss_name(LossHead loss) {
  static constexpr std::array<const char*, 12> kNames = {
      "eager",         "float_in_model",      "hf_shift",     "compiled",      "fused_kernel", "liger", "chunked", "cut_cross_entropy",
      "low_precision", "vocabulary_parallel", "chunked_head", "chunked_logits"};
  return kNames[static_cast<size_t>(loss)];
}

Result<BlockProgram> program_from_value(const Value& value, const std::string& id, std::shared_ptr<const KernelFile> kernels,
                                        const WeightTables& tables) {
  BlockProgram program;
  Diagnostics said;
  program.id = id;
  program.kernels = kernels;
  MapReader map(value, "program", said);
  std::string ignored;
  int64_t version = 0;
  map.get("version", version);
  map.get("label", program.label);
  map.get("source", ignored);
  map.get("date", ignored);
  map.get("compiled", program.compiled);
  map.get("zero_gradients_after_step", program.zero_gradients_after_step);
  const Value* named = map.child("weights");
  const Value* table = named != nullptr && tables ? tables(named->text) : nullptr;
  if (named != nullptr && table == nullptr)
    said.push_back(error(code::kUnknownValue, named->location, fmt::format("no table of weights is called '{}'", named->text)));
  const auto read = [&](const char* key, ProgramSection& section, bool has_input) {
    const Value* part = map.child(key);
    if (part == nullptr) {
      map.require(key);
      return;
    }
    SectionReader reader{section, *kernels, said};
    if (has_input) reader.name_index("x");
    MapReader inner(*part, key, said);
    const Value* own = inner.child("weights");
    reader.weights(own != nullptr || table == nullptr ? own : table->find(key));
    reader.ops(inner.child("ops"));
    inner.finish();
  };
  read("embedding", program.embedding, false);
  read("block", program.block, true);
  ProgramSection head;
  read("head", head, true);
  const Value* own_losses = map.child("losses");
  for (size_t i = 0; i < program.heads.size(); ++i) {
    const char* name = loss_name(static_cast<LossHead>(i));
    const Value* loss = own_losses != nullptr ? own_losses->find(name) : nullptr;
    if (loss == nullptr) loss = kernels->losses.find(name);
    if (loss == nullptr || has_error(said)) continue;
    ProgramSection& section = program.heads[i];
    section = head;
    const size_t own = section.names.size();
    SectionReader{section, *kernels, said}.ops(loss);
    for (size_t name = 0; name < section.names.size(); ++name) {
      if (name >= own || section.names[name].starts_with("logits")) section.first_logits.push_back(static_cast<int16_t>(name));
    }
  }
  map.finish();
  if (has_error(said)) return said;
  return {std::move(program), std::move(said)};
}

}  // namespace distsetup::replay
