// The engine of modules that FSDP does not wrap: one GPU, or DistributedDataParallel.
#pragma once
#include <memory>
#include <vector>

#include "planner/frameworks/fsdp_engine.h"

namespace distsetup::replay {

std::unique_ptr<ShardingEngine> make_unsharded_engine(Ledger& ledger, const ShardingOptions& options, std::vector<ShardedUnit>& units);

}  // namespace distsetup::replay
