// From rows and predictions to scores: errors by block and metric, the score lines of the target table, the fit verdict.
#pragma once
#include <map>
#include <string>
#include <vector>
#include "planner/report/need.h"
#include "planner/report/uncertainty.h"

#include "fit.h"
#include "predict.h"
#include "row.h"
#include "row_setup.h"

namespace distsetup::accuracy {

enum class Column { kInSample, kHeldOutBlock, kHeldOutModel, kHeldOutCodeBase };
inline constexpr Column kColumns[] = {Column::kInSample, Column::kHeldOutBlock, Column::kHeldOutModel, Column::kHeldOutCodeBase};

// A row that has a Setup, and what was predicted for it.
struct Scored {
  Row row;
  std::string code_base;
  double weight = 1;         // in a fit
  bool is_transfer = false;  // of transfer.csv
  Setup setup;
  Prediction prediction;                  // with the fitted constants
  double tokens_per_s[4] = {0, 0, 0, 0};  // by Column: refitted without the row's block, its model size, its code base
  std::vector<Measurement> measured;
  // What was predicted when the code base was new here, and by which program (first_sight.csv); 0: nobody kept it.
  double first_sight[4] = {0, 0, 0, 0};  // by Metric
  std::string first_program;
  int64_t need_bytes = 0;                                    // 0: not replayed, there is no doubt
  double fit_probability = 0, left_out_fit_probability = 0;  // with the shipped intervals; with those of other code bases
};

struct Unmapped {
  std::string id, block, reason;
};

struct Statistics {
  int n = 0;
  double mape = 0, median = 0, p90 = 0, max = 0, bias = 0;  // percent
};
Statistics statistics(std::vector<double> relative_errors);

// prediction / measurement - 1 of one row, by column.
double relative_error(const Scored& row, const Measurement& measured, Column column);
std::string block_name(const Scored& row);  // of rows of transfer.csv with a star
double predicted_value(const Scored& row, Metric metric, Column column);
Setup unseen_setup(const Scored& row);  // as it was planned at first sight

struct BlockScore {
  std::string block;
  Metric metric = Metric::kAllocated;
  Statistics by_column[4];
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
  std::vector<double> by_column[4];  // one value per limit
  bool reached() const;              // without the row's block and without its model
};
std::vector<ScoreLine> score_lines(const std::vector<Scored>& rows);

struct FitScore {
  std::vector<std::string> wrong_fits, wrong_noes, tight;  // ids
  int ran_out = 0, ran = 0;
  double brier = 0;  // mean of (probability - outcome)²: 0 is perfect, always saying the share that ran is `brier_of_share`
  double brier_of_share = 0;
  // Rows by what was said of them, and how many ran.
  struct Said {
    double from = 0, to = 0, mean = 0;
    int n = 0, ran = 0;
  };
  std::vector<Said> reliability;
};
enum class Intervals { kShipped, kOfOtherCodeBases };
FitScore fit_score(const std::vector<Scored>& rows, Intervals intervals = Intervals::kShipped);

}  // namespace distsetup::accuracy
