#include "runtime/optim/adafactor.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "plan/update_layout.h"
#include "runtime/engine/threads.h"

namespace distsetup {
namespace {

class Adafactor final : public Optimizer {
 public:
  Adafactor(const TrainPlan& train, const OptimizerMemory& memory, const OptimizerPlace& place, Device& device)
      : train_(train), layout_(*place.layout), factored_(factored_layout(layout_)), device_(device) {
    float* const means = static_cast<float*>(memory.state("factors"));
    for (const FactoredParameter& f : factored_.parameters) {
      const UnitLayout& unit = layout_.units[static_cast<size_t>(f.unit)];
      const ElementRange own = owned_range(unit, shard_index(layout_, unit, place.at));
      const int64_t begin = std::max(own.begin, f.parameter->offset),
                    end = std::min(own.end, f.parameter->offset + f.parameter->numel);
      AdafactorUpdate u;
      u.rows = f.rows, u.columns = f.columns, u.is_vector = f.is_vector;
      u.row_means = means + f.offset;
      u.column_means = f.is_vector ? nullptr : u.row_means + f.rows;
      u.epsilon1 = static_cast<float>(train.epsilon);
      u.epsilon2 = static_cast<float>(train.adafactor.epsilon2);
      u.threshold = static_cast<float>(train.adafactor.clip_threshold);
      if (begin < end) {
        const int64_t at = unit.shard_offset + begin - own.begin;
        u.begin = begin - f.parameter->offset, u.end = end - f.parameter->offset;
        u.parameters = memory.master + at;
        u.gradients = memory.gradient + at;
      }
      updates_.push_back(u);
    }
  }

  void prepare(const Instruction& i, const Call& call, int64_t step, double, double clip) override {
    if (i.op == InstructionOp::kFactorSums) {
      float* const sums = static_cast<float*>(call.writes[0].data);
      device_.fill(sums, 0, num_bytes(call.writes[0]));
      place_sums(sums);
      return pass(AdafactorPass::kSums);
    }
    CHECK(i.op == InstructionOp::kFactorMeans, "Adafactor has nothing to do at {}", name(i.op));
    float* const squares = static_cast<float*>(call.writes[2].data);
    device_.fill(squares, 0, num_bytes(call.writes[2]));
    for (size_t p = 0; p < updates_.size(); ++p) {
      AdafactorUpdate& u = updates_[p];
      u.update_squares = squares + factored_.parameters[p].first_row;
      u.clip = static_cast<float>(clip);
      u.weight = static_cast<float>(std::pow(static_cast<double>(step), train_.adafactor.beta2_decay));
    }
    pass(AdafactorPass::kMeans);
    pass(AdafactorPass::kSquares);
  }

  void step(int64_t step, double learning_rate, double clip) override {
    for (size_t p = 0; p < updates_.size(); ++p) {
      const bool decays = factored_.parameters[p].parameter->decay;
      updates_[p].clip = static_cast<float>(clip);
      updates_[p].keep = static_cast<float>(decays ? 1 - learning_rate * train_.weight_decay : 1.0);
      updates_[p].rate = static_cast<float>(std::min(learning_rate, 1 / std::sqrt(static_cast<double>(step))));
    }
    pass(AdafactorPass::kScale);
    pass(AdafactorPass::kStep);
  }

 private:
  void place_sums(float* sums) {
    for (size_t p = 0; p < updates_.size(); ++p) {
      const FactoredParameter& f = factored_.parameters[p];
      AdafactorUpdate& u = updates_[p];
      u.row_sums = sums + f.offset;
      u.column_sums = f.is_vector ? nullptr : u.row_sums + f.rows;
      u.squares = sums + factored_.squares_at() + f.first_row;
      u.mean_of_rows = sums + factored_.row_means_at() + static_cast<int64_t>(p);
      u.scale = sums + factored_.scales_at() + static_cast<int64_t>(p);
    }
  }

  void pass(AdafactorPass which) {
    const bool is_of_elements = which != AdafactorPass::kMeans && which != AdafactorPass::kScale;
    for (const AdafactorUpdate& u : updates_)
      if (!is_of_elements || u.begin < u.end) device_.kernels().adafactor(which, u);
  }

  const TrainPlan train_;
  const Layout& layout_;
  const FactoredLayout factored_;
  Device& device_;
  std::vector<AdafactorUpdate> updates_;
};

// --- on the host

// body(row, first element of it, last one) for the rows that the own elements touch, in parallel.
template <class Body>
void each_row(const AdafactorUpdate& u, Body&& body) {
  const int64_t first = u.begin / u.columns, last = (u.end + u.columns - 1) / u.columns;
  parallel_ranges(last - first, 8 * u.columns, [&](int64_t from, int64_t to) {
    for (int64_t row = first + from; row < first + to; ++row)
      body(row, std::max(u.begin, row * u.columns), std::min(u.end, (row + 1) * u.columns));
  });
}

void sums(const AdafactorUpdate& u) {
  each_row(u, [&](int64_t row, int64_t begin, int64_t end) {
    double gradients = 0, parameters = 0;
    for (int64_t i = begin; i < end; ++i) {
      const float g = u.gradients[i - u.begin], p = u.parameters[i - u.begin];
      gradients += static_cast<double>(g) * g;
      parameters += static_cast<double>(p) * p;
    }
    u.row_sums[row] += static_cast<float>(gradients);
    u.squares[row] += static_cast<float>(parameters);
  });
  if (u.is_vector) return;
  const int64_t rows_touched = (u.end - u.begin) / u.columns + 1;
  parallel_ranges(u.columns, 4 * rows_touched, [&](int64_t from, int64_t to) {
    std::vector<double> of_column(static_cast<size_t>(to - from));
    for (int64_t row = u.begin / u.columns; row * u.columns < u.end; ++row) {
      const int64_t begin = std::max(u.begin, row * u.columns + from), end = std::min(u.end, row * u.columns + to);
      for (int64_t i = begin; i < end; ++i) {
        const float g = u.gradients[i - u.begin];
        of_column[static_cast<size_t>(i - row * u.columns - from)] += static_cast<double>(g) * g;
      }
    }
    for (int64_t c = from; c < to; ++c) u.column_sums[c] += static_cast<float>(of_column[static_cast<size_t>(c - from)]);
  });
}

void means(const AdafactorUpdate& u) {
  const float squared_clip = u.clip * u.clip;
  double sum = 0;
  for (int64_t r = 0; r < u.rows; ++r) {
    u.row_means[r] = between(u.row_means[r], u.row_sums[r] * squared_clip / static_cast<float>(u.columns), u.weight);
    sum += u.row_means[r];
  }
  *u.mean_of_rows = static_cast<float>(sum / static_cast<double>(u.rows));
  if (u.is_vector) return;
  for (int64_t c = 0; c < u.columns; ++c)
    u.column_means[c] = between(u.column_means[c], u.column_sums[c] * squared_clip / static_cast<float>(u.rows), u.weight);
}

// What is between the means and the rate: element i of row `row`.
float change(const AdafactorUpdate& u, int64_t row, int64_t i) {
  const float mean =
      u.is_vector ? u.row_means[row] : u.row_means[row] * u.column_means[i - row * u.columns] / std::max(*u.mean_of_rows, u.epsilon1);
  return u.gradients[i - u.begin] * u.clip / std::sqrt(std::max(mean, u.epsilon1 * u.epsilon1));
}

void squares(const AdafactorUpdate& u) {
  each_row(u, [&](int64_t row, int64_t begin, int64_t end) {
    double sum = 0;
    for (int64_t i = begin; i < end; ++i) {
      const float d = change(u, row, i);
      sum += static_cast<double>(d) * d;
    }
    u.update_squares[row] += static_cast<float>(sum);
  });
}

void scale(const AdafactorUpdate& u) {
  double parameters = 0, updates = 0;
  for (int64_t r = 0; r < u.rows; ++r) parameters += u.squares[r], updates += u.update_squares[r];
  const auto n = static_cast<double>(u.rows * u.columns);
  const double rate = std::max(static_cast<double>(u.epsilon2), std::sqrt(parameters / n)) * u.rate;
  *u.scale = static_cast<float>(rate / std::max(1.0, std::sqrt(updates / n) / u.threshold));
}

void step(const AdafactorUpdate& u) {
  each_row(u, [&](int64_t row, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float& p = u.parameters[i - u.begin];
      p = p * u.keep - *u.scale * change(u, row, i);
    }
  });
}

}  // namespace

void adafactor_on_host(AdafactorPass pass, const AdafactorUpdate& update) {
  switch (pass) {
    case AdafactorPass::kSums: return sums(update);
    case AdafactorPass::kMeans: return means(update);
    case AdafactorPass::kSquares: return squares(update);
    case AdafactorPass::kScale: return scale(update);
    case AdafactorPass::kStep: return step(update);
  }
}

std::unique_ptr<Optimizer> make_adafactor(const TrainPlan& train, const OptimizerMemory& memory, const OptimizerPlace& place,
                                          Device& device) {
  CHECK(place.layout != nullptr, "Adafactor needs a layout");
  return std::make_unique<Adafactor>(train, memory, place, device);
}

}  // namespace distsetup
