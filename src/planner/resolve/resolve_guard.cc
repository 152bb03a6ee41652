#include "planner/resolve/resolve_guard.h"

#include "base/diagnostic_codes.h"

namespace distsetup {

void resolve_guard(Resolving& r) {
  for (const char* path : {"train.on_nan", "train.on_spike", "train.spike_factor", "train.max_skips"}) r.refuse_elsewhere(path);
  if (!r.native()) return;
  GuardPlan& guard = r.plan().train.guard;
  guard.on_nan = r.spec.text("train.on_nan").value_or(guard.on_nan);
  guard.on_spike = r.spec.text("train.on_spike").value_or(guard.on_spike);
  guard.spike_factor = r.spec.number("train.spike_factor").value_or(guard.spike_factor);
  guard.max_skips = r.spec.integer("train.max_skips").value_or(guard.max_skips);
  if (r.spec.find("train.spike_factor") != nullptr && !guard.watches_spikes())
    r.fail(code::kMissingKey, "train.spike_factor", "spike_factor without on_spike: spikes are ignored", "--on-spike note");
  if (r.spec.find("train.max_skips") != nullptr && !guard.skips())
    r.fail(code::kMissingKey, "train.max_skips", "max_skips without on_nan or on_spike skip: no step is skipped", "--on-nan skip");
  if (guard.watches_spikes() && learns_preferences(r.plan().train))
    r.fail(code::kUnsupportedFeature, "train.on_spike",
           "on_spike compares a loss with the median of earlier ones, and the loss of preference pairs goes to zero",
           "leave on_spike out");
}

}  // namespace distsetup
