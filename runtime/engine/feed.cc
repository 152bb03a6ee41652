#include "runtime/engine/feed.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "plan/expert_rules.h"

namespace distsetup {

bool is_given_reference(const Schedule& schedule) {
  const bool has_buffer = std::any_of(schedule.buffers.begin(), schedule.buffers.end(),
                                      [](const Buffer& buffer) { return buffer.name == "reference_logps"; });
  return has_buffer && !runs_reference(schedule);
}

int64_t micro_batch_tokens(const OpContext& x) { return x.cp * x.T; }

void check_tokens(const Tokens& tokens, int64_t num_micro_batches, const OpContext& x, bool needs_reference) {
  const int64_t each = micro_batch_tokens(x), expected = num_micro_batches * each;
  const auto outside = [&](std::span<const int64_t> v, int64_t lowest) {
    return std::any_of(v.begin(), v.end(), [&](int64_t t) { return t < lowest || t >= x.vocabulary; });
  };
  if (int64_t(tokens.ids.size()) != expected || int64_t(tokens.targets.size()) != expected) {
    throw std::invalid_argument(fmt::format("{} ids and {} targets, expected {} micro-batches of {} tokens", tokens.ids.size(),
                                            tokens.targets.size(), num_micro_batches, each));
  }
  if (needs_reference && int64_t(tokens.reference_logps.size()) != num_micro_batches * x.B)
    throw std::invalid_argument(fmt::format("{} log-probabilities of the reference, expected those of {} sequences",
                                            tokens.reference_logps.size(), num_micro_batches * x.B));
  if (outside(tokens.ids, 0) || outside(tokens.targets, -1))
    throw std::invalid_argument(fmt::format("a token outside the vocabulary of {}", x.vocabulary));
  if (!x.packed) return;
  if (int64_t(tokens.positions.size()) != expected)
    throw std::invalid_argument(fmt::format("{} positions of packed rows, expected {}", tokens.positions.size(), expected));
  const int64_t length = x.cp * x.S;
  for (int64_t t = 0; t < expected; ++t) {
    const int64_t p = tokens.positions[size_t(t)];
    if (p != 0 && (t % length == 0 || p != tokens.positions[size_t(t - 1)] + 1))
      throw std::invalid_argument(fmt::format("token {} has position {}, which does not follow the one before it", t, p));
  }
}

void set_loss_scales(double of_token, double of_router, const RankMemory& memory, Device& device) {
  device.copy_to_device(memory.run("loss_scale"), &of_token, sizeof(double));
  if (memory.has_run(std::string(kRouterScale)))
    device.copy_to_device(memory.run(std::string(kRouterScale)), &of_router, sizeof(double));
}

double router_share(const Plan& plan) {
  return 1.0 / double(plan.gradient_accumulation * group_size(plan.mesh, token_group(plan.mesh)));
}

namespace {

// Where documents begin among the tokens of a micro-batch, and where the last one ends.
void fill_starts(std::span<const int64_t> positions, std::vector<int64_t>& starts) {
  starts.clear();
  for (size_t t = 0; t < positions.size(); ++t)
    if (positions[t] == 0) starts.push_back(int64_t(t));
  starts.push_back(int64_t(positions.size()));
}

}  // namespace

void feed(const Tokens& tokens, int64_t micro_batch, const OpContext& x, const RankMemory& memory, Device& device,
          std::vector<int64_t>& own, std::vector<int64_t>& documents) {
  const Positions positions = positions_of(x);
  for (const auto& [name, all] : {std::pair{"ids", tokens.ids}, {"targets", tokens.targets}, {"positions", tokens.positions}}) {
    if (!memory.has_run(name)) continue;
    const int64_t* from = all.data() + micro_batch * micro_batch_tokens(x);
    if (x.cp > 1) {
      own.resize(size_t(x.T));
      for (int64_t t = 0; t < x.T; ++t) own[size_t(t)] = from[t / x.S * x.cp * x.S + positions.at(t % x.S)];
      from = own.data();
    }
    device.copy_to_device(memory.run(name), from, x.T * 8);
  }
  if (memory.has_run("reference_logps") && !tokens.reference_logps.empty())
    device.copy_to_device(memory.run("reference_logps"), tokens.reference_logps.data() + micro_batch * x.B, x.B * 4);
  if (!memory.has_run("cu_seqlens")) return;
  const int64_t all = micro_batch_tokens(x);
  fill_starts(tokens.positions.subspan(size_t(micro_batch * all), size_t(all)), documents);
  own = documents;
  own.resize(size_t(all) + 1, all);  // behind the last one the number of tokens
  device.copy_to_device(memory.run("cu_seqlens"), own.data(), int64_t(own.size()) * 8);
}

}  // namespace distsetup
