#include "plan/pipeline.h"

#include <algorithm>

#include "base/check.h"

namespace distsetup {

std::vector<int64_t> layers_per_chunk(int64_t num_layers, int64_t num_chunks) {
  std::vector<int64_t> layers(static_cast<size_t>(num_chunks), num_layers / num_chunks);
  const int64_t rest = num_layers % num_chunks;
  if (rest == 0 || num_chunks == 1) return layers;
  const int64_t missing = num_chunks - rest;  // 1: the head takes a layer's place; 2: the embedding too
  if (missing <= 2) {
    for (int64_t& n : layers) ++n;
    --layers.back();
    if (missing == 2) --layers.front();
    return layers;
  }
  for (int64_t i = 0; i < rest; ++i) ++layers[static_cast<size_t>((num_chunks - rest) / 2 + i)];
  return layers;
}

std::vector<UnitSpan> stage_chunks(int64_t num_layers, int stages, int chunks_per_stage, int stage) {
  const std::vector<int64_t> layers = layers_per_chunk(num_layers, int64_t{stages} * chunks_per_stage);
  std::vector<UnitSpan> chunks;
  int next = 0;
  for (int c = 0; c < static_cast<int>(layers.size()); ++c) {
    const int extra = (c == 0 ? 1 : 0) + (c + 1 == static_cast<int>(layers.size()) ? 1 : 0);
    const int end = next + static_cast<int>(layers[static_cast<size_t>(c)]) + extra;
    if (c % stages == stage) chunks.push_back({next, end - 1});
    next = end;
  }
  return chunks;
}

int64_t pipeline_rounds(int stages, int64_t micro_batches) { return std::max<int64_t>(1, micro_batches / stages); }

std::vector<PipelineAction> pipeline_order(int stages, int chunks_per_stage, int64_t micro_batches, int stage) {
  const int64_t total = micro_batches * chunks_per_stage, behind = stages - 1 - stage;
  const int64_t rounds = pipeline_rounds(stages, micro_batches), per_round = micro_batches / rounds;
  CHECK(chunks_per_stage == 1 || micro_batches % rounds == 0, "{} micro-batches in {} rounds", micro_batches, rounds);
  const int64_t warm_up = std::min(total, chunks_per_stage == 1 ? behind : (chunks_per_stage - 1) * per_round + 2 * behind);
  std::vector<int> forwards(static_cast<size_t>(chunks_per_stage)), backwards = forwards;  // done, per chunk
  std::vector<PipelineAction> order;
  const auto forward = [&](int64_t n) {
    const int chunk = chunks_per_stage == 1 ? 0 : static_cast<int>(n / per_round % chunks_per_stage);
    order.push_back({true, chunk, forwards[static_cast<size_t>(chunk)]++});
  };
  const auto backward = [&](int64_t n) {
    const int chunk = chunks_per_stage == 1 ? 0 : chunks_per_stage - 1 - static_cast<int>(n / per_round % chunks_per_stage);
    order.push_back({false, chunk, backwards[static_cast<size_t>(chunk)]++});
  };
  for (int64_t n = 0; n < warm_up; ++n) forward(n);
  for (int64_t n = warm_up; n < total; ++n) {
    forward(n);
    backward(n - warm_up);
  }
  for (int64_t n = total - warm_up; n < total; ++n) backward(n);
  return order;
}

std::vector<int> most_in_flight(const std::vector<PipelineAction>& order, int num_chunks) {
  std::vector<int> now(static_cast<size_t>(num_chunks)), most = now;
  for (const PipelineAction& a : order) {
    const auto c = static_cast<size_t>(a.chunk);
    now[c] += a.is_forward ? 1 : -1;
    most[c] = std::max(most[c], now[c]);
  }
  return most;
}

}  // namespace distsetup
