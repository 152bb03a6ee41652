#include "runtime/kernels/cpu/experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "runtime/kernels/cpu/bf16.h"
#include "runtime/kernels/cpu/isa.h"

namespace distsetup::cpu {
namespace {

// Scratch of a thread, grown once.
float* scratch(int which, int64_t n) {
  thread_local std::vector<float> memory[3];
  if (int64_t(memory[which].size()) < n) memory[which].resize(size_t(n));
  return memory[which].data();
}

// Of a row of logits: softmax or sigmoid.
template <class E>
void scores_of(const E* logits, float* scores, int64_t n, RouterScore score) {
  if (score == RouterScore::kSigmoid) {
    for (int64_t e = 0; e < n; ++e) scores[e] = 1.0f / (1.0f + std::exp(-to_float(logits[e])));
    return;
  }
  float largest = to_float(logits[0]);
  for (int64_t e = 1; e < n; ++e) largest = std::max(largest, to_float(logits[e]));
  float sum = 0;
  for (int64_t e = 0; e < n; ++e) sum += scores[e] = std::exp(to_float(logits[e]) - largest);
  for (int64_t e = 0; e < n; ++e) scores[e] /= sum;
}

constexpr float kTaken = -INFINITY;

// The index of the largest of n values that is not taken, the first of equal ones. Not a number: never larger.
int64_t best_of(const float* values, int64_t n) {
  int64_t best = -1;
  for (int64_t i = 0; i < n; ++i)
    if (values[i] != kTaken && (best < 0 || values[i] > values[best])) best = i;
  return best < 0 ? 0 : best;
}

float group_score(const float* values, int64_t n, RouterScore score) {
  float first = kTaken, second = kTaken;
  for (int64_t i = 0; i < n; ++i) {
    if (values[i] > first)
      second = first, first = values[i];
    else if (values[i] > second)
      second = values[i];
  }
  return score == RouterScore::kSoftmax || n == 1 ? first : first + second;
}

// Takes the experts of all but the best groups out of the choice.
void leave_groups_out(float* values, const Router& r) {
  const int64_t each = r.num_experts / r.groups;
  float* of_group = scratch(2, 2 * r.groups);
  float* is_chosen = of_group + r.groups;
  for (int64_t g = 0; g < r.groups; ++g) of_group[g] = group_score(values + g * each, each, r.score), is_chosen[g] = 0;
  for (int64_t i = 0; i < r.groups_chosen; ++i) {
    const int64_t g = best_of(of_group, r.groups);
    of_group[g] = kTaken, is_chosen[g] = 1;
  }
  for (int64_t g = 0; g < r.groups; ++g)
    if (is_chosen[g] == 0) std::fill_n(values + g * each, each, kTaken);
}

constexpr float kSmallest = 1e-20f;  // beside the sum of sigmoids, as DeepSeek adds it

float sum_of_chosen(const float* scores, const int64_t* choice, const Router& r) {
  float sum = r.score == RouterScore::kSigmoid ? kSmallest : 0;
  for (int64_t j = 0; j < r.k; ++j) sum += scores[choice[j]];
  return sum;
}

}  // namespace

template <class E>
void route(const E* logits, const E* bias, float* weights, int64_t* choice, int64_t T, const Router& r) {
  float *scores = scratch(0, r.num_experts), *values = scratch(1, r.num_experts);
  for (int64_t t = 0; t < T; ++t, logits += r.num_experts, weights += r.k, choice += r.k) {
    scores_of(logits, scores, r.num_experts, r.score);
    for (int64_t e = 0; e < r.num_experts; ++e) values[e] = scores[e] + (bias == nullptr ? 0.0f : to_float(bias[e]));
    if (r.groups > 1) leave_groups_out(values, r);
    for (int64_t j = 0; j < r.k; ++j) {
      choice[j] = best_of(values, r.num_experts);
      values[choice[j]] = kTaken;
    }
    const float factor = r.normalized ? r.scaling / sum_of_chosen(scores, choice, r) : r.scaling;
    for (int64_t j = 0; j < r.k; ++j) weights[j] = scores[choice[j]] * factor;
  }
}

// With s the scores, C the chosen ones, w = c · s / S where S is 1 or the sum over C:
//   ds = c / S · (dw - [normalized] Σ_C dw · s / S),  softmax: dl = s · (ds - Σ_C ds · s),  sigmoid: dl = s · (1 - s) · ds.
// Weights that are divided by their sum do not depend on what is not chosen: there the second sum is exactly zero.
template <class E>
void route_backward(const float* dweights, const E* logits, const int64_t* choice, const E* before, E* dlogits, int64_t T,
                    const Router& r) {
  float *scores = scratch(0, r.num_experts), *d = scratch(1, r.num_experts);
  for (int64_t t = 0; t < T; ++t) {
    scores_of(logits, scores, r.num_experts, r.score);
    std::fill_n(d, r.num_experts, 0.0f);
    const float sum = r.normalized ? sum_of_chosen(scores, choice, r) : 1;
    float mean = 0;
    if (r.normalized)
      for (int64_t j = 0; j < r.k; ++j) mean += dweights[j] * (scores[choice[j]] / sum);
    float inner = 0;
    for (int64_t j = 0; j < r.k; ++j) {
      d[choice[j]] = r.scaling / sum * (dweights[j] - mean);
      inner += d[choice[j]] * scores[choice[j]];
    }
    if (r.normalized) inner = 0;
    for (int64_t e = 0; e < r.num_experts; ++e) {
      const float slope = r.score == RouterScore::kSigmoid ? scores[e] * (1 - scores[e]) * d[e] : scores[e] * (d[e] - inner);
      from_float(slope + (before == nullptr ? 0.0f : to_float(before[e])), dlogits + e);
    }
    dweights += r.k, choice += r.k, logits += r.num_experts, dlogits += r.num_experts;
    if (before != nullptr) before += r.num_experts;
  }
}

template <class E>
void count_above_share(const int64_t* choice, E* above, int64_t N, int64_t num_experts, bool accumulate) {
  float* counts = scratch(0, num_experts);
  std::fill_n(counts, num_experts, -float(double(N) / double(num_experts)));
  for (int64_t i = 0; i < N; ++i) counts[choice[i]] += 1;
  for (int64_t e = 0; e < num_experts; ++e) from_float(counts[e] + (accumulate ? to_float(above[e]) : 0.0f), above + e);
}

void sort_experts(const int64_t* choice, int64_t* order, int64_t* place, int64_t* starts, int64_t N, int64_t num_experts, int64_t most,
                  int64_t R) {
  // place counts what each expert has been given before, and then becomes the row.
  std::fill_n(starts, num_experts + 1, 0);
  for (int64_t i = 0; i < N; ++i) place[i] = starts[choice[i] + 1]++;
  for (int64_t e = 0; e < num_experts; ++e) starts[e + 1] = starts[e] + std::min(starts[e + 1], most);
  for (int64_t i = 0; i < N; ++i) {
    place[i] = place[i] < most ? starts[choice[i]] + place[i] : -1;
    if (place[i] >= 0) order[place[i]] = i;
  }
  std::fill(order + starts[num_experts], order + R, -1);
}

template <class E>
void permute(const E* x, const int64_t* order, E* y, int64_t begin, int64_t end, int64_t H, int64_t k) {
  for (int64_t i = begin; i < end; ++i)
    if (order[i] >= 0) std::memcpy(y + i * H, x + order[i] / k * H, size_t(H) * sizeof(E));
}

template <class E>
DISTSETUP_KERNEL void unpermute(const E* rows, const int64_t* place, const E* addend, E* y, int64_t begin, int64_t end, int64_t H,
                                int64_t k) {
  constexpr int64_t kMost = 64;
  int64_t sorted[kMost];
  alignas(64) float sums[kTile], tile[kTile];
  for (int64_t t = begin; t < end; ++t) {
    int64_t num = 0;
    for (int64_t j = 0; j < k; ++j) {  // by insertion: k is small
      const int64_t row = place[t * k + j];
      if (row < 0) continue;
      int64_t at = num++;
      for (; at > 0 && sorted[at - 1] > row; --at) sorted[at] = sorted[at - 1];
      sorted[at] = row;
    }
    for (int64_t c = 0; c < H; c += kTile) {
      const int64_t n = H - c < kTile ? H - c : kTile;
      for (int64_t i = 0; i < n; ++i) sums[i] = 0;
      for (int64_t j = 0; j < num; ++j) {
        const float* row = in_tile(rows + sorted[j] * H + c, tile, n);
        for (int64_t i = 0; i < n; ++i) sums[i] += row[i];
      }
      if (addend != nullptr) {
        const float* row = in_tile(addend + t * H + c, tile, n);
        for (int64_t i = 0; i < n; ++i) sums[i] += row[i];
      }
      put(sums, y + t * H + c, n);
    }
  }
}

template <class E>
DISTSETUP_KERNEL void scale_row(const E* x, float factor, E* y, int64_t n) {
  alignas(64) float xs[kTile], ys[kTile];
  for (int64_t j = 0; j < n; j += kTile) {
    const int64_t m = n - j < kTile ? n - j : kTile;
    const float* a = in_tile(x + j, xs, m);
    for (int64_t i = 0; i < m; ++i) ys[i] = a[i] * factor;
    put(ys, y + j, m);
  }
}

template <class E>
DISTSETUP_KERNEL float dot(const E* a, const E* b, int64_t n) {
  alignas(64) float as[kTile], bs[kTile];
  float sum = 0;
  for (int64_t j = 0; j < n; j += kTile) {
    const int64_t m = n - j < kTile ? n - j : kTile;
    const float *x = in_tile(a + j, as, m), *y = in_tile(b + j, bs, m);
    for (int64_t i = 0; i < m; ++i) sum += x[i] * y[i];
  }
  return sum;
}

template <class E>
void count_routes(const E* logits, const int64_t* choice, double* sums, int64_t T, int64_t num_experts, int64_t k) {
  float* p = scratch(0, num_experts);
  for (int64_t t = 0; t < T; ++t, logits += num_experts, choice += k) {
    scores_of(logits, p, num_experts, RouterScore::kSoftmax);
    for (int64_t j = 0; j < k; ++j) sums[choice[j]] += 1;
    for (int64_t e = 0; e < num_experts; ++e) sums[num_experts + e] += double(p[e]);
  }
}

namespace {

// Rows that count_routes has seen, of all layers.
double rows_of(const double* sums, int64_t num_experts, int64_t k) {
  double choices = 0;
  for (int64_t e = 0; e < num_experts; ++e) choices += sums[e];
  return choices / double(k);
}

}  // namespace

double balance_loss(const double* sums, int64_t num_experts, int64_t k, double factor) {
  const double rows = rows_of(sums, num_experts, k);
  double total = 0;
  for (int64_t e = 0; e < num_experts; ++e) total += sums[e] / rows * (sums[num_experts + e] / rows);
  return factor * double(num_experts) * total;
}

template <class E>
void balance_backward(const E* logits, const double* sums, const E* before, E* dlogits, int64_t T, int64_t num_experts, int64_t k,
                      double factor) {
  float *p = scratch(0, num_experts), *slope = scratch(1, num_experts);
  const double rows = rows_of(sums, num_experts, k);
  for (int64_t e = 0; e < num_experts; ++e) slope[e] = float(factor * double(num_experts) * sums[e] / rows / rows);
  for (int64_t t = 0; t < T; ++t, logits += num_experts, dlogits += num_experts) {
    scores_of(logits, p, num_experts, RouterScore::kSoftmax);
    float inner = 0;
    for (int64_t e = 0; e < num_experts; ++e) inner += p[e] * slope[e];
    for (int64_t e = 0; e < num_experts; ++e)
      from_float(p[e] * (slope[e] - inner) + (before == nullptr ? 0.0f : to_float(before[e])), dlogits + e);
    if (before != nullptr) before += num_experts;
  }
}

namespace {

// p: the softmax of a row.
template <class E>
float log_sum_exp(const E* logits, float* p, int64_t num_experts) {
  scores_of(logits, p, num_experts, RouterScore::kSoftmax);
  const float* likeliest = std::max_element(p, p + num_experts);
  return to_float(logits[likeliest - p]) - std::log(*likeliest);
}

}  // namespace

template <class E>
double router_z_loss(const E* logits, int64_t T, int64_t num_experts, double factor) {
  float* p = scratch(0, num_experts);
  double sum = 0;
  for (int64_t t = 0; t < T; ++t) {
    const double z = log_sum_exp(logits + t * num_experts, p, num_experts);
    sum += z * z;
  }
  return factor * sum / double(T);
}

template <class E>
void router_z_loss_backward(const E* logits, const E* before, E* dlogits, int64_t T, int64_t num_experts, int64_t of, double factor) {
  float* p = scratch(0, num_experts);
  for (int64_t t = 0; t < T; ++t, logits += num_experts, dlogits += num_experts) {
    const auto slope = float(2 * factor / double(of) * double(log_sum_exp(logits, p, num_experts)));
    for (int64_t e = 0; e < num_experts; ++e) from_float(p[e] * slope + (before == nullptr ? 0.0f : to_float(before[e])), dlogits + e);
    if (before != nullptr) before += num_experts;
  }
}

#define DISTSETUP_INSTANTIATE(E)                                                                              \
  template void route(const E*, const E*, float*, int64_t*, int64_t, const Router&);                          \
  template void route_backward(const float*, const E*, const int64_t*, const E*, E*, int64_t, const Router&); \
  template void count_above_share(const int64_t*, E*, int64_t, int64_t, bool);                                \
  template void permute(const E*, const int64_t*, E*, int64_t, int64_t, int64_t, int64_t);                    \
  template void unpermute(const E*, const int64_t*, const E*, E*, int64_t, int64_t, int64_t, int64_t);        \
  template void scale_row(const E*, float, E*, int64_t);                                                      \
  template float dot(const E*, const E*, int64_t);                                                            \
  template void count_routes(const E*, const int64_t*, double*, int64_t, int64_t, int64_t);                   \
  template double router_z_loss(const E*, int64_t, int64_t, double);                                          \
  template void router_z_loss_backward(const E*, const E*, E*, int64_t, int64_t, int64_t, double);            \
  template void balance_backward(const E*, const double*, const E*, E*, int64_t, int64_t, int64_t, double);
DISTSETUP_INSTANTIATE(float)
DISTSETUP_INSTANTIATE(Bf16)
DISTSETUP_INSTANTIATE(F16)
#undef DISTSETUP_INSTANTIATE

}  // namespace distsetup::cpu
