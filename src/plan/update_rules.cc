#include "plan/update_rules.h"

#include <fmt/format.h>

#include <map>

#include "plan/host_writer.h"
#include "plan/update_layout.h"

namespace distsetup {
namespace {

// Where one exchange is: of Adafactor's, or of one unit of Muon's.
struct UnitExchange {
  std::vector<InstructionOp> done;
  int event = -1;  // of the transfer that is under way; -1: none
};

class UpdateChecker {
 public:
  UpdateChecker(const Plan& plan, const Schedule& s) : plan_(plan), s_(s), ranks_(group_size(plan.mesh, s.layout->shard_group)) {}

  std::vector<std::string> run() {
    for (index_ = 0; index_ < static_cast<int>(s_.instructions.size()); ++index_) instruction(s_.instructions[index_]);
    return std::move(out_);
  }

 private:
  template <class... A>
  void require(bool holds, fmt::format_string<A...> text, A&&... args) {
    if (!holds) out_.push_back(fmt::format("instruction {}: {}", index_, fmt::format(text, std::forward<A>(args)...)));
  }

  void instruction(const Instruction& i) {
    if (i.op == InstructionOp::kGradNorm) is_normed_ = true;
    if (i.op == InstructionOp::kOptimizerStep) return before_step();
    for (auto& [unit, progress] : of_unit_)
      for (const int event : i.waits)
        if (event == progress.event) progress.event = -1;
    if (!belongs_to_update(s_, i)) {
      is_summed_ = is_summed_ || (is_normed_ && i.op == InstructionOp::kAllReduce && i.unit < 0);
      return;
    }
    require(is_normed_, "{} stands before the gradient norm", name(i.op));
    require(is_summed_ || group_size(plan_.mesh, s_.layout->state_group) == 1, "{} stands before the norm is summed over shards",
            name(i.op));
    UnitExchange& progress = of_unit_[i.unit];
    require(progress.event < 0, "{} of unit {} before its transfer was waited for", name(i.op), i.unit);
    const bool is_alone =
        i.op != InstructionOp::kAllGather && i.op != InstructionOp::kReduceScatter && i.op != InstructionOp::kAllReduce;
    if (!is_alone) transfer(i, progress);
    require(!i.accumulate, "{} of unit {} adds to the gradient that it replaces", name(i.op), i.unit);
    progress.done.push_back(i.op);
  }

  void transfer(const Instruction& i, UnitExchange& progress) {
    require(i.group == s_.layout->shard_group, "{} of unit {} goes over {}, expected {}", name(i.op), i.unit, name(i.group),
            name(s_.layout->shard_group));
    const int64_t whole = s_.buffers[i.uses[0]].bytes;
    require(i.bytes == whole, "{} of unit {} moves {} bytes of {}", name(i.op), i.unit, i.bytes, whole);
    progress.event = i.signals;
  }

  std::vector<InstructionOp> expected() const {
    using enum InstructionOp;
    if (plan_.train.optimizer == kAdafactor)
      return ranks_ > 1 ? std::vector{kFactorSums, kAllReduce, kFactorMeans, kAllReduce} : std::vector{kFactorSums, kFactorMeans};
    std::vector done = ranks_ > 1 ? std::vector{kMomentum, kAllGather, kOrthogonalize, kReduceScatter, kAccumulate}
                                  : std::vector{kMomentum, kOrthogonalize, kAccumulate};
    if (has_host_optimizer(plan_)) done.push_back(kAccumulate);  // on the device, and then the host takes it
    return done;
  }

  void before_step() {
    std::vector<int> units;
    if (plan_.train.optimizer == kAdafactor) units = {-1};
    if (plan_.train.optimizer == kMuon) {
      const std::vector<std::vector<HiddenMatrix>> matrices = hidden_matrices(*s_.layout);
      for (int u = 0; u < static_cast<int>(matrices.size()); ++u)
        if (!matrices[static_cast<size_t>(u)].empty()) units.push_back(u);
    }
    for (const int u : units) {
      require(of_unit_[u].done == expected(), "the step is taken, and unit {} has not had what {} does before it, once and in order",
              u, plan_.train.optimizer);
      of_unit_.erase(u);
    }
    for (const auto& [unit, progress] : of_unit_)
      require(false, "unit {} has exchanged something that {} has no use for", unit, plan_.train.optimizer);
    of_unit_.clear();
  }

  const Plan& plan_;
  const Schedule& s_;
  const int ranks_;
  int index_ = 0;
  bool is_normed_ = false, is_summed_ = false;  // the gradient's norm: here, and over all that share it
  std::map<int, UnitExchange> of_unit_;
  std::vector<std::string> out_;
};

}  // namespace

std::vector<std::string> check_update(const Plan& plan, const Schedule& schedule) { return UpdateChecker(plan, schedule).run(); }

}  // namespace distsetup
