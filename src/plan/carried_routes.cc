#include "plan/carried_routes.h"

#include <algorithm>

#include "base/check.h"
#include "plan/arena.h"
#include "plan/native_program.h"

namespace distsetup {

int64_t carried_routes_bytes(const Program& embedding, const Symbols& symbols) {
  const bool has_sums = std::find(embedding.inputs.begin(), embedding.inputs.end(), kRouterSums) != embedding.inputs.end();
  const ProgramInput sums = program_input(kRouterSums, symbols);
  return has_sums ? aligned(sums.numel() * size_bytes(sums.dtype)) : 0;
}

View carried_routes(const Schedule& schedule, int buffer) {
  const int64_t bytes = carried_routes_bytes(schedule.programs->embedding, schedule.symbols);
  CHECK(bytes > 0, "the model has no sums of routers");
  const ProgramInput sums = program_input(kRouterSums, schedule.symbols);
  return {buffer, schedule.buffers[static_cast<size_t>(buffer)].bytes - bytes, sums.shape, sums.dtype, Group::kSelf};
}

const Op& carry_routes() {
  static const Op op = [] {
    Op of;
    of.name = "carry_routes";
    of.kernel = "copy_routes";
    of.kind = OpKind::kCopy;
    return of;
  }();
  return op;
}

}  // namespace distsetup
