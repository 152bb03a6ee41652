// A trained model that reads tokens and says what may come next. Runs on one rank, with all parameters, whatever mesh trained them;
// keys and values of earlier tokens are kept, so that a token costs one pass of one row.
//
// The ops are those of the schedule's evaluation, bound for one row and for kPromptRows rows. Three things differ: attention reads the
// kept keys and values, rows of positions begin at the token's, and the loss is left out: the logits before it are the answer.
// CPU only: plans for GPUs generate on the host's cores.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "plan/layout.h"
#include "plan/plan.h"
#include "runtime/checkpoint/checkpoint.h"

namespace distsetup {

class Decoder {
 public:
  static constexpr int64_t kPromptRows = 32;  // tokens of a prompt that are read at once

  // most_tokens: of prompt and answer together. Throws UnsupportedOpError (runtime/engine/bind.h).
  Decoder(const Plan& plan, int64_t most_tokens);
  ~Decoder();

  // What a checkpoint or published weights are read into; there is no optimizer. Then load().
  ShardState state();
  void load();

  // Takes tokens in behind those before. The logits of what follows the last of them: as many as the vocabulary has, valid until
  // the next call. ids: at least one, each in the vocabulary; together with those before at most most_tokens.
  std::span<const float> read(std::span<const int64_t> ids);

  int64_t num_tokens() const;  // read so far
  int64_t vocabulary() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distsetup
