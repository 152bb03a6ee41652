#include "plan/frozen.h"

#include <fmt/format.h>

#include <algorithm>

namespace distsetup {
namespace {

bool is_gradient(const std::string& name) { return name.starts_with("g:"); }

bool has_name(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// "p:wqkv" -> "wqkv"; of other operands "".
std::string slot_read(const std::string& name) { return name.starts_with("p:") ? name.substr(2) : ""; }

std::string a_slot(const std::string& slot) { return slot + ".A"; }
std::string b_slot(const ParameterDecl& p) { return p.slot + ".B." + p.name; }

std::vector<const ParameterDecl*> adapted_of(const std::string& slot, const std::vector<ParameterDecl>& parameters,
                                             const std::set<std::string>& adapted) {
  std::vector<const ParameterDecl*> out;
  for (const ParameterDecl& p : parameters)
    if (p.slot == slot && adapted.contains(p.name)) out.push_back(&p);
  return out;
}

ParameterDecl half_of(const ParameterDecl& p, std::string_view which, std::string slot, std::vector<std::string> shape,
                      ParameterDecl::Init init, int split) {
  ParameterDecl half;
  half.name = adapter_name(p.name, which);
  half.slot = std::move(slot);
  half.shape = std::move(shape);
  half.init = init;
  half.split = split;
  return half;
}

void add_high(const Op& op, const std::string& low, const std::string& product, const Adapters& a, ProgramBuilder& builder) {
  const std::string slot = slot_read(op.reads[1]);
  int64_t column = 0, low_column = 0;
  for (const ParameterDecl& p : a.parameters) {
    if (p.slot != slot) continue;
    if (a.unit->adapted.contains(p.name)) {
      Op high;
      high.name = fmt::format("{}_b{}", op.name, low_column / a.tuning->rank);
      high.kernel = "columns_add";
      high.reads = {low, "p:" + b_slot(p), product};
      high.writes = {product};
      high.attributes.multiplier = a.tuning->scale * op.attributes.multiplier;
      high.attributes.column = column;
      high.attributes.low_column = low_column;
      builder.add(std::move(high));
      low_column += a.tuning->rank;
    }
    column += evaluate(p.shape[0], a.symbols);
  }
}

}  // namespace

std::string adapter_name(std::string_view parameter, std::string_view which) {
  return fmt::format("{}.{}.weight", module_of(parameter), which);
}

bool is_adapter_name(std::string_view parameter) {
  return parameter.ends_with(".lora_A.weight") || parameter.ends_with(".lora_B.weight");
}

std::string peft_name(std::string_view adapter) { return fmt::format("base_model.model.{}", adapter); }

std::set<std::string> slots_with_gradients(const std::vector<ParameterDecl>& parameters, const std::vector<Op>& forward,
                                           const std::set<std::string>& trained) {
  std::set<std::string> all, slots;
  for (const ParameterDecl& p : parameters) {
    all.insert(p.slot);
    if (trained.contains(p.name)) slots.insert(p.slot);
  }
  for (const Op& op : forward) {
    std::set<std::string> together;
    for (const std::string& r : op.reads)
      if (all.contains(slot_read(r))) together.insert(slot_read(r));
    const bool any = std::any_of(together.begin(), together.end(), [&](const std::string& s) { return slots.contains(s); });
    if (any) slots.insert(together.begin(), together.end());
  }
  return slots;
}

void drop_dead_gradients(Program& program, const std::set<std::string>& with_gradients, bool passes_gradient,
                         ProgramBuilder& builder) {
  std::set<std::string> wanted;
  if (passes_gradient) wanted.insert("dx");
  const auto is_wanted = [&](const std::string& w) {
    return is_gradient(w) ? with_gradients.contains(w.substr(2)) : wanted.contains(w);
  };
  std::vector<Op> kept;
  for (auto op = program.backward.rbegin(); op != program.backward.rend(); ++op) {
    if (std::none_of(op->writes.begin(), op->writes.end(), is_wanted)) continue;
    const bool dx_is_unused = !wanted.contains("dx");
    for (const std::string& w : op->writes)
      if (!has_name(op->reads, w) && op->chunk == 0) wanted.erase(w);  // of later chunks: earlier ones write other rows
    wanted.insert(op->reads.begin(), op->reads.end());
    for (std::string& w : op->writes) {
      const bool is_frozen = is_gradient(w) && !with_gradients.contains(w.substr(2));
      if (!is_frozen && (w != "dx" || !dx_is_unused)) continue;
      const std::string unused = "unused_" + (is_frozen ? w.substr(2) : w);
      builder.declare(unused, builder.shape(is_frozen ? "p:" + w.substr(2) : w));
      w = unused;
    }
    kept.push_back(std::move(*op));
  }
  program.backward.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
}

std::vector<ParameterDecl> adapter_parameters(const std::vector<ParameterDecl>& parameters, const std::set<std::string>& adapted,
                                              int64_t rank) {
  const std::string r = std::to_string(rank);
  std::vector<std::string> slots;
  for (const ParameterDecl& p : parameters)
    if (adapted.contains(p.name) && !has_name(slots, p.slot)) slots.push_back(p.slot);
  std::vector<ParameterDecl> out;
  for (const std::string& slot : slots) {
    const std::vector<const ParameterDecl*> modules = adapted_of(slot, parameters, adapted);
    for (const ParameterDecl* p : modules)
      out.push_back(half_of(*p, "lora_A", a_slot(slot), {r, p->shape[1]}, ParameterDecl::Init::kUniform, p->split == 1 ? 1 : -1));
    for (const ParameterDecl* p : modules) {
      out.push_back(half_of(*p, "lora_B", b_slot(*p), {p->shape[0], r}, ParameterDecl::Init::kZeros, p->split == 0 ? 0 : -1));
      out.back().order = p->order;
      out.back().parts = p->parts;
    }
  }
  return out;
}

std::string record_slot(const ParameterDecl& p) { return fmt::format("{}.{}", p.slot, p.name); }

void add_record_slots(std::vector<ParameterDecl>& quantized, std::map<std::string, SlotShape>& slots) {
  for (ParameterDecl& p : quantized) {
    p.slot = record_slot(p);
    slots[p.slot] = {p.shape, p.split};
  }
}

Op over_unpacked(Op op, const std::vector<ParameterDecl>& parameters, const std::set<std::string>& quantized, int tp,
                 ProgramBuilder& builder) {
  const std::string slot = op.kernel.starts_with("linear") ? slot_read(op.reads[1]) : "";
  if (!quantized.contains(slot)) return op;
  Op unpack;
  unpack.name = op.name + "_w";
  unpack.kernel = "dequantize_nf4";
  for (const ParameterDecl& p : parameters)
    if (p.slot == slot) unpack.reads.push_back("p:" + record_slot(p));
  unpack.writes = {op.name + "_matrix"};
  unpack.attributes.tensor_ranks = builder.split(op.reads[1]) >= 0 ? tp : 1;
  builder.add(unpack);
  op.reads[1] = unpack.writes[0];
  return op;
}

std::function<void(const std::string&)> add_low(const Op& op, const Adapters& a, ProgramBuilder& builder) {
  const std::string slot = a.unit != nullptr && op.kernel.starts_with("linear") ? slot_read(op.reads[1]) : "";
  if (slot.empty() || adapted_of(slot, a.parameters, a.unit->adapted).empty()) return [](const std::string&) {};
  Op low;
  low.name = op.name + "_a";
  low.kernel = "linear";
  low.reads = {op.reads[0], "p:" + a_slot(slot)};
  low.writes = {"low_" + op.name};
  std::string made = low.writes[0];
  builder.add(std::move(low));
  if (a.tp > 1 && builder.split(op.reads[1]) == 0 && builder.shape(made)[0] != "T") {  // its own rows
    Op gather;
    gather.name = op.name + "_a_gather";
    gather.kernel = "all_gather";
    gather.reads = {made};
    gather.writes = {made += "_all"};
    builder.add(std::move(gather));
  }
  return [&a, &builder, of = op, made](const std::string& product) { add_high(of, made, product, a, builder); };
}

}  // namespace distsetup
