// From rows and predictions to scores: errors by block and metric, the score lines of the target table, the fit verdict.
#pragma once
#include <map>
#include <string>
#include <vector>
#include "planner/report/uncertainty.h"

#include "fit.h"
#include "predict.h"
#include "row.h"
#include "row_setup.h"

namespace distsetup::accuracy {

// A row that has a Setup, and what was predicted for it.
struct Scored {
  Row row;
  Setup setup;
  Prediction prediction;                                                    // with the fitted constants
  double held_out_block_tokens_per_s = 0, held_out_model_tokens_per_s = 0;  // refitted without the row's block; without its model size
  std::vector<Measurement> measured;
  Verdict verdict = Verdict::kFits;
  Interval device_99;  // GiB
};

struct Unmapped {
  std::string id, reason;
};

enum class Column { kInSample, kHeldOutBlock, kHeldOutModel };
inline constexpr Column kColumns[] = {Column::kInSample, Column::kHeldOutBlock, Column::kHeldOutModel};

struct Statistics {
  int n = 0;
  double mape = 0, median = 0, p90 = 0, max = 0, bias = 0;  // percent
};
Statistics statistics(std::vector<double> relative_errors);

// prediction / measurement - 1 of one row, by column.
double relative_error(const Scored& row, const Measurement& measured, Column column);
double predicted_value(const Scored& row, Metric metric, Column column);

struct BlockScore {
  std::string block;
  Metric metric = Metric::kAllocated;
  Statistics by_column[3];
};
std::vector<BlockScore> block_scores(const std::vector<Scored>& rows);

struct Limit {
  std::string what;  // "mape", "max", "median", "percent"
  double reach = 0;
};
// One line of the target table.
struct ScoreLine {
  std::string name;
  int n = 0;
  std::vector<Limit> limits;
  std::vector<double> in_sample, held_out_block, held_out_model;  // one value per limit
  bool reached() const;                                           // in both held-out columns
};
std::vector<ScoreLine> score_lines(const std::vector<Scored>& rows);

struct FitScore {
  std::vector<std::string> wrong_fits, wrong_noes, tight;  // ids
  int ran_out = 0, ran = 0;
};
FitScore fit_score(const std::vector<Scored>& rows);

}  // namespace distsetup::accuracy
