#include "plan/native_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/map_reader.h"
#include "base/value_yaml.h"
#include "model/condition.h"
#include "model/geometry_fields.h"
#include "plan/context_parallel.h"
#include "plan/expert_parallel.h"
#include "plan/expert_rules.h"
#include "plan/frozen.h"
#include "plan/kernel_table.h"
#include "plan/latent_rules.h"
#include "plan/native_parameters.h"
#include "plan/packed_rows.h"
#include "plan/preference_loss.h"
#include "plan/program_builder.h"
#include "plan/tensor_parallel.h"

namespace distsetup {
namespace {

constexpr std::array<std::pair<std::string_view, ParameterDecl::Init>, 4> kInits = {{{"normal", ParameterDecl::Init::kNormal},
                                                                                     {"ones", ParameterDecl::Init::kOnes},
                                                                                     {"zeros", ParameterDecl::Init::kZeros},
                                                                                     {"scaled", ParameterDecl::Init::kScaledNormal}}};

constexpr std::array<std::pair<std::string_view, RowOrder>, 3> kOrders = {
    {{"plain", RowOrder::kPlain}, {"grouped", RowOrder::kGrouped}, {"pairs", RowOrder::kPairs}}};

class FileReading {
 public:
  explicit FileReading(Diagnostics& said) : said_(said) {}

  void read(const Value& value, NativeFile& file, std::string (*read_base)(std::string_view)) {
    MapReader reader(value, "native program", said_);
    std::string base;
    if (reader.get("base", base)) read_over(base, value, file, read_base);
    if (const Value* needs = reader.child("needs")) file.needs = conditions_of(needs);
    if (const Value* missing = reader.child("missing")) {
      file.missing.clear();
      for (const Value& item : missing->items) read_missing(item, file);
    }
    reader.get("buffers", file.buffers);
    reader.get("layer_classes", file.layer_classes);
    if (const Value* attributes = reader.child("attributes"))
      for (const auto& [kernel, values] : attributes->entries) read_attributes(values, file.attributes[kernel]);
    if (const Value* unit = reader.child("embedding")) read_unit(*unit, file.embedding);
    if (const Value* unit = reader.child("block")) read_unit(*unit, file.block);
    if (const Value* unit = reader.child("head")) read_unit(*unit, file.head);
    reader.finish();
  }

 private:
  void read_over(const std::string& base, const Value& value, NativeFile& file, std::string (*read_base)(std::string_view)) {
    const std::string text = read_base(base);
    if (text.empty()) return say(value.find("base")->location, fmt::format("found no native program '{}' to be based on", base));
    const Result<Value> below = parse_yaml(text, base + ".yaml");
    append(said_, below.diagnostics);
    if (below.ok()) read(*below, file, read_base);
  }

  void say(const Location& at, std::string message) { said_.push_back(error(code::kUnknownValue, at, std::move(message))); }

  // A condition, or a list of them.
  std::vector<std::string> conditions_of(const Value* value) {
    std::vector<std::string> conditions;
    const auto add = [&](const Value& one) {
      const std::string_view subject = condition_subject(one.text);
      if (!is_subject(subject))
        say(one.location,
            fmt::format("found '{}', expected a field of a model, {}, {}, {} or {}", subject, kLocal, kExperts, kRotated, kTied));
      conditions.push_back(one.text);
    };
    if (value != nullptr && value->kind == Value::Kind::kScalar) add(*value);
    if (value != nullptr)
      for (const Value& item : value->items) add(item);
    return conditions;
  }

  void read_missing(const Value& value, NativeFile& file) {
    MissingKernel missing;
    MapReader reader(value, "missing", said_);
    reader.require("kernel");
    reader.get("kernel", missing.kernel);
    missing.when = conditions_of(reader.child("when"));
    reader.get("beyond", missing.beyond);
    if (!missing.beyond.empty() && find_geometry_field(missing.beyond) == nullptr)
      said_.push_back(error(code::kUnknownValue, reader.child("beyond")->location,
                            fmt::format("'beyond' is '{}', expected a size of models (a key of presets/families)", missing.beyond)));
    reader.finish();
    file.missing.push_back(std::move(missing));
  }

  void read_attributes(const Value& values, std::map<std::string, std::string>& out) {
    for (const Value::Entry& entry : values.entries) {
      const Location& at = entry.second.location;
      const auto is_it = [&](const AttributeField& a) { return a.name == entry.first; };
      if (std::ranges::none_of(attribute_fields(), is_it))
        say(at, fmt::format("found attribute '{}', which no kernel has", entry.first));
      if (!number_of(entry.second.text, Geometry(), {}))
        say(at, fmt::format(
                    "found '{}', expected a number, a field of a model with a number, sqrt(field), 1/field, 1/sqrt(field), {} or {}",
                    entry.second.text, kLayerWindow, kScoreScale));
      out[entry.first] = entry.second.text;
    }
  }

  // What a file says of a unit takes the place of what its base says: weights, forward and selective each as a whole.
  void read_unit(const Value& value, NativeFile::Unit& unit) {
    MapReader reader(value, "unit", said_);
    reader.get("prefix", unit.prefix);
    reader.get("selective", unit.selective);
    if (const Value* weights = reader.child("weights")) {
      unit.weights.clear();
      for (const Value& item : weights->items) read_weight(item, unit);
    }
    if (const Value* forward = reader.child("forward")) {
      unit.forward.clear();
      for (const Value& item : forward->items) read_op(item, unit);
    }
    reader.finish();
  }

  void read_weight(const Value& value, NativeFile::Unit& unit) {
    NativeFile::Weight w;
    std::string init = "normal", order = "plain";
    MapReader reader(value, "weight", said_);
    for (const char* key : {"name", "slot", "shape"}) reader.require(key);
    reader.get("name", w.decl.name);
    reader.get("slot", w.decl.slot);
    reader.get("shape", w.decl.shape);
    w.when = conditions_of(reader.child("when"));
    reader.get("init", init);
    reader.get("order", order);
    reader.get("parts", w.decl.parts);
    reader.get("transposed", w.decl.transposed);
    reader.get("stacked", w.decl.stacked);
    reader.get("published_rows", w.decl.published_rows);
    reader.get("balances", w.decl.balances);
    w.decl.trains = !w.decl.balances;
    reader.finish();
    w.decl.decay = w.decl.shape.size() > 1;  // matrices, not norms and biases
    std::vector<std::string> rows;
    if (!w.decl.published_rows.empty()) rows.push_back(w.decl.published_rows);
    w.decl.expert = w.decl.name.find(kExpertNumber) == std::string::npos ? -1 : 0;
    if (w.decl.expert == 0 && w.decl.shape.size() != 2)
      say(value.location, fmt::format("found a shape of {} sizes of a weight that each expert has, expected 2", w.decl.shape.size()));
    if (w.decl.stacked && w.decl.expert != 0)
      say(value.location, fmt::format("found 'stacked' of a weight without {} in its name", kExpertNumber));
    if (!rows.empty() && w.decl.shape.size() != 1) say(value.location, "published_rows is of a weight with one size");
    if (w.decl.shape.empty() || w.decl.shape.size() > 2)
      say(value.location, fmt::format("found a shape of {} sizes, expected 1 or 2", w.decl.shape.size()));
    for (const std::vector<std::string>* sizes : {&w.decl.shape, &w.decl.parts, &rows})
      for (const std::string& size : *sizes)
        if (const std::string problem = expression_problem(size, symbols_); !problem.empty())
          say(value.location, fmt::format("size '{}': {}", size, problem));
    w.decl.split = split_dimension(w.decl.shape);
    if (!w.decl.parts.empty() && w.decl.split != 0)
      say(value.location, "parts are of a first size that counts heads, feed-forward elements or tokens of the vocabulary");
    const auto known = std::find_if(kInits.begin(), kInits.end(), [&](const auto& i) { return i.first == init; });
    if (known == kInits.end())
      say(value.location, fmt::format("init is '{}', expected normal, ones, zeros or scaled", init));
    else
      w.decl.init = known->second;
    const auto ordered = std::find_if(kOrders.begin(), kOrders.end(), [&](const auto& o) { return o.first == order; });
    if (ordered == kOrders.end())
      say(value.location, fmt::format("order is '{}', expected plain, grouped or pairs", order));
    else
      w.decl.order = ordered->second;
    unit.weights.push_back(std::move(w));
  }

  void read_op(const Value& value, NativeFile::Unit& unit) {
    NativeFile::Operation o;
    MapReader reader(value, "op", said_);
    for (const char* key : {"op", "kernel", "reads", "writes"}) reader.require(key);
    reader.get("op", o.op.name);
    reader.get("kernel", o.op.kernel);
    o.op.reads = names_of(reader.child("reads"));
    o.op.writes = names_of(reader.child("writes"));
    o.when = conditions_of(reader.child("when"));
    if (const Value* attributes = reader.child("attributes")) read_attributes(*attributes, o.attributes);
    reader.finish();
    unit.forward.push_back(std::move(o));
  }

  // A list as it is written: of operands, 'y' is one.
  static std::vector<std::string> names_of(const Value* list) {
    std::vector<std::string> names;
    if (list != nullptr)
      for (const Value& item : list->items) names.push_back(item.text);
    return names;
  }

  Diagnostics& said_;
  const Symbols symbols_ = native_symbols(Geometry(), 1, 1);  // for their names
};

OpAttributes attributes_of(const NativeFile& file, const NativeFile::Operation& o, const Geometry& geometry, LayerForm layer) {
  OpAttributes out;
  const auto take = [&](const std::map<std::string, std::string>& values) {
    for (const auto& entry : values) {
      const double number = number_of(entry.second, geometry, layer).value_or(0);  // a number, or the file was refused
      for (const AttributeField& a : attribute_fields())
        if (a.name == entry.first)
          std::visit([&](auto member) { out.*member = static_cast<std::decay_t<decltype(out.*member)>>(number); }, a.member);
    }
  };
  if (const auto common = file.attributes.find(o.op.kernel); common != file.attributes.end()) take(common->second);
  take(o.attributes);
  return out;
}

// The kernel of an activation by the name that a config.json gives it.
std::string kernel_name(const std::string& kernel, const Geometry& geometry) {
  const std::string& a = geometry.activation;
  constexpr std::string_view kGated = "gated_activation";
  if (kernel == "activation") return a;
  if (!kernel.starts_with(kGated)) return kernel;
  const std::string gated = a == "silu" ? "swiglu" : a == "gelu" ? "geglu" : a == "gelu_tanh" ? "geglu_tanh" : "gated " + a;
  return gated + kernel.substr(kGated.size());
}

const NativeFile::Unit& unit_of(const NativeFile& file, UnitKind kind) {
  return kind == UnitKind::kEmbedding ? file.embedding : kind == UnitKind::kHead ? file.head : file.block;
}

// Where not all of a model is trained: marks what is, adds adapters to `parameters`, and tells which slots have gradients.
class TunedSlots {
 public:
  TunedSlots(const NativeFile& file, const ProgramChoice& choice, const Geometry& geometry, std::vector<ParameterDecl>& parameters,
             const std::vector<ParameterDecl>& embedding)
      : is_tuned_(choice.unit != nullptr) {
    if (!is_tuned_) return;
    std::vector<Op> forward;
    for (const NativeFile::Operation& o : unit_of(file, choice.kind).forward)
      if (all_hold(o.when, geometry, choice.layer)) forward.push_back(o.op);
    with_gradients_ = slots_with_gradients(parameters, forward, choice.unit->trained);
    for (const std::string& slot : slots_with_gradients(embedding, {}, choice.unit->embedding_trained)) with_gradients_.insert(slot);
    for (ParameterDecl& p : parameters) p.trains = !p.balances && choice.unit->trained.contains(p.name);
    if (choice.tuning->is_quantized && choice.kind == UnitKind::kBlock)
      for (const Op& op : forward)
        if (op.kernel.starts_with("linear") && is_frozen(op.reads[1].substr(2)) && !scores_experts(op, forward))
          quantized_.insert(op.reads[1].substr(2));
    for (ParameterDecl& p : adapter_parameters(parameters, choice.unit->adapted, choice.tuning->rank)) {
      with_gradients_.insert(p.slot);
      parameters.push_back(std::move(p));
    }
  }
  bool is_frozen(const std::string& slot) const { return is_tuned_ && !with_gradients_.contains(slot); }
  const std::set<std::string>& with_gradients() const { return with_gradients_; }
  const std::set<std::string>& quantized() const { return quantized_; }

 private:
  const bool is_tuned_;
  std::set<std::string> with_gradients_, quantized_;
};

// Ranks of tensor parallelism route tokens of their own: they split the experts as other states, not each matrix.
bool is_in_expert_unit(const ParameterDecl& p, const ProgramSplit& split) { return p.expert >= 0 && (split.ep > 1 || split.tp > 1); }

std::string build(const NativeFile& file, const ProgramChoice& choice, const Geometry& geometry, Program& program) {
  const auto& [kind, layer, split, tuning, tuned] = choice;
  const int tp = split.tp;
  const NativeFile::Unit& unit = unit_of(file, kind);
  program.kind = kind;
  program.name = name(kind);
  if (kind == UnitKind::kBlock && layer.local && geometry.global_layer_every != 0) program.name += ".local";
  if (kind == UnitKind::kBlock && !layer.experts && geometry.num_experts > 0) program.name += ".dense";
  if (kind == UnitKind::kBlock && !layer.rotated && geometry.unrotated_layer_every != 0) program.name += ".unrotated";
  program.prefix = unit.prefix;
  std::vector<ParameterDecl> parameters = parameters_of(unit, geometry, layer);
  if (std::string problem = parts_problem(parameters, geometry, tp); !problem.empty()) return problem;
  const std::vector<ParameterDecl> embedding = parameters_of(file.embedding, geometry, layer);
  const TunedSlots tuned_slots(file, choice, geometry, parameters, embedding);
  for (const ParameterDecl& p : parameters)
    (tuned_slots.quantized().contains(p.slot) ? program.quantized_parameters
     : tuned_slots.is_frozen(p.slot) ? (is_in_expert_unit(p, split) ? program.frozen_expert_parameters : program.frozen_parameters)
     : is_in_expert_unit(p, split)   ? program.expert_parameters
     : tp > 1 && p.split < 0         ? program.shared_parameters
                                     : program.parameters)
        .push_back(p);
  std::map<std::string, SlotShape> slots = slots_of(parameters);
  add_record_slots(program.quantized_parameters, slots);
  const auto embedding_slots = slots_of(embedding);
  for (const NativeFile::Operation& o : unit.forward) {
    if (!all_hold(o.when, geometry, layer)) continue;
    for (const std::string& r : o.op.reads) {
      const std::string slot = r.starts_with("p:") ? r.substr(2) : "";
      if (kind != UnitKind::kHead || slot.empty() || slots.contains(slot) || !embedding_slots.contains(slot)) continue;
      slots[slot] = embedding_slots.at(slot);
      (tuned_slots.is_frozen(slot) ? program.borrowed_frozen_slots : program.borrowed_slots).push_back(slot);
    }
  }
  if (kind != UnitKind::kEmbedding) program.tensors.push_back({"x", {tp > 1 ? "Ts" : "T", "h"}});
  ProgramBuilder builder(program, std::move(slots));
  const Adapters adapters = {parameters, tuned, tuning, native_symbols(geometry, 1, 1, {.tp = tp}), tp};
  for (const NativeFile::Operation& o : unit.forward) {
    if (!all_hold(o.when, geometry, layer)) continue;
    Op op = o.op;
    op.kernel = kernel_name(op.kernel, geometry);
    op.attributes = attributes_of(file, o, geometry, layer);
    if (has_expert_rows(op)) op = with_capacity(std::move(op), geometry);
    if (split.preference && op.kernel == "cross_entropy") {
      add_preference_loss(op, split, builder);
      continue;
    }
    if (split.cp > 1 && is_attention(op)) {
      add_shared_attention(std::move(op), split, builder);
      continue;
    }
    if (split.packed) op = over_documents(std::move(op));
    const auto unpacked = [&](Op product) {
      return over_unpacked(std::move(product), parameters, tuned_slots.quantized(), tp, builder);
    };
    if (split.ep > 1 && has_expert_rows(op)) {
      add_over_experts(op, builder);
    } else if (tp > 1) {
      if (op.kernel == "router_z_loss") op.attributes.tensor_ranks = tp;
      add_split(op, builder, {add_low(op, adapters, builder), unpacked});
    } else {
      builder.add(unpacked(op));
      add_low(op, adapters, builder)(op.writes[0]);
    }
  }
  const std::string problem = builder.finish(kind == UnitKind::kHead ? split.loss_chunks : 1);
  if (problem.empty() && tuned != nullptr) drop_dead_gradients(program, tuned_slots.with_gradients(), tuned->passes_gradient, builder);
  return problem;
}

}  // namespace

Result<NativeFile> read_native_file(std::string_view text, const std::string& path, std::string (*read_base)(std::string_view)) {
  Result<Value> value = parse_yaml(text, path);
  if (!value.ok()) return value.diagnostics;
  NativeFile file;
  Diagnostics said;
  FileReading(said).read(*value, file, read_base);
  if (has_error(said)) return said;
  return file;
}

Program program_of(const NativeFile& file, const ProgramChoice& choice, const Geometry& geometry) {
  Program program;
  const std::string problem = build(file, choice, geometry, program);
  CHECK(problem.empty(), "native program '{}', {}: {}", file.name, name(choice.kind), problem);
  return program;
}

std::string check_programs(const NativeFile& file, const Geometry& geometry, const ProgramSplit& split) {
  if (const MissingKernel* missing = always_missing(file.missing, geometry))
    return fmt::format("there is no kernel for {}", missing->kernel);
  const std::vector<std::string>& known = file.layer_classes;
  if (!known.empty() && !geometry.layer_class.empty() && std::find(known.begin(), known.end(), geometry.layer_class) == known.end())
    return fmt::format("the program of {} is one of {}, the model has layers of class {}", file.name, known.front(),
                       geometry.layer_class);
  for (const std::string& need : file.needs) {
    if (all_hold({need}, geometry, {})) continue;
    const std::string_view field = condition_subject(need);
    return fmt::format("the program of {} needs {}, the model has {} {}", file.name, need, field, subject_text(field, geometry, {}));
  }
  // What few families have, a file that does not speak of it leaves out.
  for (const std::string_view trait : {"attention_sinks", "swiglu_limit"}) {
    const auto is_it = [&](const std::string& need) { return condition_subject(need) == trait; };
    if (all_hold({std::string(trait)}, geometry, {}) && std::none_of(file.needs.begin(), file.needs.end(), is_it))
      return fmt::format("the program of {} has no {}", file.name, trait);
  }
  for (const UnitKind kind : {UnitKind::kEmbedding, UnitKind::kBlock, UnitKind::kHead}) {
    for (const LayerForm layer : layer_forms(geometry)) {
      Program program;
      if (std::string problem = build(file, {kind, layer, split}, geometry, program); !problem.empty()) return problem;
      if (kind == UnitKind::kBlock && layer.experts && !has_experts(program))
        return fmt::format("{} experts; its blocks are dense", geometry.num_experts);
      const bool latent = geometry.attention == Attention::kLatent;
      if (kind == UnitKind::kBlock && latent != has_latents(program)) return latent ? "latent attention (MLA)" : "plain attention";
    }
  }
  return "";
}

}  // namespace distsetup
