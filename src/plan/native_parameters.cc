#include "plan/native_parameters.h"

#include <fmt/format.h>

#include "plan/native_program.h"
#include "plan/tensor_parallel.h"

namespace distsetup {
namespace {

// Weights in a row that each expert has, of one slot: those of the first expert, of the second, ...
void add_stack(const std::vector<const ParameterDecl*>& each, int64_t num_experts, std::vector<ParameterDecl>& out) {
  for (int64_t e = 0; e < num_experts; ++e)
    for (const ParameterDecl* of : each) {
      ParameterDecl p = *of;
      p.expert = e;
      p.name.replace(p.name.find(kExpertNumber), kExpertNumber.size(), std::to_string(e));
      out.push_back(std::move(p));
    }
}

}  // namespace

std::map<std::string, SlotShape> slots_of(const std::vector<ParameterDecl>& parameters) {
  std::map<std::string, SlotShape> slots;
  for (const ParameterDecl& p : parameters) {
    if (p.expert > 0) continue;
    SlotShape& slot = slots[p.slot];
    const bool is_first = slot.shape.empty();
    if (is_first) slot = {p.shape, p.split};
    if (!is_first) slot.shape[0] += "+" + p.shape[0];
    if (p.expert == 0) slot.rows_each = slot.shape[0];
  }
  for (auto& [name, slot] : slots)
    if (!slot.rows_each.empty()) slot.shape[0] = product_of({"E", slot.rows_each});
  return slots;
}

std::vector<ParameterDecl> parameters_of(const NativeFile::Unit& unit, const Geometry& geometry, LayerForm layer) {
  std::vector<ParameterDecl> out;
  std::vector<const ParameterDecl*> stack;
  for (const NativeFile::Weight& w : unit.weights) {
    if (!all_hold(w.when, geometry, layer)) continue;
    const bool goes_on = !stack.empty() && w.decl.expert == 0 && w.decl.slot == stack.front()->slot;
    if (!goes_on) {
      add_stack(stack, geometry.num_experts, out);
      stack.clear();
    }
    if (w.decl.expert < 0)
      out.push_back(w.decl);
    else
      stack.push_back(&w.decl);
  }
  add_stack(stack, geometry.num_experts, out);
  return out;
}

std::string parts_problem(const std::vector<ParameterDecl>& parameters, const Geometry& geometry, int tp) {
  const Symbols symbols = native_symbols(geometry, 1, 1);
  for (const ParameterDecl& p : parameters) {
    if (const std::string problem = tp > 1 ? split_problem(p) : ""; !problem.empty()) return problem;
    if (p.parts.empty()) continue;
    int64_t sum = 0;
    for (const std::string& part : p.parts) sum += evaluate(part, symbols);
    const int64_t size = evaluate(p.shape[0], symbols);
    if (sum != size) return fmt::format("the parts of weight '{}' have {} rows together, its shape has {}", p.name, sum, size);
  }
  return "";
}

}  // namespace distsetup
