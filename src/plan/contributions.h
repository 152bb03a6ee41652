// What of a job's data several ranks hold together: a number stands for each contribution, and each rank carries sums of them where
// its list says. Who waits for whom is check_job.cc's.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "plan/job_list.h"
#include "plan/schedule_text.h"

namespace distsetup {

// One rank on its way through its list.
struct JobRank {
  const JobList* list = nullptr;
  size_t segment = 0;
  int64_t round = 0;
  int at = 0;                                // instruction, inside the segment
  std::vector<int64_t> forwards, backwards;  // of each unit that has a program
  std::vector<int64_t> references;           // the same: forwards of the reference
  int version = 0;                           // of the master: optimizer steps taken
  int start = 0;                             // and before the list
  std::set<int> stepped;                     // units that the optimizer has stepped; -1: all
  std::vector<uint64_t> value;               // per slot: what is summed in it; at first what an earlier step left
  std::vector<uint64_t> inbox;               // per buffer: what a reduce-scatter received
  std::vector<int> own, whole;               // per slot: version of the own chunk, of all chunks; -1: not filled
  bool done = false;
};

class Contributions {
 public:
  static constexpr size_t kMostMessages = 20;

  Contributions(const Mesh& mesh, const std::vector<const Schedule*>& by_rank);

  std::vector<JobRank> ranks;
  std::vector<std::string> complaints;  // rules that did not hold

  template <class... A>
  void require(bool holds, int rank, fmt::format_string<A...> text, A&&... args) {
    if (holds || complaints.size() >= kMostMessages) return;
    const JobRank& r = ranks[rank];
    const std::string where = r.done ? "at the end" : format_instruction(r.list->s, index(r));
    complaints.push_back(fmt::format("rank {}, {}: {}", rank, where, fmt::format(text, std::forward<A>(args)...)));
  }

  static int index(const JobRank& r) { return r.list->s.segments[r.segment].first_instruction + r.at; }
  static const Instruction& head(const JobRank& r) { return r.list->s.instructions[index(r)]; }
  const std::vector<int>& members(Group group, int rank);

  void begin(JobRank& r, const Instruction& i);  // what it allocates
  void local(int rank, const Instruction& i);    // what a rank does alone
  void collective(const std::vector<int>& all);  // what its ranks do together, each at its head
  void end(int rank);                            // of its list

 private:
  void compute(int rank, const Instruction& i);
  void check_reference(int rank, const Instruction& i, const JobList::Touched& touched, int64_t m);
  int line_of(int rank) const;
  void check_flow(int rank, const Instruction& i, int64_t m);
  uint64_t check_routes(int rank, const Instruction& i, int64_t m);
  static void accumulate(JobRank& r, const Instruction& i);
  static void copy_to_device(JobRank& r, const Instruction& i);
  static bool has_stepped(const JobRank& r, int unit) {
    return r.list->s.phase != Phase::kStep || r.stepped.contains(-1) || r.stepped.contains(unit);
  }
  const std::vector<int>& peers(int rank);
  const std::vector<int>& contributors(int rank, int unit);
  uint64_t expected_gradient(int rank, int unit);
  uint64_t expected_on_all_stages(int rank, int unit);
  void check_loss(int rank);
  static int64_t micro_batches(const JobRank& r);
  uint64_t norm_token(int rank) const;
  void norm(int rank, const Instruction& i);
  void optimizer(int rank, const Instruction& i);
  void update_part(int rank, const Instruction& i);
  uint64_t sharded_sum(int rank, uint64_t kind, int unit);

  const Mesh mesh_;
  std::map<const Schedule*, std::unique_ptr<JobList>> lists_;
  std::map<std::pair<Group, int>, std::vector<int>> groups_;
  std::map<std::tuple<int, int, int64_t>, uint64_t> expected_;
};

}  // namespace distsetup
