#include "runtime/monitor/roll_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "base/json_text.h"
#include "base/quantity.h"

namespace distsetup {
namespace {

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i;
    while (end + 1 < ranks.size() && ranks[end + 1] == ranks[end] + 1) ++end;
    text +=
        fmt::format("{}{}{}", i > 0 ? ", " : "", ranks[i], end > i ? fmt::format("{}{}", end > i + 1 ? "-" : ", ", ranks[end]) : "");
    i = end + 1;
  }
  return text;
}

bool is_silent(const std::vector<RankStand>& earlier, const std::vector<RankStand>& later, size_t rank) {
  return later[rank].beat == earlier[rank].beat;
}

std::string where(const RankStand& stand) {
  if (stand.beat == 0) return "has left no word";
  return stand.phase + (stand.at.empty() ? "" : ", " + stand.at);
}

}  // namespace

std::string to_text(const RankStand& stand) {
  return Json({{"beat", stand.beat},
               {"phase", stand.phase},
               {"at", stand.at},
               {"waits", stand.waits},
               {"since_s", stand.since_s},
               {"begun", stand.begun}})
      .dump();
}

RankStand stand_from_text(const std::string& text) {
  const Json json = json_from_text(text);
  RankStand stand;
  try {
    stand.phase = json.at("phase").get<std::string>();
    stand.at = json.at("at").get<std::string>();
    stand.waits = json.at("waits").get<std::string>();
    stand.since_s = json.at("since_s").get<double>();
    stand.begun = json.at("begun").get<std::map<std::string, int64_t>>();
    stand.beat = json.at("beat").get<int64_t>();
  } catch (const Json::exception&) {
    return {};
  }
  return stand;
}

std::string waiting_line(int rank, double waited_s, const Awaited& awaited, const std::vector<RankStand>& earlier,
                         const std::vector<RankStand>& later) {
  std::vector<int> absent, silent;
  for (const int member : awaited.members) {
    const auto m = static_cast<size_t>(member);
    if (member == rank) continue;
    const auto begun = later[m].begun.find(awaited.communicator);
    if (begun == later[m].begun.end() || begun->second < awaited.sequence) absent.push_back(member);
    if (is_silent(earlier, later, m)) silent.push_back(member);
  }
  const RankStand& mine = later[static_cast<size_t>(rank)];
  std::string text = fmt::format("rank {} has waited {} in {} ({})", rank, format_duration(waited_s), awaited.operation, where(mine));
  text += absent.empty() ? fmt::format(": all {} ranks have come to it", awaited.members.size())
                         : fmt::format(": {} of {} not come: {}", ranks_text(absent), awaited.members.size(),
                                       where(later[static_cast<size_t>(absent.front())]));
  if (!silent.empty()) text += fmt::format("; no sign of life from {}", ranks_text(silent));
  return text;
}

std::string roll_call(const std::vector<RankStand>& earlier, const std::vector<RankStand>& later) {
  std::map<std::string, std::vector<int>> alike;
  std::vector<std::string> order;
  for (size_t r = 0; r < later.size(); ++r) {
    std::string text = where(later[r]);
    if (!later[r].waits.empty()) text += ", waits in " + later[r].waits;
    if (is_silent(earlier, later, r)) text += "; no sign of life since then";
    if (!alike.contains(text)) order.push_back(text);
    alike[text].push_back(static_cast<int>(r));
  }
  std::string text = fmt::format("roll call of {} ranks\n", later.size());
  for (const std::string& one : order) text += fmt::format("  {}: {}\n", ranks_text(alike[one]), one);
  return text;
}

}  // namespace distsetup
