// A program where not every parameter is trained: backward without the ops whose results nobody asks for, and adapters (LoRA) beside
// matrices that stay as they are.
//   dead ops   a weight's gradient where the slot is frozen; the gradient of x where no unit below is trained; what led to only these.
//              A norm makes the gradients of its rows and of its weight in one op: that of a frozen weight goes to scratch.
//   adapters   y = x Wᵀ (+ residual), u = x Aᵀ, y[:, rows of a module] += s u B ᵀ. The A of all modules of a slot are one matrix, as
//              q, k and v are one; B is one for each module, since modules that have none may lie between them.
//              With tensor parallelism W's rows or its columns are split, and with them B's rows or A's columns; the other one of the
//              two is whole on each rank, in the shared unit (layout.h). Rows: u is made of a rank's own tokens and gathered. Columns:
//              u is a rank's part of a sum, and so is what B makes of it, which is summed as a part of y.
//   nf4        y = x Wᵀ, where W is held as nf4 (nf4.h): an op before makes it out of the records of its modules. It lives until y is
//              there; backward makes it again. (QLoRA, arXiv 2305.14314)
#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "plan/program_builder.h"
#include "plan/tuning.h"

namespace distsetup {

// Slots of `parameters` that have gradients: where one of their parameters is trained, or where another slot of the same op is.
std::set<std::string> slots_with_gradients(const std::vector<ParameterDecl>& parameters, const std::vector<Op>& forward,
                                           const std::set<std::string>& trained);

// `with_gradients`: slots, all others are frozen. `builder`: what has built the program, for the shapes of slots.
void drop_dead_gradients(Program& program, const std::set<std::string>& with_gradients, bool passes_gradient, ProgramBuilder& builder);

// A and B of the adapted parameters, in the order of their slots' ops.
std::vector<ParameterDecl> adapter_parameters(const std::vector<ParameterDecl>& parameters, const std::set<std::string>& adapted,
                                              int64_t rank);
// What the adapters of a unit are made of; `unit` is null where it is trained whole.
struct Adapters {
  const std::vector<ParameterDecl>& parameters;
  const UnitTuning* unit = nullptr;
  const Tuning* tuning = nullptr;
  Symbols symbols;  // of a tensor-parallel rank
  int tp = 1;
};
// Adds u of the adapters of the matrix that `op` multiplies by. To be called once the op's product is there, with its tensor: adds
// what the Bs make of u. Of a matrix without adapters, or no matrix, both do nothing.
std::function<void(const std::string& product)> add_low(const Op& op, const Adapters& adapters, ProgramBuilder& builder);

// The slot that has the record of a parameter alone.
std::string record_slot(const ParameterDecl& parameter);
// Gives each parameter that slot.
void add_record_slots(std::vector<ParameterDecl>& quantized, std::map<std::string, SlotShape>& slots);
// The op with what stands for its matrix, where that is held as nf4 (`quantized`: slots); the op that makes it is added.
Op over_unpacked(Op op, const std::vector<ParameterDecl>& parameters, const std::set<std::string>& quantized, int tp,
                 ProgramBuilder& builder);

// "self_attn.q_proj.weight" -> "self_attn.q_proj.lora_A.weight": as PEFT publishes them, below its own prefix.
std::string adapter_name(std::string_view parameter, std::string_view which);
bool is_adapter_name(std::string_view parameter);
// As it stands in a file of PEFT's: "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight".
std::string peft_name(std::string_view adapter);

}  // namespace distsetup
