// Reads programs of the form `lifetimes`, once each, and evaluates them: a prefix of a few dozen sums per part.
#include "planner/frameworks/lifetimes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/embedded.h"
#include "base/value.h"
#include "base/value_yaml.h"

namespace distsetup {
namespace {

constexpr std::array<std::string_view, LayerSymbols::kCount> kLayerSymbolNames = {
    "T", "S", "h",  "a",  "kv", "d", "f", "u", "V",  "t",  "s",  "g",  "c",  "i",  "e",  "x", "n", "E",
    "R", "l", "fe", "fs", "y",  "p", "q", "k", "rq", "rk", "dn", "dr", "dv", "he", "hl", "m", "w", "z"};
constexpr std::array<std::string_view, 7> kModuleNames = {"core_attn", "layernorm", "mla_up_proj",   "mlp",
                                                          "moe",       "moe_act",   "shared_experts"};

int layer_symbol(std::string_view name) {
  for (size_t i = 0; i < kLayerSymbolNames.size(); ++i) {
    if (kLayerSymbolNames[i] == name) return static_cast<int>(i);
  }
  return -1;
}

// Programs are ours: a mistake in one is found by its unit test and by CHECK.
replay::SizeExpression size_of(const std::string& text) {
  replay::SizeExpression expression;
  std::string problem;
  CHECK(replay::parse_size(text, layer_symbol, expression, problem), "size '{}': {}", text, problem);
  return expression;
}

void read_weights(const Value* list, bool dummy, bool per_expert, LifetimePart& part) {
  if (list == nullptr) return;
  for (const Value& item : list->items) {
    CHECK(item.items.size() == 3, "weight of part {}", part.name);
    part.weights.push_back({size_of(item.items[1].text), size_of(item.items[2].text), dummy, per_expert});
  }
}

ModuleSet modules_of(const Value& tensor) {
  if (tensor.items.size() < 5) return kWholeLayer;
  std::string_view rest = tensor.items[4].text;
  if (rest == "never") return 0;
  ModuleSet set = kWholeLayer;
  while (!rest.empty()) {
    const size_t bar = std::min(rest.find('|'), rest.size());
    const ModuleSet one = recompute_module(rest.substr(0, bar));
    CHECK(one != 0, "module '{}'", rest);
    set |= one;
    rest.remove_prefix(std::min(bar + 1, rest.size()));
  }
  return set;
}

LifetimePart read_part(const std::string& name, const Value& value) {
  LifetimePart part;
  part.name = name;
  std::map<std::string, int, std::less<>> ops;
  for (const char* direction : {"forward", "backward"}) {
    for (const Value& op : value.find(direction)->items) ops.emplace(op.text, static_cast<int>(ops.size()));
    if (part.num_forward == 0) part.num_forward = static_cast<int>(ops.size());
  }
  part.num_ops = static_cast<int>(ops.size());
  read_weights(value.find("te"), true, false, part);
  read_weights(value.find("plain"), false, false, part);
  read_weights(value.find("per_expert"), true, true, part);
  for (const Value& item : value.find("tensors")->items) {
    CHECK(item.items.size() == 4 || item.items.size() == 5, "tensor of part {}", name);
    const auto born = ops.find(item.items[2].text), dies = ops.find(item.items[3].text);
    CHECK(born != ops.end() && dies != ops.end() && born->second <= dies->second, "lifetime of {} in {}", item.items[0].text, name);
    LifetimeTensor tensor{item.items[0].text, size_of(item.items[1].text), born->second, dies->second, modules_of(item)};
    tensor.logits = tensor.name.ends_with("logits") || (name.starts_with("head") && tensor.name == "probabilities");
    part.tensors.push_back(std::move(tensor));
  }
  return part;
}

std::vector<LifetimeProgram> read_programs() {
  std::vector<LifetimeProgram> programs;
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.path.starts_with("presets/programs/") || !file.path.ends_with(".yaml")) continue;
    if (file.text.find("\nform: lifetimes\n") == std::string_view::npos) continue;
    const Result<Value> value = parse_yaml(file.text, file.path);
    CHECK(value.ok(), "{} is not YAML", file.path);
    LifetimeProgram program;
    program.name = file.path.substr(17, file.path.size() - 17 - 5);
    if (const Value* multiple = value->find("vocabulary_multiple"); multiple != nullptr)
      program.vocabulary_multiple = *as_int(*multiple);
    if (const Value* by = value->find("stages_by_cost"); by != nullptr) program.stages_by_cost = by->text == "true";
    for (const Value::Entry& part : value->find("parts")->entries) program.parts.push_back(read_part(part.first, part.second));
    programs.push_back(std::move(program));
  }
  return programs;
}

}  // namespace

ModuleSet recompute_module(std::string_view name) {
  for (size_t i = 0; i < kModuleNames.size(); ++i) {
    if (kModuleNames[i] == name) return 1u << i;
  }
  return 0;
}

static int64_t padded(int64_t vocabulary, int64_t unit) { return (vocabulary + unit - 1) / unit * unit; }

int64_t padded_vocabulary(const Setup& s) {
  const LifetimeProgram* program = s.traits().lifetime_programs ? lifetime_program(s.program) : nullptr;
  return program == nullptr ? s.model.vocabulary : padded(s.model.vocabulary, program->vocabulary_multiple * s.tp);
}

std::string_view missing_part(const LifetimeProgram& program, const Geometry& model) {
  if (model.attention == Attention::kLatent && program.find("latent") == nullptr) return "latent attention";
  return model.num_experts > 0 && program.find("experts") == nullptr ? "experts" : "";
}

LayerSymbols layer_symbols(const Setup& s, const LifetimeProgram& program) {
  const Geometry& g = s.model;
  const bool fp8 = s.compute == Dtype::kF8, scattered = s.tp > 1 && s.sequence_parallel;
  const int64_t tokens = s.tokens(), bytes = s.compute == Dtype::kF32 ? 4 : 2;
  LayerSymbols out;
  const auto set = [&](std::string_view name, int64_t value) { out.values[layer_symbol(name)] = value; };
  set("T", tokens);
  set("S", s.sequence_length);
  set("h", g.hidden);
  set("a", g.num_heads);
  set("kv", g.num_kv_heads);
  set("d", g.head_size);
  set("f", g.feed_forward);
  set("u", g.gated_mlp ? 2 : 1);
  set("V", padded(g.vocabulary, program.vocabulary_multiple * s.tp));
  set("t", s.tp);
  set("s", scattered ? s.tp : 1);
  set("g", scattered ? 1 : 0);
  set("c", bytes);
  set("i", fp8 ? 1 : bytes);
  set("e", fp8 ? 1 : 0);
  set("x", s.cp > 1 && s.cp_method == CpMethod::kUlysses ? 1 : 0);
  // Ring: the chunk in use and the chunk on its way, keys and values each; all-gather: those of every rank.
  set("n", s.cp == 1 || s.cp_method == CpMethod::kUlysses ? 0 : s.cp_method == CpMethod::kRing ? 4 : 2 * s.cp);
  if (g.num_experts > 0) {
    const int64_t local = std::max<int64_t>(1, g.num_experts / s.ep);
    const double mean =
        static_cast<double>(tokens * g.experts_per_token) / static_cast<double>(g.num_experts * (scattered ? s.tp : 1));
    set("E", g.num_experts);
    set("R", static_cast<int64_t>(std::ceil(mean * std::max(1.0, s.expert_imbalance))) * g.num_experts);
    set("l", local);
    set("fe", g.expert_feed_forward);
    set("he", g.expert_width());
    set("hl", g.expert_hidden);
    set("fs", g.shared_feed_forward);
    set("q", local > 1 ? 1 : 0);
    set("k", g.shared_feed_forward > 0 ? 1 : 0);
  }
  set("m", s.dropout ? 1 : 0);
  set("w", s.flash_attention ? 0 : 1);
  set("z", g.scan_channels - (g.global_layer_every > 0 ? g.scan_channels / g.global_layer_every : 0));
  set("y", s.expert_tp);
  set("p", s.ep > 1 ? 1 : 0);
  set("rq", g.q_lora_rank);
  set("rk", g.kv_lora_rank);
  set("dn", g.qk_nope_head_size);
  set("dr", g.qk_rope_head_size);
  set("dv", g.v_head_size);
  return out;
}

const LifetimePart* LifetimeProgram::find(std::string_view part) const {
  for (const LifetimePart& candidate : parts) {
    if (candidate.name == part) return &candidate;
  }
  return nullptr;
}

const LifetimeProgram* lifetime_program(std::string_view name) {
  static const std::vector<LifetimeProgram> programs = read_programs();
  for (const LifetimeProgram& program : programs) {
    if (program.name == name) return &program;
  }
  return nullptr;
}

const LifetimeProgram& lifetime_program(const Setup& s) {
  const LifetimeProgram* program = lifetime_program(s.program);
  if (program == nullptr) program = lifetime_program("megatron_te");
  CHECK(program != nullptr, "no program of lifetimes for '{}'", s.program);
  return *program;
}

PartBytes evaluate(const LifetimePart& part, const LayerSymbols& symbols, ModuleSet dropped) {
  constexpr int kMaxOps = 48;
  CHECK(part.num_ops <= kMaxOps, "ops of part {}", part.name);
  int64_t change[kMaxOps + 1] = {}, logits_change[kMaxOps + 1] = {};
  PartBytes out;
  for (const LifetimeTensor& tensor : part.tensors) {
    const int64_t bytes = tensor.bytes.evaluate(symbols.values);
    change[tensor.born] += bytes;
    change[tensor.dies + 1] -= bytes;
    if (tensor.logits) {
      logits_change[tensor.born] += bytes;
      logits_change[tensor.dies + 1] -= bytes;
    }
    if (tensor.born < part.num_forward && tensor.dies >= part.num_forward) {
      out.saved += bytes;
      if ((tensor.dropped_by & dropped) == 0) out.kept += bytes;
    }
  }
  int64_t live = 0, logits = 0, peak = 0;
  for (int op = 0; op < part.num_ops; ++op) {
    live += change[op];
    logits += logits_change[op];
    int64_t& highest = op < part.num_forward ? out.forward_peak : out.backward_peak;
    highest = std::max(highest, live);
    if (live > peak) {
      peak = live;
      out.logits_at_peak = logits;
    }
  }
  return out;
}

int64_t num_local_experts(const LayerSymbols& symbols) { return symbols.values[layer_symbol("l")]; }

PartWeights weights_of(const LifetimePart& part, const LayerSymbols& symbols) {
  PartWeights out;
  for (const LifetimeWeight& weight : part.weights) {
    const int64_t elements = weight.rows.evaluate(symbols.values) * weight.columns.evaluate(symbols.values);
    if (weight.per_expert) {
      out.expert_elements += elements * num_local_experts(symbols);
    } else {
      out.elements += elements;
    }
  }
  return out;
}

void collect_dummy_shapes(const LifetimePart& part, const LayerSymbols& symbols, std::vector<WeightShape>& shapes) {
  for (const LifetimeWeight& weight : part.weights) {
    if (!weight.dummy_gradient) continue;
    const WeightShape shape{weight.rows.evaluate(symbols.values), weight.columns.evaluate(symbols.values)};
    if (shape.rows > 0 && shape.columns > 0 && std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
  }
}

}  // namespace distsetup
