// The scoreboard as a table for people and as JSON, and whether it got worse than a stored one.
#pragma once
#include "base/json_fwd.h"
#include "intervals.h"
#include "leave_out.h"
#include "score.h"

namespace distsetup::accuracy {

struct Scoreboard {
  size_t num_rows = 0;
  std::vector<Scored> rows;
  std::vector<Unmapped> unmapped;
  LeaveOutScore left_out;
};

Json to_json(const Scoreboard& board);
std::string to_table(const Scoreboard& board);
// The part that is stored: blocks, lines, fit, intervals, coverage of the mapping.
Json stored_scores(const Scoreboard& board);
// One line per score that is worse than the stored one by more than rounding.
std::vector<std::string> worse_than(const Json& stored, const Json& now);

}  // namespace distsetup::accuracy
