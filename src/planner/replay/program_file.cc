// Reads kernels and programs. Every name must be bound before it is read, every size and condition known: a mistake is a diagnostic
// at its place in the file.
#include "planner/replay/program_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/embedded.h"
#include "base/names.h"

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
                                                                                                  "loss_gathers",
                                                                                                  "online_softmax",
                                                                                                  "many_samples"};
constexpr std::array<std::string_view, 10> kKernelKinds = {"gemm", "attention", "norm",       "elementwise",    "embedding",
                                                           "loss", "copy",      "all_gather", "reduce_scatter", "all_to_all"};

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = text.find_first_not_of(" \n\t", at);
    if (begin == std::string_view::npos) break;
    const size_t end = std::min(text.find_first_of(" \n\t", begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    at = end;
  }
  return words;
}

std::vector<std::string> texts_of(const Value* value, Diagnostics& said) {
  std::vector<std::string> texts;
  if (value == nullptr) return texts;
  const auto add = [&](const Value& item) {
    Result<std::string> text = as_text(item);
    append(said, std::move(text.diagnostics));
    if (text.value) texts.push_back(*text.value);
  };
  if (value->kind == Value::Kind::kList) {
    for (const Value& item : value->items) add(item);
  } else {
    add(*value);
  }
  return texts;
}

SizeExpression size_of(std::string_view text, const std::function<int(std::string_view)>& find, const Location& at,
                       Diagnostics& said) {
  SizeExpression size;
  std::string problem;
  if (!parse_size(text, find, size, problem)) {
    said.push_back(error(code::kUnknownValue, at, fmt::format("size '{}': {}", text, problem)));
  }
  return size;
}

// ---- kernels

struct KernelReader {
  Kernel& kernel;
  Diagnostics& said;

  int local(std::string_view name) const {
    for (size_t i = 0; i < kernel.locals.size(); ++i) {
      if (kernel.locals[i] == name) return static_cast<int>(i);
    }
    return -1;
  }
  int size_index(std::string_view name) const {
    const int index = local(name);
    return index >= 0 ? kFirstLocal + index : symbol_index(name);
  }
  int8_t known(std::string_view name, const Location& at) {
    const int index = local(name);
    if (index < 0) {
      said.push_back(
          error(code::kUnknownValue, at,
                fmt::format("kernel '{}' names '{}', expected one of {}", kernel.name, name, fmt::join(kernel.locals, ", "))));
    }
    return static_cast<int8_t>(std::max(index, 0));
  }
  int8_t bind(std::string_view name, const Location& at) {
    if (const int index = local(name); index >= 0) return static_cast<int8_t>(index);
    if (kernel.locals.size() == kMaxLocals) {
      said.push_back(error(code::kOutOfRange, at, fmt::format("kernel '{}' has more than {} tensors", kernel.name, kMaxLocals)));
      return 0;
    }
    kernel.locals.emplace_back(name);
    return static_cast<int8_t>(kernel.locals.size() - 1);
  }
  void names(const Value* value, std::vector<int8_t>& into) {
    for (const std::string& name : texts_of(value, said)) into.push_back(known(name, value->location));
  }

  // "+x32=2*x +y -x32 weight x<dx x<=g rebuild rebuilt n( +a -a )"
  void steps(const Value* value, std::vector<Step>& into) {
    if (value == nullptr) return;
    std::vector<int16_t> open;
    for (const std::string& text : texts_of(value, said)) {
      for (std::string_view word : words_of(text)) {
        Step step;
        const auto find = [this](std::string_view name) { return size_index(name); };
        if (word.starts_with('?')) {
          step.when_trained = true;
          word.remove_prefix(1);
        }
        const size_t arrow = word.find('<');
        if (word == "weight") {
          step.kind = Step::Kind::kWeight;
        } else if (word == "weight_b") {
          step.kind = Step::Kind::kSecondWeight;
          kernel.has_second_weight = true;
        } else if (word == "rebuild" || word == "rebuilt") {
          step.kind = word == "rebuild" ? Step::Kind::kRebuild : Step::Kind::kRebuilt;
        } else if (word == ")") {
          step.kind = Step::Kind::kEnd;
          if (open.empty()) {
            said.push_back(error(code::kSyntax, value->location, "found ')', expected it only after 'count('"));
            continue;
          }
          step.partner = open.back();
          into[static_cast<size_t>(open.back())].partner = static_cast<int16_t>(into.size());
          open.pop_back();
        } else if (word.ends_with('(')) {
          step.kind = Step::Kind::kRepeat;
          word.remove_suffix(1);
          step.size = size_of(word, find, value->location, said);
          open.push_back(static_cast<int16_t>(into.size()));
        } else if (word.starts_with('+')) {
          const size_t equals = std::min(word.find('='), word.size());
          if (equals < word.size()) step.size = size_of(word.substr(equals + 1), find, value->location, said);
          step.name = bind(word.substr(1, equals - 1), value->location);
        } else if (word.starts_with('-')) {
          step.kind = Step::Kind::kFree;
          step.name = known(word.substr(1), value->location);
        } else if (arrow != std::string_view::npos) {
          const bool shared = word.substr(arrow).starts_with("<=");
          step.kind = shared ? Step::Kind::kSharedGradient : Step::Kind::kGradient;
          step.name = known(word.substr(0, arrow), value->location);
          step.other = known(word.substr(arrow + (shared ? 2 : 1)), value->location);
        } else {
          said.push_back(
              error(code::kUnknownValue, value->location,
                    fmt::format("found step '{}', expected +name=size, -name, read<gradient, weight, weight_b, rebuild, rebuilt, "
                                "count( or )",
                                word)));
          continue;
        }
        into.push_back(std::move(step));
      }
    }
    if (!open.empty()) said.push_back(error(code::kSyntax, value->location, "found no ')' for 'count('"));
  }
};

Kernel kernel_from_value(const std::string& name, const Value& value, Diagnostics& said) {
  Kernel kernel;
  kernel.name = name;
  KernelReader reader{kernel, said};
  MapReader map(value, fmt::format("kernel '{}'", name), said);
  map.get("kind", kernel.kind);
  if (std::find(kKernelKinds.begin(), kKernelKinds.end(), kernel.kind) == kKernelKinds.end()) {
    said.push_back(error(code::kUnknownValue, value.location,
                         fmt::format("found kind '{}', expected one of {}", kernel.kind, fmt::join(kKernelKinds, ", "))));
  }
  kernel.locals.emplace_back("g");
  for (const std::string& read : texts_of(map.child("reads"), said)) reader.bind(read, value.location);
  kernel.num_reads = static_cast<int>(kernel.locals.size()) - 1;
  for (const std::string& written : texts_of(map.child("writes"), said)) reader.bind(written, value.location);
  kernel.num_writes = static_cast<int>(kernel.locals.size()) - 1 - kernel.num_reads;
  map.get("weight", kernel.weight);
  reader.steps(map.child("forward"), kernel.forward);
  reader.steps(map.child("backward"), kernel.backward);
  reader.names(map.child("saves"), kernel.saves);
  reader.names(map.child("saves_for_weight"), kernel.saves_for_weight);
  map.finish();
  return kernel;
}

// ---- programs

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
  Section& section;
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
      Weight weight;
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
    if (adaptable) op.when.none |= bit(Condition::kQuantized);
    section.ops.push_back(std::move(op));
    if (adaptable) quantized_and_adapted(plain, value);
  }

  static uint64_t bit(Condition condition) { return uint64_t{1} << static_cast<int>(condition); }

  // A matrix with a target also exists quantised, and with a low-rank adapter beside it (A: r x in, B: out x r): the ops and weights
  // for both, each under its conditions.
  void quantized_and_adapted(const ProgramOp& plain, const Value& value) {
    const Kernel* quantized = kernel("linear_quantized", value.location);
    if (quantized == nullptr) return;
    ProgramOp base = plain;
    base.kernel = quantized;
    base.recomputed = nullptr;
    base.when.all |= bit(Condition::kQuantized);
    section.ops.push_back(std::move(base));

    const Weight matrix = section.weights[static_cast<size_t>(plain.weight)];
    static constexpr std::array<std::string_view, 7> kTargets = {"q", "k", "v", "o", "gate", "up", "down"};
    const auto target = std::find(kTargets.begin(), kTargets.end(), matrix.target);
    if (target == kTargets.end()) {
      said.push_back(error(code::kUnknownValue, value.location,
                           fmt::format("found target '{}', expected one of {}", matrix.target, fmt::join(kTargets, ", "))));
      return;
    }
    const uint64_t adapted = bit(static_cast<Condition>(static_cast<int>(Condition::kAdapterQuery) + (target - kTargets.begin())));
    const auto find = [](std::string_view name) { return symbol_index(name); };
    Weight a, b;
    a.name = matrix.name + ".lora_a";
    a.out = b.in = size_of("r", find, value.location, said);
    a.in = matrix.in;
    b.name = matrix.name + ".lora_b";
    b.out = matrix.out;
    a.matrix = b.matrix = a.adapter = b.adapter = true;
    a.when = matrix.when;
    a.when.all |= adapted;
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
        (kind == "lora" ? low_rank.when.none : low_rank.when.all) |= bit(Condition::kAdapterCast);
        if (kind != "lora") (kind == "lora_fp32" ? low_rank.when.none : low_rank.when.all) |= bit(Condition::kAutocast);
        (dropout ? low_rank.when.all : low_rank.when.none) |= bit(Condition::kAdapterDropout);
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
    for (const Step& step : op.kernel->forward) {
      const bool written = step.kind == Step::Kind::kNew && step.name >= op.kernel->first_write() &&
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

std::string lacks_for(const BlockProgram& program, const Geometry& model) {
  const auto lacks = [&](Condition condition, bool wanted) {
    const uint64_t bit = uint64_t{1} << static_cast<int>(condition);
    return wanted && std::none_of(program.block.weights.begin(), program.block.weights.end(),
                                  [bit](const Weight& weight) { return (weight.when.all & bit) != 0; });
  };
  if (lacks(Condition::kLatent, model.attention == Attention::kLatent)) return "latent attention";
  if (model.num_experts == 0) return "";
  if (lacks(Condition::kExperts, true)) return "experts";
  if (lacks(Condition::kSharedExperts, model.shared_feed_forward > 0)) return "shared experts";
  if (lacks(Condition::kSharedExpertGate, model.shared_expert_gate)) return "a gate of its shared experts";
  if (lacks(Condition::kRouterScoreBias, model.router_score_bias)) return "a bias of its router's scores";
  if (model.mlp_bias) return "biases in its experts";
  if (!model.gated_mlp) return "experts without a gate";
  return "";
}

const char* loss_name(LossHead loss) {
  static constexpr std::array<const char*, 10> kNames = {
      "eager", "float_in_model", "hf_shift",          "compiled",      "fused_kernel",
      "liger", "chunked",        "cut_cross_entropy", "low_precision", "vocabulary_parallel"};
  return kNames[static_cast<size_t>(loss)];
}

Result<KernelFile> kernels_from_value(const Value& value) {
  KernelFile file;
  Diagnostics said;
  MapReader map(value, "kernels", said);
  std::string ignored;
  int64_t version = 0;
  map.get("version", version);
  map.get("source", ignored);
  map.get("date", ignored);
  if (const Value* kernels = map.child("kernels")) {
    for (const Value::Entry& entry : kernels->entries)
      file.kernels.emplace(entry.first, kernel_from_value(entry.first, entry.second, said));
  }
  if (const Value* losses = map.child("losses")) file.losses = *losses;
  map.finish();
  if (has_error(said)) return said;
  return {std::move(file), std::move(said)};
}

Result<BlockProgram> program_from_value(const Value& value, const std::string& id, std::shared_ptr<const KernelFile> kernels) {
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
  const auto read = [&](const char* key, Section& section, bool has_input) {
    const Value* part = map.child(key);
    if (part == nullptr) {
      map.require(key);
      return;
    }
    SectionReader reader{section, *kernels, said};
    if (has_input) reader.name_index("x");
    MapReader inner(*part, key, said);
    reader.weights(inner.child("weights"));
    reader.ops(inner.child("ops"));
    inner.finish();
  };
  read("embedding", program.embedding, false);
  read("block", program.block, true);
  Section head;
  read("head", head, true);
  const Value* own_losses = map.child("losses");
  for (size_t i = 0; i < program.heads.size(); ++i) {
    const char* name = loss_name(static_cast<LossHead>(i));
    const Value* loss = own_losses != nullptr ? own_losses->find(name) : nullptr;
    if (loss == nullptr) loss = kernels->losses.find(name);
    if (loss == nullptr || has_error(said)) continue;
    Section& section = program.heads[i];
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

namespace {

const std::map<std::string, BlockProgram, std::less<>>& built_in_programs() {
  static const std::map<std::string, BlockProgram, std::less<>> programs = [] {
    std::shared_ptr<const KernelFile> kernels;
    std::map<std::string, BlockProgram, std::less<>> all;
    const auto parsed = [](const EmbeddedFile& file) {
      Result<Value> value = parse_yaml(file.text, file.path);
      CHECK(value.ok(), "{}", format_diagnostics(value.diagnostics));
      return std::move(*value);
    };
    for (const EmbeddedFile& file : embedded_files()) {  // kernels come before programs: sorted by path
      if (file.path == "presets/kernels/torch.yaml") {
        Result<KernelFile> read = kernels_from_value(parsed(file));
        CHECK(read.ok(), "{}", format_diagnostics(read.diagnostics));
        kernels = std::make_shared<const KernelFile>(std::move(*read));
      }
      constexpr std::string_view kFolder = "presets/programs/";
      if (!file.path.starts_with(kFolder)) continue;
      CHECK(kernels != nullptr, "no presets/kernels/torch.yaml");
      std::string id(file.path.substr(kFolder.size()));
      id.resize(id.size() - std::string_view(".yaml").size());
      const Value value = parsed(file);
      if (value.find("form") != nullptr) continue;  // another form of the same facts (frameworks/lifetimes.h)
      Result<BlockProgram> program = program_from_value(value, id, kernels);
      CHECK(program.ok(), "{}", format_diagnostics(program.diagnostics));
      all.emplace(id, std::move(*program));
    }
    return all;
  }();
  return programs;
}

}  // namespace

Result<std::shared_ptr<const BlockProgram>> load_program(const Presets& presets, const PresetFile& file) {
  const PresetFile* kernels_file = find_preset(presets, "kernels", "torch");
  if (kernels_file == nullptr)
    return error(code::kUnknownProgram, {file.path, 0, 0}, "no presets/kernels/torch.yaml beside this program");
  Result<Value> kernels_text = read_preset(*kernels_file);
  if (!kernels_text.ok()) return kernels_text.diagnostics;
  Result<KernelFile> kernels = kernels_from_value(*kernels_text);
  if (!kernels.ok()) return kernels.diagnostics;
  Result<Value> text = read_preset(file);
  if (!text.ok()) return text.diagnostics;
  Result<BlockProgram> program = program_from_value(*text, file.id, std::make_shared<const KernelFile>(std::move(*kernels)));
  if (!program.ok()) return program.diagnostics;
  return {std::make_shared<const BlockProgram>(std::move(*program)), std::move(program.diagnostics)};
}

const BlockProgram* find_program(std::string_view id) {
  const auto& programs = built_in_programs();
  const auto found = programs.find(id);
  return found == programs.end() ? nullptr : &found->second;
}

std::vector<std::string> program_ids() {
  std::vector<std::string> ids;
  for (const auto& entry : built_in_programs()) ids.push_back(entry.first);
  return ids;
}

uint64_t facts_of(const Setup& s) {
  uint64_t facts = 0;
  const auto say = [&](Condition condition, bool holds) {
    if (holds) facts |= uint64_t{1} << static_cast<int>(condition);
  };
  const Geometry& m = s.model;
  say(Condition::kTensorParallel, s.tp > 1);
  say(Condition::kGroupedHeads, m.num_kv_heads < m.num_heads);
  say(Condition::kFusedNorm, s.fused_norm);
  say(Condition::kFusedRope, s.fused_rope);
  say(Condition::kFlash, s.flash_attention);
  say(Condition::kGated, m.gated_mlp);
  say(Condition::kLayerNorm, m.norm == Norm::kLayer);
  say(Condition::kQkvBias, m.qkv_bias);
  say(Condition::kOutputBias, m.output_bias);
  say(Condition::kMlpBias, m.mlp_bias);
  say(Condition::kHeadBias, m.head_bias);
  say(Condition::kQkNorm, m.qk_norm_present());
  say(Condition::kParallelBlock, m.parallel_block);
  say(Condition::kTwoNorms, m.norms_per_layer >= 2);
  say(Condition::kFourNorms, m.norms_per_layer >= 4);
  say(Condition::kTied, m.tied_embeddings);
  say(Condition::kLogitsKept, s.software.logits_kept);
  say(Condition::kFusedLinearLoss, s.loss == LossHead::kLiger || s.loss == LossHead::kCutCrossEntropy);
  say(Condition::kLearnedPositions, m.learned_positions > 0);
  const bool adapters = s.finetune != Finetune::kFull;
  say(Condition::kAdapterQuery, adapters && s.lora.query);
  say(Condition::kAdapterKey, adapters && s.lora.key);
  say(Condition::kAdapterValue, adapters && s.lora.value);
  say(Condition::kAdapterOutput, adapters && s.lora.output);
  say(Condition::kAdapterGate, adapters && s.lora.gate);
  say(Condition::kAdapterUp, adapters && s.lora.up);
  say(Condition::kAdapterDown, adapters && s.lora.down);
  say(Condition::kAdapterDropout, adapters && s.lora.dropout > 0);
  say(Condition::kAdapterCast, adapters && s.lora.dtype == StorageDtype::kF32 && s.compute != Compute::kF32);
  say(Condition::kQuantized, s.finetune == Finetune::kQlora);
  say(Condition::kAttentionCopied, s.software.attention_output_copied);
  say(Condition::kAdapters, adapters);
  say(Condition::kKvHeadsRepeated, s.software.kv_heads_repeated && m.num_kv_heads < m.num_heads);
  say(Condition::kLogitsStayLow,
      m.family.starts_with("gpt") || m.family == "qwen");  // qwen: the first one, whose model file came with it
  say(Condition::kExperts, m.num_experts > 0);
  say(Condition::kSharedExperts, m.num_experts > 0 && m.shared_feed_forward > 0);
  say(Condition::kSharedExpertGate, m.num_experts > 0 && m.shared_expert_gate);
  say(Condition::kRouterScoreBias, m.num_experts > 0 && m.router_score_bias);
  say(Condition::kExpertParallel, m.num_experts > 0 && s.ep > 1);
  say(Condition::kLatent, m.attention == Attention::kLatent);
  say(Condition::kQueryLatent, m.attention == Attention::kLatent && m.q_lora_rank > 0);
  const bool fp8_linears = s.fp8 == Fp8Recipe::kTensorwise || s.fp8 == Fp8Recipe::kRowwise;
  say(Condition::kFp8Linears, fp8_linears);
  say(Condition::kFp8WeightsSaved, fp8_linears && s.software.fp8_weights_saved);
  say(Condition::kFp8AbsSaved, fp8_linears && s.software.fp8_abs_saved);
  say(Condition::kFp8RowwiseAbsSaved, s.fp8 == Fp8Recipe::kRowwise && s.software.fp8_abs_saved);
  say(Condition::kAttentionRecomputed, s.software.attention_recomputed);
  say(Condition::kLossGathers, s.tp > 1 && s.software.compiled_loss_gathers);
  say(Condition::kOnlineSoftmax, s.software.online_softmax);
  say(Condition::kManySamples, s.micro_batch > 1);
  say(Condition::kAutocast, s.autocast);
  say(Condition::kLowPrecisionLogitsKept, s.software.low_precision_logits_kept);
  say(Condition::kResidualInFp32, s.software.residual_in_fp32);
  say(Condition::kEmbeddingScaled, m.family.starts_with("granite") || m.family.starts_with("gemma"));
  return facts;
}

uint64_t facts_of_layer(uint64_t facts, bool experts) {
  if (experts) return facts;
  for (const Condition only : {Condition::kExperts, Condition::kSharedExperts, Condition::kSharedExpertGate,
                               Condition::kRouterScoreBias, Condition::kExpertParallel})
    facts &= ~(uint64_t{1} << static_cast<int>(only));
  return facts;
}

void fill_symbols(const Setup& s, int64_t* values) {
  const auto put = [&](Symbol symbol, int64_t value) { values[static_cast<size_t>(symbol)] = value; };
  const Geometry& m = s.model;
  const int64_t tokens = s.tokens();
  put(Symbol::kTokens, tokens);
  put(Symbol::kSequence, s.sequence_length / s.cp);
  put(Symbol::kHidden, m.hidden);
  put(Symbol::kHeads, m.num_heads);
  put(Symbol::kKvHeads, m.num_kv_heads);
  put(Symbol::kHeadSize, m.head_size);
  put(Symbol::kFeedForward, m.feed_forward);
  put(Symbol::kVocabulary, m.vocabulary);
  put(Symbol::kExperts, m.num_experts);
  put(Symbol::kExpertsPerToken, m.experts_per_token);
  put(Symbol::kExpertFeedForward, m.expert_feed_forward);
  put(Symbol::kSharedFeedForward, m.shared_feed_forward);
  // Without expert parallelism every rank of the tensor-parallel group holds a part of all experts and sees all rows; with it whole
  // experts, and the group's ranks route a part of the tokens each (torchtitan's expert_tensor_parallel_degree 1).
  const int64_t rows = m.experts_per_token * tokens / (s.ep > 1 ? s.tp : 1);
  put(Symbol::kLocalExperts, m.num_experts / s.ep);
  put(Symbol::kExpertTensorParallel, s.ep > 1 ? 1 : s.tp);
  put(Symbol::kRoutedRows, s.ep > 1 ? static_cast<int64_t>(static_cast<double>(rows) * s.expert_imbalance) : rows);
  put(Symbol::kQueryLatent, m.q_lora_rank);
  put(Symbol::kKvLatent, m.kv_lora_rank);
  put(Symbol::kNopeHeadSize, m.qk_nope_head_size);
  put(Symbol::kRopeHeadSize, m.qk_rope_head_size);
  put(Symbol::kValueHeadSize, m.v_head_size);
  put(Symbol::kTensorParallel, s.tp);
  put(Symbol::kSequenceShards, s.sequence_parallel ? s.tp : 1);
  put(Symbol::kComputeBytes, s.compute == Compute::kF32 ? 4 : 2);
  put(Symbol::kGroup, s.loss_chunks);
  // Liger's fused linear cross entropy: as many chunks as make one about as large as the hidden states, rounded up to a power of two
  // (liger_kernel/ops/fused_linear_cross_entropy.py).
  const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  int64_t chunks = 1;
  while (chunks < ceil_div(tokens, ceil_div(std::max<int64_t>(m.vocabulary, 1), std::max<int64_t>(m.hidden, 1)))) chunks *= 2;
  put(Symbol::kLossRows, ceil_div(tokens, chunks));
  put(Symbol::kAdapterRank, s.lora.rank);
  put(Symbol::kAdapterBytes, s.lora.dtype == StorageDtype::kF32 ? 4 : 2);
  put(Symbol::kResidualBytes, s.software.residual_in_fp32 ? 4 : values[static_cast<size_t>(Symbol::kComputeBytes)]);
}

}  // namespace distsetup::replay
