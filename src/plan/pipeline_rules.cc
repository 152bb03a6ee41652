#include "plan/pipeline_rules.h"

#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "plan/pipeline.h"

namespace distsetup {
namespace {

bool ties_positions(const Geometry& geometry) { return geometry.tied_embeddings && geometry.learned_positions > 0; }

}  // namespace

bool can_have_stages(const Geometry& geometry) { return !ties_positions(geometry); }

Diagnostics check_pipeline(const Plan& p) {
  const int stages = p.mesh.pp, chunks = p.strategy.virtual_stages;
  const int64_t layers = p.model.num_layers, m = p.gradient_accumulation;
  Diagnostics out;
  const auto refuse = [&](bool condition, std::string_view code, std::string message, std::string help = "") {
    if (condition) out.push_back(error(code, {}, std::move(message), std::move(help)));
  };
  refuse(stages == 1 && chunks > 1, code::kConflict, fmt::format("{} chunks per stage, but pp is 1: there are no stages", chunks));
  if (stages == 1) return out;
  refuse(layers < int64_t{stages} * chunks, code::kMeshInvalid,
         fmt::format("pp {} × {} chunks per stage = {} parts, the model has {} layers: each part needs one", stages, chunks,
                     stages * chunks, layers));
  const int64_t rounds = pipeline_rounds(stages, m);
  refuse(chunks > 1 && m % rounds != 0, code::kBatchIndivisible,
         fmt::format("interleaved stages take micro-batches in {} / {} = {} equal rounds, which {} micro-batches are not", m, stages,
                     rounds, m),
         fmt::format("{} or {} micro-batches", m / rounds * rounds, (m / rounds + 1) * rounds));
  refuse(!p.strategy.reshard_after_forward, code::kUnsupportedFeature,
         fmt::format("with pp {} several micro-batches are between forward and backward: parameters are gathered for each, "
                     "reshard_after_forward cannot be false",
                     stages),
         "use zero2, which keeps a whole copy");
  refuse(ties_positions(p.model), code::kUnsupportedFeature,
         fmt::format("the native trainer does not split '{}' into stages: its embedding is tied to the head and has {} learned "
                     "positions, which the last stage does not train",
                     p.model.name, p.model.learned_positions),
         "leave pp out");
  return out;
}

Plan with_few_micro_batches(const Plan& plan) {
  constexpr int64_t kRounds = 3;
  const int64_t m = plan.gradient_accumulation;
  const int64_t rounds = plan.strategy.virtual_stages == 1 ? m / plan.mesh.pp : pipeline_rounds(plan.mesh.pp, m);
  Plan few = plan;
  if (plan.mesh.pp == 1 || rounds <= kRounds) return few;
  few.gradient_accumulation = plan.strategy.virtual_stages == 1 ? kRounds * plan.mesh.pp : m / rounds * kRounds;
  few.train.global_batch = few.micro_batch * few.gradient_accumulation * few.mesh.data_parallel();
  return few;
}

}  // namespace distsetup
