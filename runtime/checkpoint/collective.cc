// See collective.h.
#include "runtime/checkpoint/collective.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "plan/reference.h"
#include "runtime/checkpoint/load.h"
#include "runtime/checkpoint/load_weights.h"
#include "runtime/monitor/failure.h"

namespace distsetup {
void load_planned_weights(Communicator& communicator, const Plan& plan, const std::string& plan_directory, const ShardState& state) {
  const Result<WeightsFolder> folder = open_weights(plan, plan_directory);
  agree(communicator, folder.diagnostics, kExitBadEnvironment);
  agree(communicator, load_weights(*folder, state), kExitFailed);
  if (plan.adapter.files.empty()) return;
  const Result<WeightsFolder> adapter = open_adapter(plan, plan_directory);
  agree(communicator, adapter.diagnostics, kExitBadEnvironment);
  agree(communicator, load_adapter(*adapter, state), kExitFailed);
}

namespace {

// The reference's copies of adapters are what these start from: a folder's, or the seed's first values.
void load_adapter_reference(Communicator& communicator, const Plan& plan, const std::string& plan_directory, const Layout& layout,
                            const StoreFrozen& store) {
  const Coordinates at = coordinates(layout.mesh, communicator.rank());
  if (!keeps_reference(plan.train) || !layout.tuning.has_adapters()) return;
  if (plan.adapter.files.empty())
    return initialize_frozen(layout, at, static_cast<uint64_t>(plan.train.seed), FrozenPart::kAdapters, store);
  const Result<WeightsFolder> adapter = open_adapter(plan, plan_directory);
  agree(communicator, adapter.diagnostics, kExitBadEnvironment);
  agree(communicator, load_adapter_copies(*adapter, layout, at, store), kExitFailed);
}

}  // namespace

std::string load_planned_frozen(Communicator& communicator, const Plan& plan, const std::string& plan_directory, const Layout& layout,
                                const StoreFrozen& store) {
  if (layout.tuning.trains_all() && layout.frozen_numel == 0) return "";
  const Coordinates at = coordinates(layout.mesh, communicator.rank());
  FrozenDigest digest(layout, at);
  const StoreFrozen keep = {[&](int64_t offset, std::span<const float> values) {
                              digest.add(offset, values);
                              store.values(offset, values);
                            },
                            [&](int64_t offset, std::span<const uint8_t> bytes) {
                              digest.add_bytes(offset, bytes);
                              store.bytes(offset, bytes);
                            }};
  if (starts_from_weights(plan)) {
    const Result<WeightsFolder> folder = open_weights(plan, plan_directory);
    agree(communicator, folder.diagnostics, kExitBadEnvironment);
    agree(communicator, load_frozen(*folder, layout, at, keep), kExitFailed);
    load_adapter_reference(communicator, plan, plan_directory, layout, keep);
  } else {
    initialize_frozen(layout, at, static_cast<uint64_t>(plan.train.seed), FrozenPart::kAll, keep);
  }
  constexpr int kBits = 16;  // sums of such parts are exact in a double
  double parts[4];
  for (int i = 0; i < 4; ++i) parts[i] = static_cast<double>(digest.sum() >> (kBits * i) & 0xffff);
  communicator.control_sum(parts, 4);
  uint64_t sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<uint64_t>(parts[i]) << (kBits * i);
  return frozen_digest_text(sum);
}

FoundCheckpoint find_checkpoint(Communicator& communicator, const std::string& directory) {
  std::vector<int64_t> steps;
  if (communicator.rank() == 0) steps = list_checkpoints(directory);
  int64_t num_steps = static_cast<int64_t>(steps.size());
  communicator.broadcast(&num_steps, sizeof(num_steps), 0);
  steps.resize(static_cast<size_t>(num_steps));
  if (num_steps > 0) communicator.broadcast(steps.data(), num_steps * static_cast<int64_t>(sizeof(int64_t)), 0);

  FoundCheckpoint found;
  bool any_committed = false;
  std::string last_reason;
  for (int64_t step : steps) {
    std::error_code failure;
    const bool committed = std::filesystem::exists(std::filesystem::path(checkpoint_path(directory, step)) / "COMMIT", failure);
    const Result<CheckpointMetadata> metadata = verify_checkpoint(directory, step, communicator.rank(), communicator.world());
    const double bad = metadata.ok() ? 0 : 1, bad_on_first = communicator.rank() == 0 ? bad : 0;
    double counts[3] = {bad, committed ? 1.0 : 0.0, bad_on_first};
    communicator.control_sum(counts, 3);
    if (counts[0] == 0) {
      found.newest = *metadata;
      return found;
    }
    any_committed = any_committed || counts[1] > 0;
    found.refused_steps.insert(step);
    if (!metadata.ok()) {
      last_reason = metadata.diagnostics.front().message;
      const bool rank_0_says_it = communicator.rank() != 0 && counts[2] > 0;
      if (!rank_0_says_it) found.refused.emplace_back(step, last_reason);
    }
  }
  if (any_committed) {
    throw Failure(kExitFailed,
                  fmt::format("'{}' has checkpoints, but none is valid{}", directory, last_reason.empty() ? "" : ": " + last_reason),
                  "to start over, move them away or name another --output");
  }
  return found;
}

}  // namespace distsetup
