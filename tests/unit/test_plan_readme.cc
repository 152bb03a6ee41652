// The listings of src/plan/README.md are what the compiler prints. DISTSETUP_UPDATE=1 writes them.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "base/file.h"
#include "base/value.h"
#include "plan/compile_schedule.h"
#include "plan/expand.h"
#include "plan/schedule.h"
#include "plan/schedule_text.h"
#include "support/random_plan.h"

namespace distsetup {
namespace {

// What lies behind the gradients.
std::string of_optimizer(const std::string& name) {
  PlanChoice choice{Sharding::kZero3, 1, 2};
  choice.optimizer = name;
  const std::string all = format_schedule(compile_schedule(make_test_plan(tiny_geometry(2), choice), Phase::kStep));
  return all.substr(all.rfind('\n', all.find("GradNorm")) + 1);
}

std::string listing(const std::string& kind, const std::string& which) {
  const Geometry g = tiny_geometry(1);
  if (kind == "steps") {
    const Schedule s = compile_expanded(make_test_plan(g, {Sharding::kDdp, 1, 1, Recompute::kSelective}), Phase::kStep);
    std::string out;
    for (const Instruction& i : s.instructions) {
      if (i.op != InstructionOp::kBackward || i.unit != 1) continue;
      for (int n = i.first_step; n < i.first_step + i.num_steps; ++n)
        out += fmt::format("{:>6}  {}\n", s.live_bytes[n], s.steps[n].op);
    }
    return out;
  }
  if (which == "pipeline") {
    Geometry tied = tiny_geometry(2);
    tied.tied_embeddings = true;
    return format_schedule(
        compile_schedule(make_test_plan(tied, {.sharding = Sharding::kDdp, .accumulation = 3, .pp = 2}), Phase::kStep));
  }
  PlanChoice choice{Sharding::kZero3, 1, 2};
  if (which == "zero2_accumulation") choice = {Sharding::kZero2, 1, 2, Recompute::kNone, 0, 2};
  if (which == "hybrid") choice = {Sharding::kZero3, 2, 2};
  if (which == "hierarchical") choice = {.sharding = Sharding::kZero3, .dp_shard = 4, .nodes = 2};
  if (which == "host_optimizer") choice.compute = Dtype::kBf16, choice.accumulation = 2, choice.optimizer_on_host = true;
  if (which == "adafactor" || which == "muon") return of_optimizer(which);
  return format_schedule(compile_schedule(make_test_plan(g, choice), Phase::kStep));
}

TEST_CASE("the listings of the plan README are what is compiled") {
  const char* source = std::getenv("DISTSETUP_SOURCE");
  REQUIRE(source != nullptr);
  const std::string path = std::string(source) + "/src/plan/README.md";
  const std::string text = *read_file(path);
  std::string out;
  size_t at = 0;
  int found = 0;
  for (;;) {
    const size_t schedule = text.find("\n```schedule ", at), steps = text.find("\n```steps ", at);
    const size_t fence = std::min(schedule, steps);
    if (fence == std::string::npos) break;
    const size_t line_end = text.find('\n', fence + 1), close = text.find("```", line_end);
    const std::string info = text.substr(fence + 4, line_end - fence - 4);
    const size_t space = info.find(' ');
    out += text.substr(at, line_end + 1 - at) + listing(info.substr(0, space), info.substr(space + 1));
    at = close;
    ++found;
  }
  out += text.substr(at);
  CHECK(found == 9);
  if (std::getenv("DISTSETUP_UPDATE"))
    REQUIRE(write_file_atomic(path, out, Overwrite::kForce).ok());
  else
    CHECK(out == text);
}

}  // namespace
}  // namespace distsetup
