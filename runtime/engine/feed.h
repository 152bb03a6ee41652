// Tokens on their way to a rank's programs.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/engine/bind.h"

namespace distsetup {

// Of whole sequences, one micro-batch after the other. positions: of each token in its document, where sequences are packed.
struct Tokens {
  std::span<const int64_t> ids, targets, positions;
  std::span<const float> reference_logps;  // of each sequence, where programs read them
};
// Do log-probabilities of the reference come with the tokens? Not where it runs in the list.
bool is_given_reference(const Schedule& schedule);
// Of a micro-batch, of the ranks that share its sequences together.
int64_t micro_batch_tokens(const OpContext& context);
// Throws std::invalid_argument where there are not so many micro-batches (`needs_reference`: nor so many log-probabilities), a token
// is outside of the vocabulary, or a position does not follow the one before it.
void check_tokens(const Tokens& tokens, int64_t num_micro_batches, const OpContext& context, bool needs_reference);
// What losses are multiplied by: that of each token, and the load-balancing loss of a micro-batch, if the model has one.
void set_loss_scales(double of_token, double of_router, const RankMemory& memory, Device& device);
double router_share(const Plan& plan);  // 1 / micro-batches of all ranks
// Copies this rank's tokens of one micro-batch to the run buffers ids and targets, where documents lie to positions and cu_seqlens,
// and, where it is given, what the reference makes of its sequences. `own` is scratch, `documents` OpContext::documents.
void feed(const Tokens& tokens, int64_t micro_batch, const OpContext& context, const RankMemory& memory, Device& device,
          std::vector<int64_t>& own, std::vector<int64_t>& documents);

}  // namespace distsetup
