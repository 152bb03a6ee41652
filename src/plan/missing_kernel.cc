#include "plan/missing_kernel.h"

#include <fmt/format.h>

#include "model/rope.h"
#include "plan/layer_form.h"

namespace distsetup {
namespace {

bool is_needed(const MissingKernel& missing, const Geometry& geometry) { return all_hold(missing.when, geometry, {}); }

// Tokens of a sequence that do without it; 0: none.
int64_t tokens_without(const MissingKernel& missing, const Geometry& geometry) {
  return missing.beyond.empty() ? 0 : static_cast<int64_t>(number_of(missing.beyond, geometry, {}).value_or(0));
}

}  // namespace

const MissingKernel* always_missing(const std::vector<MissingKernel>& missing, const Geometry& geometry) {
  for (const MissingKernel& one : missing)
    if (is_needed(one, geometry) && tokens_without(one, geometry) == 0) return &one;
  return nullptr;
}

LongestSequence longest_without(const std::vector<MissingKernel>& missing, const Geometry& geometry) {
  LongestSequence out;
  if (const int64_t rows = positions_in_table(geometry); rows > 0) out = {rows, fmt::format("it has rows for {} positions", rows)};
  for (const MissingKernel& one : missing) {
    const int64_t tokens = is_needed(one, geometry) ? tokens_without(one, geometry) : 0;
    if (tokens > 0 && (out.tokens == 0 || tokens < out.tokens))
      out = {tokens, fmt::format("beyond {} tokens it needs a kernel that there is not, for {}", tokens, one.kernel)};
  }
  return out;
}

}  // namespace distsetup
