#include "plan/layout_cache.h"

#include <utility>

#include "base/check.h"
#include "base/recently_made.h"
#include "model/count.h"
#include "plan/expert_parallel.h"
#include "plan/lay_out.h"
#include "plan/native_program.h"
#include "plan/optimizer.h"
#include "plan/reference.h"

namespace distsetup {
namespace {

// Of the same programs. Sharding matters where it decides who shards what.
bool is_layout_of(const Layout& layout, const Plan& plan, int stage) {
  const auto splits_frozen = [](Sharding sharding) { return sharding == Sharding::kZero3; };
  return layout.mesh == plan.mesh && layout.shard_group == shard_group(plan.mesh, plan.strategy.sharding) && layout.stage == stage &&
         layout.chunks_per_stage == plan.strategy.virtual_stages &&
         (layout.frozen_numel + layout.quantized_bytes == 0 ||
          splits_frozen(layout.sharding) == splits_frozen(plan.strategy.sharding));
}

// Matrices of the optimizer are found among the parameters.
bool needs_names(const Plan& plan) { return !keeps_elements(plan.train.optimizer); }

}  // namespace

Layout make_sizes(const Plan& plan, int stage) {
  CHECK(!needs_names(plan));
  return lay_out(plan.model, plan.mesh, plan.strategy.sharding, stage, plan.strategy.virtual_stages, tuning_of(plan.train),
                 keeps_reference(plan.train), true);
}

std::shared_ptr<const Layout> cached_layout(const std::shared_ptr<const NativePrograms>& programs, const Plan& plan, int stage,
                                            LayoutDetail detail) {
  struct KnownLayout {
    std::shared_ptr<const NativePrograms> programs;
    LayoutDetail detail = LayoutDetail::kParameters;
    std::shared_ptr<const Layout> layout;
  };
  if (needs_names(plan)) detail = LayoutDetail::kParameters;
  static RecentlyMade<KnownLayout> kept(48);
  return kept
      .get(
          [&](const KnownLayout& known) {
            return known.programs == programs && known.detail == detail && is_layout_of(*known.layout, plan, stage);
          },
          [&] {
            const bool is_whole = detail == LayoutDetail::kParameters;
            return KnownLayout{programs, detail,
                               std::make_shared<const Layout>(is_whole ? make_layout(plan, stage) : make_sizes(plan, stage))};
          })
      ->layout;
}

std::shared_ptr<const ProgramVariant> cached_variant(const std::shared_ptr<const NativePrograms>& programs, const Program& program,
                                                     const std::set<std::string>& dropped, Pass pass, std::string_view suffix) {
  struct KnownVariant {
    std::shared_ptr<const NativePrograms> programs;  // which `program` lives in
    const Program* program = nullptr;
    std::set<std::string> dropped;
    Pass pass = Pass::kTrain;
    std::string suffix;
    std::shared_ptr<const ProgramVariant> variant;
  };
  static RecentlyMade<KnownVariant> kept(96);
  const auto is_it = [&](const KnownVariant& known) {
    return known.program == &program && known.pass == pass && known.suffix == suffix && known.dropped == dropped;
  };
  const auto make = [&] {
    auto variant = std::make_shared<ProgramVariant>(derive(program, dropped, pass));
    variant->name += suffix;
    return KnownVariant{programs, &program, dropped, pass, std::string(suffix), std::move(variant)};
  };
  return kept.get(is_it, make)->variant;
}

ParameterNumbers parameter_numbers(const Plan& plan) {
  const Tuning tuning = tuning_of(plan.train);
  const auto copied = [&](int64_t trained) { return keeps_reference(plan.train) ? trained : 0; };
  if (tuning.trains_all()) {
    const int64_t all = count_parameters(plan.model).total;
    return {all, 0, plan.mesh.ep > 1 || plan.mesh.tp > 1 ? expert_parameters(plan.model) : 0, 0, 0, copied(all)};
  }
  const std::shared_ptr<const Layout> layout =
      cached_layout(native_programs(plan.model, split_of(plan), tuning), plan, 0, LayoutDetail::kSizes);
  return {layout->trained_numel,   layout->numel - layout->trained_numel, layout->trained_expert_numel, layout->frozen_expert_numel,
          layout->quantized_numel, copied(layout->trained_numel)};
}

}  // namespace distsetup
