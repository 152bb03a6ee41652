// Numbers and names that the trainers' own formats ask for and plan.json does not spell out (derived.* of fields.h).
#pragma once
#include <array>

#include "codegen/tables/fields.h"

namespace distsetup {

inline constexpr std::array<const char*, 23> kTrainerFields = {"derived.prefetch_elements",
                                                               "derived.persistence_elements",
                                                               "derived.largest_partition",
                                                               "derived.nvme",
                                                               "derived.group_ranks",
                                                               "derived.several_axes",
                                                               "derived.shard_is_node",
                                                               "derived.layer_import",
                                                               "derived.samples",
                                                               "derived.layers_per_virtual_stage",
                                                               "derived.lightning",
                                                               "derived.mesh_2d",
                                                               "derived.engine",
                                                               "derived.pipeline_batch",
                                                               "derived.min_learning_rate_factor",
                                                               "derived.warmup_ratio",
                                                               "derived.betas",
                                                               "derived.save_interval",
                                                               "derived.grouped_queries",
                                                               "derived.positive_seed",
                                                               "derived.timeout_minutes",
                                                               "derived.offloaded_layers",
                                                               "derived.recomputed_layers"};

void set_trainer_fields(Fields& fields, const Plan& plan);

}  // namespace distsetup
