// What a release of a training stack does, from its day: presets/releases/<stack>.yaml lists each change with the days on which it
// holds. One table for plans (presets/trainers says which release a target writes for) and for measured runs (tests/accuracy).
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/value.h"
#include "model/presets.h"
#include "planner/frameworks/setup.h"

namespace distsetup {

struct ReleaseChange {
  std::string_view field;               // a flag of Software, "wrapping", "optimizer_implementation" or "loss"
  int value = 1;                        // of a flag 0 or 1, else of the enumeration
  int64_t since = 0, until = 99999999;  // yyyymmdd; holds where since <= day < until
  uint32_t all = 0, none = 0;           // of the conditions under `when`, one bit each
};

// A release as users name it: 4.46 came out on 20241024.
struct NamedRelease {
  int major = 0, minor = 0;
  int64_t day = 0;  // yyyymmdd
};

struct ReleaseTable {
  std::string stack;
  std::vector<ReleaseChange> changes;
  std::vector<NamedRelease> named;  // ascending
};

// "4.46", or "4.46.1", or "4": the last of 4. nullptr: the table names none such.
const NamedRelease* find_named_release(const ReleaseTable& releases, std::string_view version);

// kUnknownValue when no preset of that name is known; strict, with positions.
Result<std::shared_ptr<const ReleaseTable>> find_releases(const Presets& presets, std::string_view stack, const Location& at = {});
// The built-in one; CHECKs that there is one.
const ReleaseTable& built_in_releases(std::string_view stack);

// Sets software (but for its name), and where the table has them the optimizer's implementation and the loss, as of `day` (yyyymmdd).
// Reads the setup's GPU, model, program and `compiled`. Fields that the table does not list stay as they are.
void set_release(Setup& setup, const ReleaseTable& releases, int64_t day);
// The loss of the stack's default configurations; nullopt: the table says nothing of it.
std::optional<LossHead> loss_of_release(const Setup& setup, const ReleaseTable& releases, int64_t day);

}  // namespace distsetup
