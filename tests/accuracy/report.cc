#include "report.h"
#include "planner/report/uncertainty.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "base/json.h"

namespace distsetup::accuracy {
namespace {

double rounded(double value) { return std::round(value * 100) / 100; }

Json to_json(const Statistics& s) {
  return {{"n", s.n},
          {"mape", rounded(s.mape)},
          {"median", rounded(s.median)},
          {"p90", rounded(s.p90)},
          {"max", rounded(s.max)},
          {"bias", rounded(s.bias)}};
}

Json blocks_json(const std::vector<Scored>& rows) {
  Json blocks = Json::array();
  for (const BlockScore& score : block_scores(rows)) {
    Json block = to_json(score.by_column[1]);  // held-out block: what targets apply to
    block["block"] = score.block;
    block["metric"] = name(score.metric);
    block["in_sample"] = to_json(score.by_column[0]);
    block["held_out_model"] = to_json(score.by_column[2]);
    block["held_out_code_base"] = to_json(score.by_column[3]);
    blocks.push_back(std::move(block));
  }
  return blocks;
}

Json lines_json(const std::vector<Scored>& rows) {
  Json lines = Json::array();
  for (const ScoreLine& line : score_lines(rows)) {
    for (size_t i = 0; i < line.limits.size(); ++i) {
      lines.push_back({{"score", line.name},
                       {"what", line.limits[i].what},
                       {"n", line.n},
                       {"reach", line.limits[i].reach},
                       {"in_sample", rounded(line.by_column[0][i])},
                       {"held_out_block", rounded(line.by_column[1][i])},
                       {"held_out_model", rounded(line.by_column[2][i])},
                       {"held_out_code_base", rounded(line.by_column[3][i])},
                       {"reached", line.n > 0 && line.reached()}});
    }
  }
  return lines;
}

struct Mapped {
  int mapped = 0, all = 0;
};
std::map<std::string, Mapped> mapped_by_block(const Scoreboard& board) {
  std::map<std::string, Mapped> by_block;
  for (const Scored& s : board.rows) {
    ++by_block[block_name(s)].mapped;
    ++by_block[block_name(s)].all;
  }
  for (const Unmapped& u : board.unmapped) ++by_block[u.block].all;
  return by_block;
}

// The headline: every code base predicted without its own rows.
std::string left_out_text(const Scoreboard& board) {
  const LeaveOutScore& score = board.left_out;
  std::string text = fmt::format("\nleaving one code base out: {} predictions, {:.1f} % inside their 90 % intervals\n", score.n,
                                 score.n == 0 ? 0 : 100.0 * score.inside / score.n);
  text += fmt::format("{:<26} {:>5} {:>8} {:>8} {:>10} {:>20} {:>8}\n", "", "n", "MAPE", "median", "inside %", "median half-width %",
                      "chance");
  constexpr double kTooUnlikely = 0.01 - 1e-9;  // none of two has a chance of 0.01
  const auto add = [&](const LeftOut& one) {
    text += fmt::format("{:<26} {:>5} {:>8.2f} {:>8.2f} {:>10.1f} {:>20.1f} {:>8.4f}{}\n", one.name, one.n, one.mape, one.median,
                        100.0 * one.inside / std::max(1, one.n), one.median_half_width, one.chance,
                        one.chance < kTooUnlikely ? "  too few inside" : "");
  };
  for (const LeftOut& metric : score.metrics) add(metric);
  for (const FirstSights& first : score.first_sights)
    text += fmt::format(
        "at first sight, {}{}{}: {} predictions of {} code bases, {:.1f} % inside, in the mean of code bases {:.1f} %; median "
        "half-width "
        "{:.1f} %\n",
        first.group, first.kind.empty() ? "" : ", ", first.kind, first.n, first.code_bases, 100.0 * first.inside / first.n,
        100 * first.inside_by_code_base, first.median_half_width);
  text += "\n";
  for (const LeftOut& base : score.code_bases) add(base);
  return text;
}

// Over all rows, transfer included.
std::string fit_text(const std::vector<Scored>& rows) {
  const FitScore fit = fit_score(rows, Intervals::kOfOtherCodeBases);
  std::string text = fmt::format("\nruns {}, ran out {}: Brier score {:.4f} (the share that ran alone: {:.4f})\n", fit.ran,
                                 fit.ran_out, fit.brier, fit.brier_of_share);
  text += fmt::format("called fits and ran out {}; ran and called does_not_fit {}, tight {}\n", fit.wrong_fits.size(),
                      fit.wrong_noes.size(), fit.tight.size());
  text += fmt::format("{:<22} {:>5} {:>10} {:>10}\n", "said", "n", "mean said %", "ran %");
  for (const FitScore::Said& said : fit.reliability) {
    if (said.n == 0) continue;
    text += fmt::format("{:<22} {:>5} {:>10.1f} {:>10.1f}\n",
                        fmt::format("{:.0f} to {:.0f} %", 100 * said.from, std::min(100.0, 100 * said.to)), said.n, 100 * said.mean,
                        100.0 * said.ran / said.n);
  }
  return text;
}

std::string limit_text(const Limit& limit) { return fmt::format("{} <= {:g} %", limit.what, limit.reach); }

}  // namespace

namespace {

Json left_out_json(const Scoreboard& board) {
  Json metrics = Json::array(), bases = Json::array();
  const auto entry = [](const LeftOut& one) {
    return Json{{"name", one.name},
                {"n", one.n},
                {"mape", rounded(one.mape)},
                {"median", rounded(one.median)},
                {"coverage", rounded(100.0 * one.inside / std::max(1, one.n))},
                {"median_half_width", rounded(one.median_half_width)},
                {"chance", rounded(100 * one.chance) / 100}};
  };
  for (const LeftOut& one : board.left_out.metrics) metrics.push_back(entry(one));
  for (const LeftOut& one : board.left_out.code_bases) bases.push_back(entry(one));
  Json first_sights = Json::array();
  for (const FirstSights& first : board.left_out.first_sights) {
    first_sights.push_back({{"group", first.group},
                            {"kind", first.kind},
                            {"code_bases", first.code_bases},
                            {"n", first.n},
                            {"inside", first.inside},
                            {"coverage_by_code_base", rounded(100 * first.inside_by_code_base)},
                            {"median_half_width", rounded(first.median_half_width)}});
  }
  const FitScore fit = fit_score(board.rows, Intervals::kOfOtherCodeBases);
  Json reliability = Json::array();
  for (const FitScore::Said& said : fit.reliability)
    reliability.push_back({{"from", said.from}, {"n", said.n}, {"mean", rounded(100 * said.mean) / 100}, {"ran", said.ran}});
  return {{"n", board.left_out.n},        {"inside", board.left_out.inside}, {"metrics", metrics},
          {"code_bases", bases},          {"first_sights", first_sights},    {"brier", rounded(100 * fit.brier) / 100},
          {"wrong_fits", fit.wrong_fits}, {"wrong_noes", fit.wrong_noes},    {"reliability", reliability}};
}

}  // namespace

Json stored_scores(const Scoreboard& board) {
  const FitScore fit = fit_score(board.rows);
  Json intervals = Json::array(), mapped = Json::object();
  for (const IntervalScore& s : interval_scores(board.rows)) {
    intervals.push_back({{"metric", name(s.metric)},
                         {"n", s.n},
                         {"coverage", rounded(s.coverage)},
                         {"median_half_width", rounded(s.median_half_width)}});
  }
  for (const auto& [block, m] : mapped_by_block(board)) mapped[block] = {{"mapped", m.mapped}, {"of", m.all}};
  return {{"rows", board.num_rows},
          {"mapped", mapped},
          {"blocks", blocks_json(board.rows)},
          {"lines", lines_json(board.rows)},
          {"intervals", intervals},
          {"fit",
           {{"wrong_fits", fit.wrong_fits},
            {"wrong_noes", fit.wrong_noes},
            {"tight", fit.tight},
            {"ran_out", fit.ran_out},
            {"ran", fit.ran},
            {"brier", rounded(100 * fit.brier) / 100}}},
          {"left_out", left_out_json(board)}};
}

Json to_json(const Scoreboard& board) {
  Json json = stored_scores(board);
  json["unmapped"] = Json::array();
  for (const Unmapped& u : board.unmapped) json["unmapped"].push_back({{"id", u.id}, {"reason", u.reason}});
  json["by_row"] = Json::array();
  for (const Scored& row : board.rows) {
    for (const Measurement& m : row.measured) {
      const double predicted = row.prediction.of(m.metric);
      if (predicted <= 0) continue;
      const double unit = m.metric == Metric::kTokensPerSecond ? 1 : 1024.0 * 1024 * 1024;  // the planner's memory is in bytes
      const Interval i = interval_of(row.setup, quantity(m.metric), predicted * unit, 0.9);
      Json entry = {{"id", row.row.id},       {"metric", name(m.metric)}, {"measured", m.value},
                    {"predicted", predicted}, {"low", i.low / unit},      {"high", i.high / unit}};
      if (m.metric == Metric::kTokensPerSecond) {
        entry["held_out_block"] = row.tokens_per_s[1];
        entry["held_out_model"] = row.tokens_per_s[2];
        entry["held_out_code_base"] = row.tokens_per_s[3];
      }
      json["by_row"].push_back(std::move(entry));
    }
  }
  json["verdicts"] = Json::array();
  for (const Scored& row : board.rows) {
    json["verdicts"].push_back({{"id", row.row.id},
                                {"ran_out", row.row.ran_out()},
                                {"verdict", name(verdict_of(row.fit_probability))},
                                {"fit_probability", row.fit_probability},
                                {"need_gib", static_cast<double>(row.need_bytes) / (1024.0 * 1024 * 1024)},
                                {"device_gib", row.prediction.device_gib},
                                {"allocated_gib", row.prediction.allocated_gib},
                                {"reserved_gib", row.prediction.reserved_gib},
                                {"replay_ran_out", row.prediction.ran_out},
                                {"usable_gib", static_cast<double>(row.setup.gpu.usable_memory_bytes) / (1024.0 * 1024 * 1024)}});
  }
  return json;
}

std::string to_table(const Scoreboard& board) {
  std::string text = fmt::format("{} rows, {} mapped, {} unmapped\n", board.num_rows, board.rows.size(), board.unmapped.size());
  text += left_out_text(board) + fit_text(board.rows) + "\n";
  text += fmt::format("{:<42} {:>5} {:<15} {:>9} {:>14} {:>14} {:>18}\n", "score", "n", "reach", "in-sample", "held-out block",
                      "held-out model", "held-out code base");
  for (const ScoreLine& line : score_lines(board.rows)) {
    for (size_t i = 0; i < line.limits.size(); ++i) {
      const bool reached = line.by_column[1][i] <= line.limits[i].reach + 1e-9 && line.by_column[2][i] <= line.limits[i].reach + 1e-9;
      text += fmt::format("{:<42} {:>5} {:<15} {:>9.2f} {:>14.2f} {:>14.2f} {:>18.2f}  {}\n", i == 0 ? line.name : "", line.n,
                          limit_text(line.limits[i]), line.by_column[0][i], line.by_column[1][i], line.by_column[2][i],
                          line.by_column[3][i],
                          line.n == 0 ? "no rows"
                          : reached   ? "reached"
                                      : "not reached");
    }
  }
  text += fmt::format("\n{:<22} {:>5} {:>10} {:>18}\n", "90 % intervals", "n", "coverage %", "median half-width %");
  for (const IntervalScore& s : interval_scores(board.rows)) {
    text += fmt::format("{:<22} {:>5} {:>10.1f} {:>18.1f}\n", name(s.metric), s.n, s.coverage, s.median_half_width);
  }
  text += fmt::format("\n{:<6} {:<21} {:>4} {:>15} {:>22} {:>22} {:>26}\n", "block", "metric", "n", "in-sample MAPE",
                      "held-out block MAPE/max", "held-out model MAPE/max", "held-out code base MAPE/max");
  for (const BlockScore& s : block_scores(board.rows)) {
    text += fmt::format("{:<6} {:<21} {:>4} {:>15.2f} {:>15.2f}/{:>6.1f} {:>15.2f}/{:>6.1f} {:>19.2f}/{:>6.1f}\n", s.block,
                        name(s.metric), s.by_column[0].n, s.by_column[0].mape, s.by_column[1].mape, s.by_column[1].max,
                        s.by_column[2].mape, s.by_column[2].max, s.by_column[3].mape, s.by_column[3].max);
  }
  text += fmt::format("\n{:<6} {:>7} {:>5}\n", "block", "mapped", "of");
  for (const auto& [block, m] : mapped_by_block(board)) text += fmt::format("{:<6} {:>7} {:>5}\n", block, m.mapped, m.all);
  return text;
}

std::vector<std::string> worse_than(const Json& stored, const Json& now) {
  std::vector<std::string> worse;
  const auto compare = [&](const std::string& what, double before, double after) {
    const double rounding = std::max(0.02, 0.005 * std::abs(before));
    if (after > before + rounding) worse.push_back(fmt::format("{}: {:.2f} is worse than the stored {:.2f}", what, after, before));
  };
  for (const Json& before : stored.at("lines")) {
    for (const Json& after : now.at("lines")) {
      if (before.at("score") != after.at("score") || before.at("what") != after.at("what")) continue;
      for (const char* column : {"in_sample", "held_out_block", "held_out_model"}) {
        compare(fmt::format("{}, {}, {}", before.at("score").get<std::string>(), before.at("what").get<std::string>(), column),
                before.at(column).get<double>(), after.at(column).get<double>());
      }
    }
  }
  // What users are promised of code that nobody has read.
  for (const Json& before : stored.at("left_out").at("first_sights")) {
    for (const Json& after : now.at("left_out").at("first_sights")) {
      const std::string kind = before.value("kind", "");  // code bases of one kind alone are too few to hold a promise to
      if (before.at("group") != after.at("group") || !kind.empty() || after.at("kind") != "") continue;
      compare(fmt::format("outside at first sight, {}", before.at("group").get<std::string>()),
              100 - before.at("coverage_by_code_base").get<double>(), 100 - after.at("coverage_by_code_base").get<double>());
    }
  }
  for (const auto& [block, before] : stored.at("mapped").items()) {
    const Json& after = now.at("mapped").at(block);
    compare(fmt::format("unmapped rows of {}", block), before.at("of").get<double>() - before.at("mapped").get<double>(),
            after.at("of").get<double>() - after.at("mapped").get<double>());
  }
  for (const Json& before : stored.at("blocks")) {
    for (const Json& after : now.at("blocks")) {
      if (before.at("block") != after.at("block") || before.at("metric") != after.at("metric")) continue;
      compare(fmt::format("{} {}, mape", before.at("block").get<std::string>(), before.at("metric").get<std::string>()),
              before.at("mape").get<double>(), after.at("mape").get<double>());
    }
  }
  return worse;
}

}  // namespace distsetup::accuracy
