#include "runtime/generate/next_token.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace distsetup {
namespace {

// Tokens that may be chosen, the likeliest first, with what each counts for: exp((logit - largest) / temperature).
struct Candidates {
  std::vector<int64_t> tokens;
  std::vector<double> weights;
};

Candidates candidates(std::span<const float> logits, const Sampling& sampling) {
  Candidates out;
  out.tokens.resize(logits.size());
  std::iota(out.tokens.begin(), out.tokens.end(), int64_t{0});
  std::stable_sort(out.tokens.begin(), out.tokens.end(),
                   [&](int64_t a, int64_t b) { return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)]; });
  if (sampling.top_k > 0 && sampling.top_k < static_cast<int64_t>(out.tokens.size()))
    out.tokens.resize(static_cast<size_t>(sampling.top_k));
  const double largest = static_cast<double>(logits[static_cast<size_t>(out.tokens.front())]);
  for (const int64_t token : out.tokens)
    out.weights.push_back(std::exp((static_cast<double>(logits[static_cast<size_t>(token)]) - largest) / sampling.temperature));
  return out;
}

void keep_top_p(Candidates& of, double top_p) {
  const double needed = top_p * std::accumulate(of.weights.begin(), of.weights.end(), 0.0);
  double sum = 0;
  size_t kept = 0;
  while (kept < of.weights.size() && (kept == 0 || sum < needed)) sum += of.weights[kept++];
  of.tokens.resize(kept);
  of.weights.resize(kept);
}

}  // namespace

int64_t next_token(std::span<const float> logits, const Sampling& sampling, std::mt19937_64& random) {
  for (const float z : logits)
    if (std::isnan(z)) throw std::domain_error("the model's logits are not numbers");
  if (sampling.temperature <= 0) return std::max_element(logits.begin(), logits.end()) - logits.begin();
  Candidates of = candidates(logits, sampling);
  if (sampling.top_p < 1) keep_top_p(of, sampling.top_p);
  // 53 bits of one draw: std::uniform_real_distribution differs between libraries.
  const double draw = static_cast<double>(random() >> 11) * 0x1p-53;
  double left = draw * std::accumulate(of.weights.begin(), of.weights.end(), 0.0);
  for (size_t i = 0; i < of.tokens.size(); ++i) {
    left -= of.weights[i];
    if (left < 0) return of.tokens[i];
  }
  return of.tokens.back();
}

}  // namespace distsetup
