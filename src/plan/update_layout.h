// What Adafactor and Muon keep and exchange beside values for each element of the flat shard: where it lies, and who computes it. Both
// run without tensor parallelism: every parameter is a piece of its own.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "plan/layout.h"
#include "plan/optimizer.h"

namespace distsetup {

StateSizes state_sizes(const Layout& layout);   // of a rank; the same on every rank
StateSizes stored_sizes(const Layout& layout);  // of the whole model, as checkpoints hold it

// A trained parameter as Adafactor sees it: a matrix, or a vector, which is a column.
struct FactoredParameter {
  int unit = 0;
  const Parameter* parameter = nullptr;
  int64_t rows = 0, columns = 1;
  bool is_vector = false;
  int64_t offset = 0;     // of its means: those of rows, then those of columns, which a vector has none of
  int64_t first_row = 0;  // among the rows of all
};
struct FactoredLayout {
  std::vector<FactoredParameter> parameters;
  int64_t num_factors = 0, num_rows = 0;
  // kFactorSumsBuffer: sums as the means lie; squares of the parameters by row; for each parameter the mean of its rows' means, and
  // what its update is multiplied by. kUpdateSquaresBuffer: squares of the updates by row.
  int64_t squares_at() const { return num_factors; }
  int64_t row_means_at() const { return num_factors + num_rows; }
  int64_t scales_at() const { return row_means_at() + static_cast<int64_t>(parameters.size()); }
  int64_t sums_numel() const { return scales_at() + static_cast<int64_t>(parameters.size()); }
};
FactoredLayout factored_layout(const Layout& layout);

// A matrix that Muon takes, in the order of a unit; `owner`: index in the shard group of the rank that orthogonalises it.
struct HiddenMatrix {
  const Parameter* parameter = nullptr;
  int64_t rows = 0, columns = 0;
  int owner = 0;
};
// Of each unit. Matrices are dealt out, the largest of a unit first, to whoever has least to do by then.
std::vector<std::vector<HiddenMatrix>> hidden_matrices(const Layout& layout);
inline constexpr int64_t kNormParts = 128;                                 // floats of scratch that a matrix's norm takes
double orthogonalize_flops(int64_t rows, int64_t columns, int64_t steps);  // Newton-Schulz

// A stretch of a rank's flat shard as Muon's step sees it.
struct MuonRange {
  int64_t begin = 0, end = 0;
  const Parameter* parameter = nullptr;
  int unit = 0;
  bool is_hidden = false;
  int64_t rest_begin = 0;  // of what is not: its place among the elements that are left to AdamW
};
std::vector<MuonRange> muon_ranges(const Layout& layout, const Coordinates& at);
// What the rate of a matrix is multiplied by (torch.optim.Muon's adjust_lr_fn), from its published shape.
double rate_factor(const MuonPlan& muon, const Parameter& parameter);

// A tensor of a state in checkpoints, where states are not just a value for each element.
struct StatePiece {
  std::string parameter, state;                           // "lm_head.weight", ".row_var"
  std::vector<int64_t> shape;                             // of the whole
  Box box;                                                // what a rank has; shard_offset: in the state's values
  bool is_copy = false;                                   // another rank writes it
  std::string name() const { return parameter + state; }  // of the tensor
};
std::vector<StatePiece> state_pieces(const Layout& layout, std::string_view state, StateScope scope, const Coordinates& at);

}  // namespace distsetup
