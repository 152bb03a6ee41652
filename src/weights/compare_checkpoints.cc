// See compare_checkpoints.h.
#include "weights/compare_checkpoints.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <set>

namespace distsetup {
namespace {

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

// The whole parameter in boxes of at most kComparedValues values: stretches of the first dimension in which one row is small enough,
// of single indices before it.
void for_each_piece(const std::vector<int64_t>& shape, const std::function<bool(const Box&)>& visit) {
  size_t d = 0;
  std::vector<int64_t> at(shape.size(), 0);
  const auto row = [&](size_t from) { return product({shape.begin() + static_cast<std::ptrdiff_t>(from) + 1, shape.end()}); };
  while (d + 1 < shape.size() && row(d) > kComparedValues) ++d;
  const int64_t rows = std::max<int64_t>(1, kComparedValues / row(d));
  for (;;) {
    Box box{at, std::vector<int64_t>(shape.size(), 1), 0};
    std::copy(shape.begin() + static_cast<std::ptrdiff_t>(d), shape.end(), box.size.begin() + static_cast<std::ptrdiff_t>(d));
    box.size[d] = std::min(rows, shape[d] - at[d]);
    if (!visit(box)) return;
    at[d] += box.size[d];
    for (size_t k = d; at[k] == shape[k];) {
      if (k == 0) return;
      at[k] = 0;
      ++at[--k];
    }
  }
}

struct Sums {
  double of_squares = 0, of_differences = 0;
};

void add_piece(const std::vector<float>& a, const std::vector<float>& b, ParameterDifference& difference, Sums& sums) {
  for (size_t i = 0; i < a.size(); ++i) {
    sums.of_squares += static_cast<double>(a[i]) * a[i];
    if (std::memcmp(&a[i], &b[i], sizeof(float)) == 0) continue;
    ++difference.num_different;
    const double distance = std::abs(static_cast<double>(a[i]) - b[i]);
    sums.of_differences += distance * distance;
    if (std::isnan(distance) || distance > difference.largest) difference.largest = distance;
  }
}

Diagnostics compare_state(StoredCheckpoint& a, StoredCheckpoint& b, const std::string& parameter, std::string_view state,
                          ParameterDifference& difference) {
  const std::vector<int64_t>& shape = a.index().find(parameter, state)->shape;
  difference.numel = product(shape);
  Diagnostics said;
  Sums sums;
  std::vector<float> of_a, of_b;
  for_each_piece(shape, [&](const Box& box) {
    of_a.resize(static_cast<size_t>(box.numel()));
    of_b.resize(of_a.size());
    said = a.read(parameter, state, box, of_a.data());
    if (!has_error(said)) said = b.read(parameter, state, box, of_b.data());
    if (!has_error(said)) add_piece(of_a, of_b, difference, sums);
    return !has_error(said);
  });
  difference.relative = sums.of_differences == 0 ? 0 : std::sqrt(sums.of_differences) / std::sqrt(sums.of_squares);
  return said;
}

}  // namespace

Result<std::vector<ParameterDifference>> compare_checkpoints(StoredCheckpoint& a, StoredCheckpoint& b) {
  const auto &of_a = a.index().parameters, &of_b = b.index().parameters;
  std::set<std::string> names;
  for (const auto& entry : of_a) names.insert(entry.first);
  for (const auto& entry : of_b) names.insert(entry.first);
  std::vector<ParameterDifference> found;
  for (const std::string& name : names) {
    const auto in_a = of_a.find(name), in_b = of_b.find(name);
    if (in_a == of_a.end() || in_b == of_b.end() || in_a->second.shape != in_b->second.shape) {
      if (in_a != of_a.end()) found.push_back({name, "a", product(in_a->second.shape), 0, 0, 0});
      if (in_b != of_b.end()) found.push_back({name, "b", product(in_b->second.shape), 0, 0, 0});
      continue;
    }
    std::set<std::string> states;
    for (const StoredCheckpoint* one : {&a, &b}) states.insert(one->index().states.begin(), one->index().states.end());
    for (const std::string& state : states) {
      const auto tensor_in = [&](const StoredCheckpoint& one) {
        const std::vector<std::string>& its = one.index().states;
        return std::find(its.begin(), its.end(), state) == its.end() ? nullptr : one.index().find(name, state);
      };
      const StoredParameter *const of_a = tensor_in(a), *const of_b = tensor_in(b);
      if (of_a == nullptr && of_b == nullptr) continue;  // this parameter has no such state
      if (of_a == nullptr || of_b == nullptr || of_a->shape != of_b->shape) {
        if (of_a != nullptr) found.push_back({name + state, "a", product(of_a->shape), 0, 0, 0});
        if (of_b != nullptr) found.push_back({name + state, "b", product(of_b->shape), 0, 0, 0});
        continue;
      }
      ParameterDifference difference;
      difference.name = name + state;
      if (Diagnostics said = compare_state(a, b, name, state, difference); has_error(said)) return said;
      found.push_back(std::move(difference));
    }
  }
  return found;
}

}  // namespace distsetup
