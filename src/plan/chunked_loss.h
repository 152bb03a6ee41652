// The head's product and its loss by chunks of rows, so that the logits of a whole micro-batch never exist (trainer.loss_head:
// chunked). What leads from the head's last norm to the loss is in the program once for each chunk; its ops (Op::chunk) see the rows
// of that chunk in tensors that have all rows. In training they run in the head's backward, each chunk's gradients right behind its
// loss: what comes of the logits is needed no longer when the next chunk begins. The gradient of the matrix adds up over the chunks,
// in the compute type as it is held; in fp32 the sums are those of other chunks of a product, in bf16 each chunk's is rounded.
#pragma once
#include <string>
#include <string_view>

#include "plan/program.h"

namespace distsetup {

struct Plan;

inline constexpr std::string_view kWholeLoss = "eager", kChunkedLoss = "chunked";  // of StrategyPlan::loss_head
inline constexpr int kLossChunks = 8;  // torchtune's and torchtitan's number: an eighth of the logits is less than a block's tensors

// Of a program's forward, before its backward is added: the ops from the first that writes logits to the last that reads some.
void cut_into_chunks(Program& head, int chunks);

// "" or why the trainer cannot make the loss of such a plan chunk by chunk.
std::string chunked_loss_problem(const Plan& plan);

}  // namespace distsetup
