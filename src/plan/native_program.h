// The programs of the bundled trainer for one model, from its family's file (native_file.h). Symbols: T tokens, S sequence length,
// B sequences, h hidden, f feed-forward, a heads, kv kv heads, d head size, rot elements of a head that are rotated, V vocabulary,
// P learned positions; E experts, k of them per token, fe feed-forward of one, fs of the shared ones. With tensor parallelism over tp
// ranks a, kv, f and V are one rank's share (V rounded up), and Ts = T / tp tokens are a rank's own; without, Ts = T and tp = 1. With
// context parallelism over cp ranks T = B · S / cp tokens are one rank's, and Sr = S / cp of each sequence. With expert parallelism
// over ep ranks at most Te rows come to a rank's experts. R positions have a row in the rotary tables. A loss adds `numbers` to the
// buffer of that name.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "model/geometry.h"
#include "plan/missing_kernel.h"
#include "plan/plan.h"
#include "plan/program.h"
#include "plan/tuning.h"

namespace distsetup {

struct NativePrograms {
  std::string file;  // "llama": of presets/programs/native, or the model's own
  Program embedding, head;
  // Kinds of layers: most models have one, others layers with and without a window; more where not all layers are trained alike.
  std::vector<Program> blocks;
  std::vector<int> kind_of_layer;
  std::vector<std::string> buffers;                 // endings of published tensors that follow from the configuration and are not read
  std::shared_ptr<const NativePrograms> reference;  // those of the reference, where it runs in the step (reference.h)
  const Program& block(int64_t layer) const { return blocks[static_cast<size_t>(kind_of_layer[static_cast<size_t>(layer)])]; }
};

// Ranks that run a program together, each on its share; and the loss of its head, where that is not the cross-entropy of each token.
struct ProgramSplit {
  int tp = 1, cp = 1;
  CpMethod cp_method = CpMethod::kAllGather;
  bool packed = false;  // rows hold several documents (packed_rows.h)
  std::optional<PreferencePlan> preference = {};
  int ep = 1;           // ranks that share the experts of each layer (expert_parallel.h)
  int loss_chunks = 1;  // parts of the rows that head and loss take one after the other (chunked_loss.h)
  bool operator==(const ProgramSplit& other) const {
    return tp == other.tp && cp == other.cp && packed == other.packed && (cp == 1 || cp_method == other.cp_method) &&
           preference == other.preference && ep == other.ep && loss_chunks == other.loss_chunks;
  }
};
ProgramSplit split_of(const Plan& plan);

// The model must pass check_native(). Made once for the models asked for last.
std::shared_ptr<const NativePrograms> native_programs(const Geometry& geometry, const ProgramSplit& split = {},
                                                      const Tuning& tuning = {});

// What of the model has no program (experts, latent attention, a family without a file ...), or cannot be split, each named.
Diagnostics check_native(const Geometry& geometry, const ProgramSplit& split = {}, const Tuning& tuning = {});

// Any length for a family without a file.
LongestSequence longest_sequence(const Geometry& geometry, const ProgramSplit& split = {}, const Tuning& tuning = {});

// Kernels of its programs that the device has not got.
Diagnostics check_native_kernels(const Geometry& geometry, Accelerator accelerator);

// `micro_batch` counts samples: pairs are two sequences each.
Symbols native_symbols(const Geometry& geometry, int64_t micro_batch, int64_t sequence_length, const ProgramSplit& split = {});
// The run buffers that programs read, "ids", "cos", ...: shape and type of each.
struct ProgramInput {
  std::vector<int64_t> shape;
  Dtype dtype = Dtype::kF32;
  int64_t numel() const;
};
ProgramInput program_input(std::string_view name, const Symbols& symbols);
bool uses_input(const NativePrograms& programs, std::string_view name);
// Filled anew for each micro-batch: ids, targets, and where documents lie.
bool is_fed(std::string_view input);

// Names of block tensors a policy drops: none {}, selective what the family's file lists, full: everything saved but x,
// keep_attention: all that full does but what attention leaves.
std::vector<std::string> dropped_tensors(const Geometry& geometry, Recompute policy, const Tuning& tuning = {});

}  // namespace distsetup
