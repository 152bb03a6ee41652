#include "plan/activation_rules.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

namespace distsetup {
namespace {

class ActivationChecker {
 public:
  explicit ActivationChecker(const Schedule& schedule) : s_(schedule) {}

  std::vector<std::string> run() {
    for (const Instruction& i : s_.instructions) {
      for (const int event : i.waits) arriving_.erase(event);
      const bool is_copy = i.op == InstructionOp::kCopyToHost || i.op == InstructionOp::kCopyToDevice;
      if (is_copy && i.uses.size() == 2 && moves_activation(s_, i)) copy(i);
      if (i.op == InstructionOp::kForward) made_.insert({i.stage.x, i.stage.y, i.stage.kept});
      if (i.op == InstructionOp::kBackward)
        for (const int b : {i.stage.x, i.stage.kept}) read(i, b);
    }
    return std::move(out_);
  }

 private:
  const std::string& name_of(int buffer) const { return s_.buffers[static_cast<size_t>(buffer)].name; }
  void require(bool holds, std::string message) {
    if (!holds) out_.push_back(std::move(message));
  }
  bool is_arriving(int buffer) const {
    for (const auto& [event, target] : arriving_)
      if (target == buffer) return true;
    return false;
  }

  void copy(const Instruction& i) {
    const bool comes_back = i.op == InstructionOp::kCopyToDevice;
    require(
        comes_back ? waiting_.contains(i.uses[0]) : made_.contains(i.uses[0]),
        fmt::format("copies '{}', which {}", name_of(i.uses[0]), comes_back ? "does not wait on the host" : "no forward has made"));
    require(i.unit == s_.buffers[static_cast<size_t>(i.uses[1])].unit,
            fmt::format("copies '{}' as one of unit {}", name_of(i.uses[1]), i.unit));
    require(!is_arriving(i.uses[0]), fmt::format("copies '{}' back before it has arrived", name_of(i.uses[0])));
    arriving_[i.signals] = i.uses[1];
    (comes_back ? back_ : waiting_).insert(i.uses[1]);
  }

  void read(const Instruction& i, int buffer) {
    if (buffer < 0) return;
    // The last block's has not been away; what was, is in another buffer.
    require(back_.contains(buffer) || made_.contains(buffer),
            fmt::format("backward of unit {} reads '{}', which was not copied back", i.unit, name_of(buffer)));
    require(!is_arriving(buffer), fmt::format("backward of unit {} reads '{}' before it has arrived", i.unit, name_of(buffer)));
  }

  const Schedule& s_;
  std::set<int> made_, waiting_, back_;  // buffers: of forward; of the host; of backward
  std::map<int, int> arriving_;          // event of a copy → what it fills
  std::vector<std::string> out_;
};

}  // namespace

std::vector<std::string> check_activations(const Schedule& schedule) { return ActivationChecker(schedule).run(); }

}  // namespace distsetup
