#include "cli/settings/offers_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/quantity.h"
#include "planner/report/text_layout.h"
#include "planner/time/economics.h"

namespace distsetup {
namespace {

// Where a line is short, the columns that can be told from the others give way.
constexpr int kAllWidth = 70, kRunWidth = 47, kUsualName = 16, kShortestName = 6;

int name_width(int width) { return width >= kRunWidth ? kUsualName : std::clamp(width - 20, kShortestName, kUsualName); }

std::string columns(const std::string& gpu, const std::string& nodes, const std::string& run, const std::string& goodput,
                    const std::string& hours, const std::string& usd, int width) {
  const std::string row = "  " + pad_right(cut(gpu, name_width(width)), name_width(width));
  if (width < kRunWidth) return row + pad_left(nodes, 9) + pad_left(usd, 9);
  if (width < kAllWidth) return row + pad_left(nodes, 10) + pad_left(run, 10) + pad_left(usd, 9);
  return row + pad_left(nodes, 10) + pad_left(run, 12) + pad_left(goodput, 9) + pad_left(hours, 11) + pad_left(usd, 10);
}

std::string offer_row(const GpuOffer& o, int width) {
  if (o.nodes == 0) return "  " + pad_right(cut(o.gpu_name, name_width(width)), name_width(width) + 8) + o.misses;
  const std::string row = columns(o.gpu_name, fmt::format("{} × {}", o.nodes, o.gpus_per_node), format_duration(o.run_s),
                                  fmt::format("{:.0f} %", 100 * o.goodput), format_count(std::llround(o.gpu_hours)),
                                  o.usd > 0 ? format_count(std::llround(o.usd)) : "no price", width);
  return o.misses.empty() ? row : row + "  " + o.misses;
}

}  // namespace

bool asks_for_offers(const Arguments& arguments) {
  return arguments.has("deadline") || arguments.has("budget") || arguments.has("compare-gpus");
}

Result<OfferWish> offer_wish(const Arguments& arguments) {
  OfferWish wish;
  Diagnostics said;
  if (const auto deadline = arguments.find("deadline")) {
    const Result<int64_t> seconds = parse_duration_s(*deadline, command_line());
    append(said, seconds.diagnostics);
    wish.deadline_s = static_cast<double>(seconds.value.value_or(0));
  }
  if (const std::string budget = arguments.text("budget"); is_short_count(budget)) {
    const Result<int64_t> usd = parse_count(budget, command_line());
    append(said, usd.diagnostics);
    wish.budget_usd = static_cast<double>(usd.value.value_or(0));
  } else {
    Result<double> usd = double_flag(arguments, "budget", 0);
    for (Diagnostic& one : usd.diagnostics) one.help = "dollars, without their sign: --budget 5000, --budget 5k";
    append(said, usd.diagnostics);
    wish.budget_usd = usd.value.value_or(0);
  }
  if (has_error(said)) return said;
  return wish;
}

std::string offers_text(const std::vector<GpuOffer>& rows, const Problem& problem, int width) {
  // What an offer misses is what was asked about: it stands in any line.
  int misses = 0;
  for (const GpuOffer& one : rows)
    if (one.nodes > 0 && !one.misses.empty()) misses = std::max(misses, 2 + display_width(one.misses));
  std::string text = cut(columns("GPU", "nodes", "run", "goodput", "GPU-hours", "USD", width - misses), width) + "\n";
  std::string sources;
  for (const GpuOffer& one : rows) {
    text += cut(offer_row(one, width - misses), width) + "\n";
    if (one.usd > 0) sources += fmt::format("{}{}: {}", sources.empty() ? "" : "; ", one.gpu_name, one.price_source);
  }
  const double hours = gpu_hours_per_failure(problem.gpu_hours_per_failure);
  const double save_s = save_time_s(static_cast<double>(problem.save_time_s));
  text += fmt::format(
      "\ngoodput: the share of the time that makes progress, with a failure every {} GPU-hours, {} for a save and {} "
      "for a restart\n",
      format_count(std::llround(hours)), format_duration(save_s), format_duration(kAssumedRestartTime_s));
  const auto is_bound = [](const GpuOffer& o) { return o.batch_bound && o.misses == "late"; };
  for (const GpuOffer& o : rows)
    if (o.nodes_in_time > 0) text += fmt::format("late: {} would be in time with --nodes {}\n", o.gpu_name, o.nodes_in_time);
  if (std::any_of(rows.begin(), rows.end(), is_bound))
    text += "late: more nodes would leave GPUs without a sequence; --global-batch-tokens makes the batch larger\n";
  if (!sources.empty()) text += fmt::format("prices: {}; --price states another\n", sources);
  if (!rows.empty() && rows.front().nodes > 0 && rows.front().misses.empty())
    text +=
        fmt::format("{}: --gpu {} --nodes {}\n", rows.front().usd > 0 ? "cheapest" : "fastest", rows.front().gpu, rows.front().nodes);
  return wrap_lines(text, width);
}

Json offers_json(const std::vector<GpuOffer>& rows) {
  Json list = Json::array();
  for (const GpuOffer& o : rows) {
    Json row = {{"gpu", o.gpu}, {"nodes", o.nodes}, {"gpus_per_node", o.gpus_per_node}, {"misses", o.misses}};
    if (o.nodes > 0) {
      row["step_s"] = o.step_s;
      row["run_s"] = o.run_s;
      row["goodput"] = o.goodput;
      row["gpu_hours"] = o.gpu_hours;
      row["strategy"] = o.strategy;
    }
    if (o.nodes_in_time > 0) row["nodes_in_time"] = o.nodes_in_time;
    row["usd"] = o.usd > 0 ? Json(o.usd) : Json(nullptr);
    row["price_source"] = o.price_source;
    list.push_back(std::move(row));
  }
  return {{"schema_version", 1}, {"rows", list}};
}

}  // namespace distsetup
