// Which splits of a model over ranks are possible at all. The fifteen rules are those that the long-context fine-tuning trainers of
// the field check (numbers V1 to V15), the rest are ours; each message carries the numbers it compared.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "model/geometry.h"

namespace distsetup {

struct ParallelSizes {
  int64_t world = 1;          // ranks in all
  int64_t gpus_per_node = 0;  // 0 = not known
  int64_t dp = 0;             // dp_replicate × dp_shard; 0 = world / (cp × tp × pp)
  int64_t cp = 1, tp = 1, pp = 1, ep = 1;
  bool experts_over_tensor_ranks = false;  // ep ranks of (dp, cp, tp), each with whole experts; else of (dp, cp)
  bool sequence_parallel = false;
  bool loss_parallel = false;  // loss over vocabulary shards, without gathering logits
  bool vocabulary_padded = false;
  bool kv_heads_copied = false;        // a kv head may stand on several tensor ranks
  bool tp_across_nodes = false;        // asked for in so many words
  std::string cp_method = "ring";      // ring | all_to_all
  int64_t ring_head_stride = 0;        // kv heads exchanged at a time; 0 = all
  bool packing = true;                 // sequences filled to their length, as in pretraining
  int64_t sequence_length = 0;         // 0 = not known
  int64_t micro_batch = 1;             // sequences
  int64_t global_batch = 0;            // sequences per optimizer step; 0 = micro_batch × dp × accumulation
  int64_t accumulation = 0;            // 0 = global_batch / (micro_batch × dp)
  bool four_bit = false;               // 4-bit base weights
  std::string compute_dtype = "bf16";  // bf16, fp16, fp32
  std::string engine;                  // fsdp2, deepspeed; empty = another
  std::string engine_version;          // "0.16.4"; empty = not known
  bool offload = false;                // optimizer or parameters to the host
  bool sleep = false;                  // states put aside between phases of a reinforcement-learning run
};

// `at`: where the mesh is written. Errors: kMeshInvalid, kIndivisible, kBatchIndivisible, kConflict, kUnknownValue, kOutOfRange.
Diagnostics check_parallel(const Geometry& geometry, const ParallelSizes& sizes, const Location& at = {});

// What tensor parallelism divides among its ranks and does not come out even: whole heads, and columns of dense MLPs. kCopied: a kv
// head may stand on several ranks, as in measured runs, and in plans whose trainer has it and whose user asks for so many ranks.
enum class KvHeads { kSplit, kCopied };
struct UnevenSplit {
  std::string_view what;
  int64_t number = 0;
};
std::vector<UnevenSplit> uneven_over_tensor_ranks(const Geometry& geometry, int64_t tp, KvHeads kv_heads);

// How supervised fine-tuning turns records into text.
struct TextTemplates {
  bool multiturn = false;
  bool chat_template = false;
  std::string input_template;  // "User: {}\nAssistant: "; empty = none
};
Diagnostics check_templates(const TextTemplates& templates, const Location& at = {});

}  // namespace distsetup
