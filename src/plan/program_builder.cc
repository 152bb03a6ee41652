#include "plan/program_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/chunked_loss.h"
#include "plan/kernel_table.h"
#include "plan/native_program.h"

namespace distsetup {

void ProgramBuilder::add(Op op) {
  if (!problem_.empty()) return;
  const KernelRule* rule = find_kernel(op.kernel);
  if (rule == nullptr) return fail(fmt::format("op '{}': there is no kernel '{}'", op.name, op.kernel));
  const bool reads_right = rule->num_reads == kAnyNumber ? !op.reads.empty() : op.reads.size() == rule->num_reads;
  if (!reads_right || op.writes.size() != rule->num_writes)
    return fail(fmt::format("op '{}': kernel '{}' reads {} and writes {} operands, found {} and {}", op.name, op.kernel,
                            rule->num_reads, rule->num_writes, op.reads.size(), op.writes.size()));
  op.kind = rule->kind;
  op.over = rule->over;
  if (is_communication(op.kind) && op.group == Group::kSelf) op.group = Group::kTp;
  for (const std::string& r : op.reads) (void)shape(r);
  if (!problem_.empty()) return;
  rule->declare(op, *this);
  if (rule->flops != nullptr) op.flops = rule->flops(op, *this);
  program_.forward.push_back(std::move(op));
}

std::string ProgramBuilder::finish(int loss_chunks) {
  if (problem_.empty() && loss_chunks > 1) cut_into_chunks(program_, loss_chunks);
  if (problem_.empty() && program_.kind != UnitKind::kHead) {
    declare("dy", shape("y"));
    set_gradient("y", "dy");
  }
  for (auto op = program_.forward.rbegin(); problem_.empty() && op != program_.forward.rend();) {
    if (!is_of_chunk(*op)) {
      find_kernel(op->kernel)->adjoint(*op, *this);
      ++op;
      continue;
    }
    const auto before = std::find_if(op, program_.forward.rend(), [](const Op& o) { return !is_of_chunk(o); });
    turn_round({before.base(), op.base()});
    op = before;
  }
  if (problem_.empty() && program_.kind != UnitKind::kEmbedding && gradient("x") != "dx")
    fail(fmt::format("the gradient of x ends in '{}', expected an op that writes it", gradient("x")));
  return problem_;
}

// Chunk by chunk: its ops, and then their adjoints. The gradient of what has the rows of all chunks is begun by each for its own rows.
void ProgramBuilder::turn_round(const std::vector<Op>& ops) {
  const std::map<std::string, std::string> gradients_before = gradients_;
  for (int chunk = 0; chunk < ops.front().chunks; ++chunk) {
    const size_t begin = program_.backward.size();
    gradients_ = gradients_before;
    for (const Op& op : ops)
      if (op.chunk == chunk) backward(op);
    for (auto op = ops.rbegin(); problem_.empty() && op != ops.rend(); ++op)
      if (op->chunk == chunk) find_kernel(op->kernel)->adjoint(*op, *this);
    for (size_t i = begin; i < program_.backward.size(); ++i) {
      program_.backward[i].chunk = chunk;
      program_.backward[i].chunks = ops.front().chunks;
    }
  }
}

bool ProgramBuilder::has(const std::string& tensor) const {
  return std::any_of(program_.tensors.begin(), program_.tensors.end(), [&](const TensorDecl& t) { return t.name == tensor; });
}

const Op* ProgramBuilder::writer(const std::string& tensor) const {
  for (const Op& op : program_.forward)
    if (std::find(op.writes.begin(), op.writes.end(), tensor) != op.writes.end()) return &op;
  return nullptr;
}

const std::vector<std::string>& ProgramBuilder::shape(const std::string& name) {
  static const std::vector<std::string> kTokens = {"T"}, kScalar = {"1"}, kNone;
  if (name.starts_with("p:")) {
    const auto slot = slots_.find(name.substr(2));
    if (slot != slots_.end()) return slot->second.shape;
    fail(fmt::format("nothing has the slot '{}'", name.substr(2)));
    return kNone;
  }
  for (const TensorDecl& t : program_.tensors)
    if (t.name == name) return t.shape;
  const std::span<const std::string_view> inputs = program_inputs();
  if (std::find(inputs.begin(), inputs.end(), name) != inputs.end()) {
    if (std::find(program_.inputs.begin(), program_.inputs.end(), name) == program_.inputs.end()) program_.inputs.push_back(name);
    return is_fed(name) ? kTokens : kScalar;
  }
  fail(fmt::format("nothing writes '{}', which an op reads", name));
  return kNone;
}

int ProgramBuilder::split(const std::string& slot) {
  (void)shape(slot);  // says where there is none
  const auto found = slots_.find(slot.substr(2));
  return found == slots_.end() ? -1 : found->second.split;
}

const std::string& ProgramBuilder::rows_each(const std::string& slot) {
  static const std::string kNone;
  (void)shape(slot);  // says where there is none
  const auto found = slots_.find(slot.substr(2));
  const bool is_stack = found != slots_.end() && !found->second.rows_each.empty();
  if (!is_stack) fail(fmt::format("'{}' is no stack of experts' matrices", slot));
  return is_stack ? found->second.rows_each : kNone;
}

Dtype ProgramBuilder::dtype(const std::string& tensor) const {
  for (const TensorDecl& t : program_.tensors)
    if (t.name == tensor) return t.dtype;
  return Dtype::kCompute;
}

void ProgramBuilder::declare(const std::string& tensor, std::vector<std::string> shape, Dtype dtype) {
  if (!has(tensor)) program_.tensors.push_back({tensor, std::move(shape), dtype, false, false});
}

void ProgramBuilder::mark_passing(const std::string& tensor) {
  for (TensorDecl& t : program_.tensors)
    if (t.name == tensor) t.is_passing = true;
}

void ProgramBuilder::mark_logits(const std::string& tensor) {
  for (TensorDecl& t : program_.tensors)
    if (t.name == tensor) t.logits = true;
}

std::string ProgramBuilder::gradient(const std::string& tensor) const {
  const auto found = gradients_.find(tensor);
  return found == gradients_.end() ? "" : found->second;
}

std::string ProgramBuilder::incoming(const std::string& tensor) {
  const std::string found = gradient(tensor);
  if (found.empty()) fail(fmt::format("no op after it reads '{}': it has no gradient", tensor));
  return found;
}

std::string ProgramBuilder::target(const std::string& tensor) {
  declare("d" + tensor, shape(tensor), dtype(tensor));
  return gradients_[tensor] = "d" + tensor;
}

void ProgramBuilder::pass(const Op& op, const std::string& tensor, const std::string& gradient) {
  const std::string before = this->gradient(tensor);
  if (before.empty()) return set_gradient(tensor, gradient);
  Op sum;
  sum.name = fmt::format("{}_{}_sum", op.name, tensor);
  sum.kernel = "add";
  sum.reads = {before, gradient};
  sum.writes = {target(tensor)};
  sum.over = {{0, 0}, {0, 1}};
  backward(std::move(sum));
}

std::string ProgramBuilder::scratch(const Op& op, std::vector<std::string> shape) {
  const std::string name = "ws_" + op.name;
  declare(name, std::move(shape), Dtype::kF32);
  return name;
}

Op adjoint_op(const Op& of, std::string_view suffix, OpKind kind, std::string kernel, std::vector<std::string> reads,
              std::vector<std::string> writes, std::vector<Overlay> over, std::string flops) {
  return {of.name + std::string(suffix),
          kind,
          std::move(kernel),
          std::move(reads),
          std::move(writes),
          std::move(over),
          std::move(flops),
          Group::kSelf,
          of.attributes};
}

std::string gradient_slot(std::string_view parameter) { return "g:" + std::string(parameter.substr(2)); }

std::string product_of(const std::vector<std::string>& factors) {
  std::string text;
  for (const std::string& f : factors) {
    const bool is_sum = f.find_first_of("+-/") != std::string::npos;
    text += (text.empty() ? "" : "*") + (is_sum ? "(" + f + ")" : f);
  }
  return text;
}

}  // namespace distsetup
