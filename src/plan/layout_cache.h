// Layouts and variants of programs made once, and how many parameters a plan trains, freezes and holds otherwise: what a search asks
// for hundreds of times.
#pragma once
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "plan/layout.h"
#include "plan/program.h"

namespace distsetup {

struct NativePrograms;

// kSizes: units and their slots without the names of parameters, of which a model with experts has tens of thousands: all that is
// simulated. Where the optimizer takes matrices whole there are names nevertheless.
enum class LayoutDetail { kParameters, kSizes };
Layout make_sizes(const Plan& plan, int stage);  // of these plans

// make_layout(), made once for the meshes asked for last: a search compiles hundreds of lists over a few dozen. `programs`: those of
// the plan.
std::shared_ptr<const Layout> cached_layout(const std::shared_ptr<const NativePrograms>& programs, const Plan& plan, int stage = 0,
                                            LayoutDetail detail = LayoutDetail::kParameters);

// derive(), made once for the programs asked for last. `program` is one of `programs`; `suffix` goes after the variant's name.
std::shared_ptr<const ProgramVariant> cached_variant(const std::shared_ptr<const NativePrograms>& programs, const Program& program,
                                                     const std::set<std::string>& dropped, Pass pass, std::string_view suffix);

// What is trained has fp32 states; what is frozen is held in the compute type.
struct ParameterNumbers {
  int64_t trained = 0, frozen = 0;
  int64_t trained_experts = 0, frozen_experts = 0;  // of them: those of experts, which ep or tp takes out of their layers
  int64_t quantized = 0;                            // of the frozen ones: held as nf4
  int64_t reference = 0;                            // copies of what is trained, held as what is frozen
};
// How many of `all` parameters a rank has where ep ranks share `experts` of them, and nothing else is split.
inline int64_t numel_of_rank(int64_t all, int64_t experts, int ep) { return all - experts + experts / ep; }
ParameterNumbers parameter_numbers(const Plan& plan);  // of the whole model, adapters included

}  // namespace distsetup
