#include "runtime/monitor/stage_memory.h"

#include <algorithm>
#include <string>
#include <vector>

#include "plan/mesh.h"

namespace distsetup {
namespace {

int first_rank_of(const Mesh& mesh, int stage) {
  int rank = 0;
  while (coordinates(mesh, rank).pp != stage) ++rank;
  return rank;
}

// Takes the values of one rank to all of them, in the order in which they are named. Run twice: to write, on that rank, and to read.
class Carrier {
 public:
  explicit Carrier(bool writes) : writes_(writes) {}

  template <class T>
  void number(T& value) {
    if (writes_)
      values_.push_back(static_cast<double>(value));
    else
      value = static_cast<T>(values_.at(at_++));
  }
  void text(std::string& value) {
    size_t size = value.size();
    number(size);
    value.resize(size);
    for (char& c : value) number(c);
  }

  // Collective.
  void send(Communicator& communicator) {
    double size = static_cast<double>(values_.size());
    communicator.control_sum(&size, 1);
    values_.resize(static_cast<size_t>(size), 0.0);
    communicator.control_sum(values_.data(), static_cast<int64_t>(values_.size()));
    writes_ = false;
  }

 private:
  bool writes_;
  std::vector<double> values_;
  size_t at_ = 0;
};

void carry(MemoryReport& report, Carrier& carrier) {
  for (auto* bytes : {&report.run_bytes, &report.arena_peak_bytes})
    for (int64_t& of_class : *bytes) carrier.number(of_class);
  for (int64_t* bytes : {&report.arena_bytes, &report.metered_peak_bytes, &report.metered_workspace_bytes}) carrier.number(*bytes);
  carrier.text(report.peak_instruction);
  carrier.number(report.peak_instruction_bytes);
  std::map<std::string, int64_t> phases;
  size_t num_phases = report.phase_bytes.size();
  carrier.number(num_phases);
  auto own = report.phase_bytes.begin();
  for (size_t n = 0; n < num_phases; ++n) {
    auto [phase, bytes] =
        own == report.phase_bytes.end() ? std::pair<std::string, int64_t>{} : std::pair<std::string, int64_t>(*own++);
    carrier.text(phase);
    carrier.number(bytes);
    phases[phase] = bytes;
  }
  report.phase_bytes = std::move(phases);
}

int64_t most_of_all(Communicator& communicator, int64_t own) {
  std::vector<double> all(static_cast<size_t>(communicator.world()), 0.0);
  all[static_cast<size_t>(communicator.rank())] = static_cast<double>(own);
  communicator.control_sum(all.data(), static_cast<int64_t>(all.size()));
  return static_cast<int64_t>(*std::max_element(all.begin(), all.end()));
}

}  // namespace

int fullest_stage(const Plan& plan) {
  const std::vector<MemoryPlan::RankClass>& stages = plan.memory.by_rank_class;
  const auto fullest =
      std::max_element(stages.begin(), stages.end(), [](const auto& a, const auto& b) { return a.device_bytes < b.device_bytes; });
  return plan.mesh.pp == 1 || fullest == stages.end() ? 0 : static_cast<int>(fullest - stages.begin());
}

MemoryReport memory_as_planned(Communicator& communicator, const Plan& plan, const MemoryReport& own) {
  if (plan.mesh.pp == 1) return own;
  const bool writes = communicator.rank() == first_rank_of(plan.mesh, fullest_stage(plan));
  Carrier carrier(writes);
  MemoryReport report = writes ? own : MemoryReport();
  if (writes) carry(report, carrier);
  carrier.send(communicator);
  report = MemoryReport();
  carry(report, carrier);
  report.host_bytes = most_of_all(communicator, own.host_bytes);
  report.disk_bytes = most_of_all(communicator, own.disk_bytes);
  return report;
}

}  // namespace distsetup
