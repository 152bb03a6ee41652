// The CUDA kernels of Adafactor and Muon, run on the CPU (tests/support/cuda_emulation.h), against what the CPU does.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "plan/update_layout.h"
#include "runtime/engine/ops.h"
#include "runtime/optim/adafactor.h"
#include "runtime/optim/muon.h"
#include "runtime/values.h"
#include "support/cuda_emulation.h"

#include "runtime/kernels/cuda/kernels_matrix_optimizers.cu"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

// A stretch of a parameter with all that belongs to it.
struct Part {
  std::vector<float> parameters, gradients, row_sums, column_sums, row_means, column_means, squares, update_squares;
  float mean_of_rows = 0, scale = 0;
  AdafactorUpdate u;

  Part(int64_t rows, int64_t columns, bool is_vector, int64_t begin, int64_t end) {
    parameters = random_values<float>(end - begin, 1);
    row_sums.resize(size_t(rows)), column_sums.resize(size_t(columns));
    row_means.assign(size_t(rows), 0.5f), column_means.assign(size_t(columns), 0.25f);
    squares.resize(size_t(rows)), update_squares.resize(size_t(rows));
    u.begin = begin, u.end = end, u.rows = rows, u.columns = columns, u.is_vector = is_vector;
    u.clip = 0.5f, u.keep = 0.75f, u.weight = 0.25f, u.rate = 0.125f, u.epsilon1 = 1e-3f, u.epsilon2 = 0.25f, u.threshold = 1;
  }
  template <class Update>
  void steps(const Update& update) {
    for (int step = 1; step <= 3; ++step) {
      gradients = random_values<float>(u.end - u.begin, 1 + step);
      for (std::vector<float>* sums : {&row_sums, &column_sums, &squares, &update_squares})
        std::fill(sums->begin(), sums->end(), 0.0f);
      u.parameters = parameters.data(), u.gradients = gradients.data();
      u.row_sums = row_sums.data(), u.row_means = row_means.data();
      u.column_sums = u.is_vector ? nullptr : column_sums.data(), u.column_means = u.is_vector ? nullptr : column_means.data();
      u.squares = squares.data(), u.update_squares = update_squares.data();
      u.mean_of_rows = &mean_of_rows, u.scale = &scale;
      using enum AdafactorPass;
      for (const AdafactorPass pass : {kSums, kMeans, kSquares, kScale, kStep}) update(pass, u);
    }
  }
};

bool are_close(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return std::abs(x - y) <= 1e-5f * std::max(1.0f, std::abs(y)); });
}

TEST_CASE("cuda: Adafactor's passes make what the CPU makes, of whole parameters and of stretches", "[cuda_kernels][all]") {
  struct Shape {
    int64_t rows, columns;
    bool is_vector;
    int64_t begin, end;
  };
  const Shape s = GENERATE(values<Shape>({{7, 300, false, 0, 2100},
                                          {7, 300, false, 450, 1300},
                                          {5, 40, false, 41, 70},
                                          {400, 3, false, 100, 1100},
                                          {900, 1, true, 0, 900},
                                          {900, 1, true, 300, 700}}));
  Part expected(s.rows, s.columns, s.is_vector, s.begin, s.end);
  const std::vector<float> before = expected.parameters;
  expected.steps(adafactor_on_host);
  CHECK(expected.parameters != before);
  for (const bool reversed : {false, true}) {
    cuda_emulation::reversed = reversed;
    Part found(s.rows, s.columns, s.is_vector, s.begin, s.end);
    found.steps([](AdafactorPass pass, const AdafactorUpdate& u) { cuda::adafactor(pass, u, nullptr); });
    CHECK(are_close(found.parameters, expected.parameters));
    CHECK(are_close(found.row_means, expected.row_means));
    CHECK(are_close(found.column_means, expected.column_means));
    CHECK(found.scale == Approx(expected.scale).epsilon(1e-5));
  }
  cuda_emulation::reversed = false;
}

TEST_CASE("cuda: Muon's momentum, norm and step are those of the CPU", "[cuda_kernels]") {
  const int64_t n = GENERATE(1, 255, 40000);
  const std::vector<float> gradients = random_values<float>(n, 1);
  std::vector<float> momenta = random_values<float>(n, 2), momenta2 = momenta;
  std::vector<uint16_t> directions(static_cast<size_t>(n)), directions2(static_cast<size_t>(n));
  MuonMomentum u;
  u.gradients = gradients.data();
  u.n = n;
  u.clip = 0.5f, u.momentum = 0.9375f, u.rest = 0.0625f;
  u.nesterov = n != 255;
  u.momenta = momenta.data(), u.directions = directions.data();
  muon_momentum_on_host(u);
  u.momenta = momenta2.data(), u.directions = directions2.data();
  cuda::muon_momentum(u, nullptr);
  CHECK(momenta2 == momenta);
  CHECK(directions2 == directions);
  std::vector<float> scratch(kNormParts);
  normalize_on_host(directions.data(), n);
  cuda::normalize(directions2.data(), n, scratch.data(), int(kNormParts), nullptr);
  CHECK(directions2 == directions);
  std::vector<float> p = random_values<float>(n, 3), p2 = p;
  DecayedStep step;
  step.directions = gradients.data();
  step.n = n;
  step.keep = 0.75f, step.rate = 0.125f;
  step.parameters = p.data();
  decayed_step_on_host(step);
  step.parameters = p2.data();
  cuda::decayed_step(step, nullptr);
  CHECK(p2 == p);
  CHECK(p != random_values<float>(n, 3));
}

}  // namespace
}  // namespace distsetup
