// Writes a Program from its forward ops: shapes of tensors follow from operands, backward from the kernels' adjoints
// (kernel_table.cc). Backward runs the ops in reverse, a product's weight gradient before its input gradient (0-4 % less arena), and
// where a tensor is read by several ops, each adds to what the ones before it left ("fan-in").
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "plan/program.h"

namespace distsetup {

// A matrix or vector that a program reads: its shape, and the dimension that tensor parallelism splits (-1: none).
struct SlotShape {
  std::vector<std::string> shape;
  int split = -1;
  std::string rows_each = {};  // of a stack of experts' matrices: the rows of one
};

class ProgramBuilder {
 public:
  // `slots`: what the program reads, borrowed ones included.
  ProgramBuilder(Program& program, std::map<std::string, SlotShape> slots) : program_(program), slots_(std::move(slots)) {}

  // Adds the op, whose kernel must be in the table, and declares what it writes. A problem is kept and said by finish().
  void add(Op op);
  // Adds backward; of a head, with the loss in so many chunks (chunked_loss.h). Empty, or what is wrong: "kernel 'rope' reads 'q',
  // which nothing writes".
  std::string finish(int loss_chunks = 1);

  // --- for kernels

  bool has(const std::string& tensor) const;
  const Op* writer(const std::string& tensor) const;                         // the forward op so far; nullptr: none
  const std::vector<std::string>& shape(const std::string& tensor_or_slot);  // "h1", "p:wqkv", "ids"
  int split(const std::string& slot);                                        // of "p:wqkv"; -1: it is not split
  const std::string& rows_each(const std::string& slot);                     // of "p:we13", a stack of experts' matrices
  Dtype dtype(const std::string& tensor) const;
  void declare(const std::string& tensor, std::vector<std::string> shape, Dtype dtype = Dtype::kCompute);
  void mark_logits(const std::string& tensor);
  void mark_passing(const std::string& tensor);  // TensorDecl::is_passing

  // The tensor that holds the gradient of `tensor` so far; "": none yet.
  std::string gradient(const std::string& tensor) const;
  // The gradient that must be there.
  std::string incoming(const std::string& tensor);
  // The tensor to write the gradient of `tensor` to; the kernel has taken in what gradient() said.
  std::string target(const std::string& tensor);
  // The gradient of `tensor` is that tensor itself: nothing is computed, unless something has come before (then the two are added).
  void pass(const Op& op, const std::string& tensor, const std::string& gradient);
  // Where forward has written it already (the loss).
  void set_gradient(const std::string& tensor, const std::string& gradient) { gradients_[tensor] = gradient; }
  std::string scratch(const Op& op, std::vector<std::string> shape);  // fp32
  void backward(Op op) { program_.backward.push_back(std::move(op)); }
  void fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }

 private:
  void turn_round(const std::vector<Op>& ops);  // of chunks: forward and backward of each

  Program& program_;
  const std::map<std::string, SlotShape> slots_;
  std::map<std::string, std::string> gradients_;
  std::string problem_;
};

// An op that brings gradients of what `of` read: named after it, with its attributes.
Op adjoint_op(const Op& of, std::string_view suffix, OpKind kind, std::string kernel, std::vector<std::string> reads,
              std::vector<std::string> writes, std::vector<Overlay> over = {}, std::string flops = "");

// "g:wqkv" of "p:wqkv".
std::string gradient_slot(std::string_view parameter);

// "2*T*h*(a+2*kv)": factors that are sums get parentheses.
std::string product_of(const std::vector<std::string>& factors);

}  // namespace distsetup
