#include "plan/chunked_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "plan/native_program.h"
#include "plan/plan.h"

namespace distsetup {
namespace {

// As chunk_begin() cuts them.
std::string rows_of(int chunk, int chunks) {
  const std::string end = fmt::format("ceil_div({}*T,{})", chunk + 1, chunks);
  return chunk == 0 ? end : fmt::format("({}-ceil_div({}*T,{}))", end, chunk, chunks);
}

// An expression with `rows` for each T.
std::string with_rows(const std::string& expression, const std::string& rows) {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  std::string out;
  for (size_t i = 0; i < expression.size(); ++i) {
    const bool stands_alone =
        expression[i] == 'T' && (i == 0 || !is_word(expression[i - 1])) && (i + 1 == expression.size() || !is_word(expression[i + 1]));
    out += stands_alone ? rows : std::string(1, expression[i]);
  }
  return out;
}

}  // namespace

void cut_into_chunks(Program& head, int chunks) {
  std::set<std::string> logits, made;
  for (const TensorDecl& t : head.tensors)
    if (t.logits) logits.insert(t.name);
  const auto touches_logits = [&](const Op& op) {
    const auto is_one = [&](const std::string& name) { return logits.contains(name); };
    return std::any_of(op.reads.begin(), op.reads.end(), is_one) || std::any_of(op.writes.begin(), op.writes.end(), is_one);
  };
  const auto first = std::find_if(head.forward.begin(), head.forward.end(), touches_logits);
  const auto last = std::find_if(head.forward.rbegin(), head.forward.rend(), touches_logits).base();
  const std::vector<Op> whole(first, last), behind(last, head.forward.end());
  head.forward.erase(first, head.forward.end());
  for (const Op& op : whole)
    for (const std::string& w : op.writes)
      if (std::find(head.inputs.begin(), head.inputs.end(), w) == head.inputs.end()) made.insert(w);

  std::vector<TensorDecl> once;
  for (auto t = head.tensors.begin(); t != head.tensors.end();) {
    if (made.contains(t->name)) once.push_back(*t);
    t = made.contains(t->name) ? head.tensors.erase(t) : t + 1;
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const std::string rows = rows_of(chunk, chunks);
    const auto of_chunk = [&](std::string& name) {
      if (made.contains(name)) name += fmt::format("_{}", chunk);
    };
    for (TensorDecl t : once) {
      of_chunk(t.name);
      for (std::string& size : t.shape) size = with_rows(size, rows);
      head.tensors.push_back(std::move(t));
    }
    for (Op op : whole) {
      op.name += fmt::format("_{}", chunk);
      for (std::string& r : op.reads) of_chunk(r);
      for (std::string& w : op.writes) of_chunk(w);
      op.flops = with_rows(op.flops, rows);
      op.chunk = chunk;
      op.chunks = chunks;
      head.forward.push_back(std::move(op));
    }
  }
  head.forward.insert(head.forward.end(), behind.begin(), behind.end());
}

std::string chunked_loss_problem(const Plan& plan) {
  if (plan.strategy.loss_head == kWholeLoss) return "";
  if (plan.strategy.loss_head != kChunkedLoss)
    return fmt::format("the native trainer makes the loss of all logits at once (eager) or chunk by chunk (chunked), not '{}'",
                       plan.strategy.loss_head);
  if (learns_preferences(plan.train))
    return "a preference pair's loss needs the log-probabilities of whole sequences before any gradient: chunk by chunk the logits "
           "would be made twice, which the native trainer does not do";
  const int64_t tokens = native_symbols(plan.model, plan.micro_batch, plan.train.sequence_length, split_of(plan)).at("T");
  if (tokens < kLossChunks) return fmt::format("a micro-batch has {} tokens on a rank, which makes no {} chunks", tokens, kLossChunks);
  return "";
}

}  // namespace distsetup
