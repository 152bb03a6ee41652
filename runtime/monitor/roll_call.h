// Where ranks stand, as they leave it in the store, and what can be said about those that keep others waiting.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace distsetup {

struct RankStand {
  int64_t beat = 0;                      // counts what the rank has left in the store; 0: nothing so far
  std::string phase;                     // "training step 12"
  std::string at;                        // of the list that runs: "instruction 49: AllReduce over data"; "" outside of lists
  std::string waits;                     // "AllReduce over data"; "": for nobody
  double since_s = 0;                    // that it has not gone on, when it said so
  std::map<std::string, int64_t> begun;  // operations by communicator: "reduce data"
};

std::string to_text(const RankStand& stand);
RankStand stand_from_text(const std::string& text);  // "" and what is malformed: beat 0

// What a rank waits in, of which communicator, how manyth, with which ranks.
struct Awaited {
  std::string operation, communicator;
  int64_t sequence = 0;
  std::vector<int> members;
};

// The line of a rank that has waited for `waited_s`; `earlier` and `later` are two readings of the store, a few beats apart: a rank
// whose beat has not changed between them gives no sign of life.
std::string waiting_line(int rank, double waited_s, const Awaited& awaited, const std::vector<RankStand>& earlier,
                         const std::vector<RankStand>& later);
// A line for each group of ranks that stand alike.
std::string roll_call(const std::vector<RankStand>& earlier, const std::vector<RankStand>& later);

}  // namespace distsetup
