// presets/kernels/torch.yaml: what each kernel does to memory, forward and backward, and what each loss does to the logits. Read
// strictly, with positions. Format: presets/README.md.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "base/value.h"
#include "planner/replay/size_expression.h"

namespace distsetup::replay {

struct KernelStep {
  enum class Kind : uint8_t {
    kNew,
    kFree,
    kGradient,        // local `other` becomes (or is added to) the gradient of read `name`
    kSharedGradient,  // the same, without giving it up
    kWeight,          // the gradient of the weight
    kSecondWeight,    // of the second weight (an adapter's B)
    kRebuild,         // the input a compiled backward computes again, once for all its readers
    kRebuilt,         // this reader is done with it
    kRepeat,          // `size` times up to the matching kEnd
    kEnd
  };
  Kind kind = Kind::kNew;
  int8_t name = -1, other = -1;
  bool when_trained = false;  // only where the weight gets a gradient
  int16_t partner = -1;       // kRepeat: its kEnd; kEnd: its kRepeat
  SizeExpression size;        // empty: of the call
};

struct Kernel {
  std::string name;
  std::string kind;                 // gemm, attention, norm, elementwise, embedding, loss, copy, all_gather, reduce_scatter
  std::vector<std::string> locals;  // "g" (gradient of the first write), reads, writes, then temporaries
  int num_reads = 0, num_writes = 0;
  bool weight = false;
  bool has_second_weight = false;
  std::vector<int8_t> saves, saves_for_weight;  // the latter only where the weight is trained
  std::vector<KernelStep> forward, backward;
  int first_read() const { return 1; }
  int first_write() const { return 1 + num_reads; }
};

struct KernelFile {
  std::map<std::string, Kernel, std::less<>> kernels;
  Value losses;  // read once per program: they name the program's tensors
};

Result<KernelFile> kernels_from_value(const Value& value);

}  // namespace distsetup::replay
