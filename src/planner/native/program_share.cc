#include "planner/native/program_share.h"

#include <algorithm>

#include "model/count.h"
#include "planner/replay/program_facts.h"

namespace distsetup {

double share_listed(const replay::BlockProgram& program, const Geometry& model) {
  Setup s;
  s.model = model;
  s.sequence_length = std::max<int64_t>(model.learned_positions, 1);
  replay::SymbolValues symbols{};
  replay::fill_symbols(s, symbols);
  const uint64_t facts = replay::facts_of(s);
  const auto elements = [&](const replay::ProgramSection& section, bool experts) {
    int64_t sum = 0;
    for (const replay::ProgramWeight& weight : section.weights)
      if (weight.when.holds(replay::facts_of_layer(facts, experts))) sum += weight.out.evaluate(symbols) * weight.in.evaluate(symbols);
    return sum;
  };
  int64_t listed = elements(program.embedding, true) + elements(program.heads[static_cast<size_t>(LossHead::kEager)], true);
  const int64_t dense = elements(program.block, false), experts = elements(program.block, true);
  for (int64_t layer = 0; layer < model.num_layers; ++layer) listed += is_expert_layer(model, layer) ? experts : dense;
  return static_cast<double>(listed) / static_cast<double>(std::max<int64_t>(1, count_parameters(model).total));
}

}  // namespace distsetup
