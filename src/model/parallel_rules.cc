// The rules of parallel_rules.h, one after the other, in the order they are numbered. The idea: a rule that cannot be evaluated
// because an earlier one failed is left out, so that one mistake gives one message.
// Sources: OpenRLHF's argument checks (V1 to V15); DeepSpeed's AutoTP requirements; ring-flash-attention (heads_k_stride); PyTorch
// tensor parallelism (parallel/style.py), where columns of q, k, v are split by heads.
#include "model/parallel_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "base/quantity.h"

namespace distsetup {
namespace {

constexpr std::string_view kHeads = "attention heads", kKvHeads = "kv heads", kFeedForward = "feed-forward columns";

struct Rules {
  const Geometry& g;
  const ParallelSizes& s;
  const Location& at;
  Diagnostics diagnostics = {};
  int64_t dp = 0;  // 0 until the mesh is known to be right

  void fail(const char* error_code, std::string message, std::string help = "") {
    diagnostics.push_back(error(error_code, at, std::move(message), std::move(help)));
  }
};

// "1, 2, 4": the sizes up to `limit` that divide both numbers.
std::string common_divisors(int64_t a, int64_t b, int64_t limit) {
  std::vector<int64_t> found;
  for (int64_t i = 1; i <= std::min({a, b, limit}); ++i) {
    if (a % i == 0 && b % i == 0) found.push_back(i);
  }
  return fmt::format("{}", fmt::join(found, ", "));
}

bool check_positive(Rules& r) {
  const std::pair<const char*, int64_t> at_least_one[] = {{"world", r.s.world}, {"cp", r.s.cp}, {"tp", r.s.tp},
                                                          {"pp", r.s.pp},       {"ep", r.s.ep}, {"micro_batch", r.s.micro_batch}};
  const std::pair<const char*, int64_t> at_least_zero[] = {{"dp", r.s.dp},
                                                           {"gpus_per_node", r.s.gpus_per_node},
                                                           {"global_batch", r.s.global_batch},
                                                           {"accumulation", r.s.accumulation},
                                                           {"sequence_length", r.s.sequence_length},
                                                           {"ring_head_stride", r.s.ring_head_stride}};
  constexpr int64_t kLimit = 1'000'000'000;
  for (const auto& [name, value] : at_least_one) {
    if (value < 1 || value > kLimit)
      r.fail(code::kOutOfRange, fmt::format("{} is {}, expected 1 to {}", name, value, format_count(kLimit)));
  }
  for (const auto& [name, value] : at_least_zero) {
    if (value < 0 || value > kLimit)
      r.fail(code::kOutOfRange, fmt::format("{} is {}, expected 0 to {}", name, value, format_count(kLimit)));
  }
  return r.diagnostics.empty();
}

// V1, V2: the axes multiply out to the world.
void check_mesh(Rules& r) {
  const ParallelSizes& s = r.s;
  int64_t product = 0;
  const bool overflow = __builtin_mul_overflow(s.cp * s.tp, s.pp, &product);
  std::string axes = fmt::format("cp {} × tp {}", s.cp, s.tp);
  if (s.pp > 1) axes += fmt::format(" × pp {}", s.pp);
  if (overflow || product > s.world) {
    r.fail(code::kMeshInvalid,
           fmt::format("{} GPUs leave no data-parallel rank: {} needs at least {}, so dp would be 0", s.world, axes,
                       overflow ? "more" : std::to_string(product)),
           overflow ? "" : fmt::format("use at least {} GPUs, or lower cp or tp", product));
  } else if (s.world % product != 0) {
    r.fail(code::kMeshInvalid, fmt::format("{} GPUs are not divisible by {} = {}", s.world, axes, product),
           fmt::format("use {} or {} GPUs, or other cp, tp", s.world / product * product, (s.world / product + 1) * product));
  } else if (s.dp != 0 && s.dp != s.world / product) {
    r.fail(code::kMeshInvalid, fmt::format("dp {} × {} = {}, expected {} GPUs", s.dp, axes, s.dp * product, s.world),
           fmt::format("set dp to {}", s.world / product));
  } else {
    r.dp = s.world / product;
  }
}

// V3 and V13: global batch = micro-batch × dp × accumulation, exactly.
void check_batch(Rules& r) {
  const ParallelSizes& s = r.s;
  if (r.dp == 0 || s.global_batch == 0) return;
  const int64_t per_pass = s.micro_batch * r.dp;
  const std::string spelled = fmt::format("micro-batch {} × dp {}", s.micro_batch, r.dp);
  if (s.global_batch < per_pass) {
    r.fail(code::kBatchIndivisible,
           fmt::format("global batch {} is below {} = {}: accumulation would be 0", s.global_batch, spelled, per_pass),
           fmt::format("use a global batch of at least {}, or a smaller micro-batch", per_pass));
    return;
  }
  if (s.accumulation == 0 && s.global_batch % per_pass != 0) {
    const int64_t below = s.global_batch / per_pass * per_pass;
    r.fail(code::kBatchIndivisible,
           fmt::format("global batch {} is not divisible by {} = {}: accumulation {} would train {} sequences", s.global_batch,
                       spelled, per_pass, s.global_batch / per_pass, below),
           fmt::format("use a global batch of {} or {}", below, below + per_pass));
    return;
  }
  int64_t trained = 0;
  if (s.accumulation != 0 && (__builtin_mul_overflow(per_pass, s.accumulation, &trained) || trained != s.global_batch)) {
    r.fail(code::kBatchIndivisible,
           fmt::format("{} × accumulation {} = {}, expected the global batch {}", spelled, s.accumulation, trained, s.global_batch),
           s.global_batch % per_pass == 0 ? fmt::format("set accumulation to {}", s.global_batch / per_pass) : "");
  }
}

// V4, V5: whole heads on every tensor-parallel rank.
void check_heads(Rules& r) {
  if (r.s.tp == 1 || r.g.num_heads <= 0 || r.g.num_kv_heads <= 0) return;
  const auto uneven = [&r](int64_t tp) {
    std::vector<UnevenSplit> heads = uneven_over_tensor_ranks(r.g, tp, r.s.kv_heads_copied ? KvHeads::kCopied : KvHeads::kSplit);
    std::erase_if(heads, [](const UnevenSplit& split) { return split.what == kFeedForward; });  // not one of the fifteen
    return heads;
  };
  std::vector<int64_t> even;
  for (int64_t tp = 1; tp <= r.g.num_heads; ++tp) {
    if (uneven(tp).empty()) even.push_back(tp);
  }
  for (const auto& [what, number] : uneven(r.s.tp))
    r.fail(code::kIndivisible, fmt::format("{} {} are not divisible by tp {}", number, what, r.s.tp),
           fmt::format("tp can be {}", fmt::join(even, ", ")));
}

// "0.16.4" -> a number that compares; -1 when it is no version.
int64_t version_number(const std::string& version) {
  int major = 0, minor = 0, patch = 0;
  if (std::sscanf(version.c_str(), "%d.%d.%d", &major, &minor, &patch) < 2) return -1;
  return (static_cast<int64_t>(major) * 10'000 + minor) * 10'000 + patch;
}

// V6, V10 to V12, V14, V15: settings that need another setting.
void check_settings(Rules& r) {
  const ParallelSizes& s = r.s;
  const bool is_bf16 = s.compute_dtype == "bf16";
  if (s.cp > 1 && s.cp_method == "ring" && !s.packing) {  // V6
    r.fail(code::kConflict, fmt::format("cp {} with ring attention needs packed sequences, and packing is off", s.cp),
           "turn packing on, or set cp to 1");
  }
  if (s.four_bit && !is_bf16) {  // V10
    r.fail(code::kConflict, fmt::format("4-bit weights need bf16 compute, found '{}'", s.compute_dtype), "set compute to bf16");
  }
  if (s.engine == "deepspeed" && s.tp > 1) {  // V11
    if (!s.engine_version.empty() && version_number(s.engine_version) < version_number("0.16.4")) {
      r.fail(code::kConflict, fmt::format("tp {} with deepspeed needs version 0.16.4 or newer, found '{}'", s.tp, s.engine_version),
             "install deepspeed 0.16.4 or newer, or set tp to 1");
    }
    if (!is_bf16) {
      r.fail(code::kConflict, fmt::format("tp {} with deepspeed needs bf16 compute, found '{}'", s.tp, s.compute_dtype),
             "set compute to bf16");
    }
  }
  const std::vector<std::string> dtypes = {"bf16", "fp16", "fp32"};
  if (std::find(dtypes.begin(), dtypes.end(), s.compute_dtype) == dtypes.end()) {  // V12
    r.fail(code::kUnknownValue, fmt::format("compute is '{}', expected one of bf16, fp16, fp32", s.compute_dtype),
           suggest(s.compute_dtype, dtypes));
  }
  check_batch(r);                      // V13
  if (s.loss_parallel && s.tp == 1) {  // V14
    r.fail(code::kConflict, "loss_parallel splits the vocabulary over tp, and tp is 1",
           "set tp to 2 or more, or turn loss_parallel off");
  }
  if (s.sequence_parallel && s.tp == 1) {  // V15
    r.fail(code::kConflict, "sequence_parallel splits activations over tp, and tp is 1",
           "set tp to 2 or more, or turn sequence_parallel off");
  } else if (s.sequence_parallel && !s.packing) {
    r.fail(code::kConflict, fmt::format("sequence_parallel over tp {} needs packed sequences, and packing is off", s.tp),
           "turn packing on");
  }
  if (s.offload && s.sleep) {
    r.fail(code::kConflict, "offload and sleep both move optimizer states to the host, expected at most one",
           "turn offload or sleep off");
  }
}

void check_context(Rules& r) {
  const ParallelSizes& s = r.s;
  const std::vector<std::string> methods = {"ring", "all_to_all"};
  if (std::none_of(methods.begin(), methods.end(), [&](const std::string& m) { return m == s.cp_method; })) {
    r.fail(code::kUnknownValue, fmt::format("cp_method is '{}', expected one of ring, all_to_all", s.cp_method),
           suggest(s.cp_method, methods));
  }
  const int64_t kv_heads = r.g.num_kv_heads / s.tp, heads = r.g.num_heads / s.tp;  // of one rank, when they divide
  if (s.cp > 1 && s.cp_method == "ring" && s.ring_head_stride > 0 && kv_heads > 0 && kv_heads % s.ring_head_stride != 0) {
    r.fail(code::kIndivisible, fmt::format("ring_head_stride {} does not divide {} kv heads of a rank", s.ring_head_stride, kv_heads),
           fmt::format("ring_head_stride can be {}", common_divisors(kv_heads, kv_heads, kv_heads)));
  }
  if (s.cp > 1 && s.cp_method == "all_to_all" && heads > 0 && (heads % s.cp != 0 || kv_heads % s.cp != 0)) {
    r.fail(code::kIndivisible,
           fmt::format("{} heads and {} kv heads of a rank are not divisible by cp {}, as all_to_all needs", heads, kv_heads, s.cp),
           "set cp_method to ring");
  }
  const int64_t parts = s.cp * s.tp;
  if (s.sequence_length > 0 && parts > 1 && s.sequence_length % parts != 0) {
    const int64_t above = (s.sequence_length / parts + 1) * parts;
    r.fail(code::kIndivisible,
           fmt::format("sequence length {} is not divisible by cp {} × tp {} = {}", s.sequence_length, s.cp, s.tp, parts),
           fmt::format("use a sequence length of {}", above));
  }
}

void check_rest(Rules& r) {
  const ParallelSizes& s = r.s;
  if (s.tp > 1 && !s.vocabulary_padded && r.g.vocabulary > 0 && r.g.vocabulary % s.tp != 0) {
    r.fail(code::kIndivisible, fmt::format("vocabulary {} is not divisible by tp {}", format_count(r.g.vocabulary), s.tp),
           fmt::format("pad the vocabulary to {}", format_count((r.g.vocabulary / s.tp + 1) * s.tp)));
  }
  if (s.gpus_per_node > 0 && s.tp > s.gpus_per_node && !s.tp_across_nodes) {
    r.fail(code::kMeshInvalid,
           fmt::format("tp {} is more than {} GPUs per node: every layer would wait for the network", s.tp, s.gpus_per_node),
           fmt::format("set tp to at most {}", s.gpus_per_node));
  }
  if (s.pp > r.g.num_layers) {
    r.fail(code::kMeshInvalid, fmt::format("pp {} is more than {} layers", s.pp, r.g.num_layers),
           fmt::format("set pp to at most {}", r.g.num_layers));
  }
  if (s.ep > 1 && (r.g.num_experts == 0 || r.g.num_experts % s.ep != 0)) {
    r.fail(code::kIndivisible, fmt::format("{} experts are not divisible by ep {}", r.g.num_experts, s.ep));
  } else if (s.experts_over_tensor_ranks && s.ep > 1 && r.dp > 0 && r.dp * s.cp * s.tp % s.ep != 0) {
    r.fail(code::kMeshInvalid,
           fmt::format("dp {} × cp {} × tp {} = {} is not divisible by ep {}", r.dp, s.cp, s.tp, r.dp * s.cp * s.tp, s.ep));
  } else if (!s.experts_over_tensor_ranks && s.ep > 1 && r.dp > 0 && r.dp * s.cp % s.ep != 0) {
    r.fail(code::kMeshInvalid, fmt::format("dp {} × cp {} = {} is not divisible by ep {}", r.dp, s.cp, r.dp * s.cp, s.ep));
  }
}

}  // namespace

Diagnostics check_parallel(const Geometry& geometry, const ParallelSizes& sizes, const Location& at) {
  Rules rules{geometry, sizes, at};
  if (!check_positive(rules)) return rules.diagnostics;
  check_mesh(rules);
  check_heads(rules);
  check_settings(rules);
  check_context(rules);
  check_rest(rules);
  return rules.diagnostics;
}

std::vector<UnevenSplit> uneven_over_tensor_ranks(const Geometry& g, int64_t tp, KvHeads kv_heads) {
  std::vector<UnevenSplit> uneven;
  const auto divides = [tp](int64_t number) { return tp > 0 && number % tp == 0; };
  if (!divides(g.num_heads)) uneven.push_back({kHeads, g.num_heads});
  const bool copied = kv_heads == KvHeads::kCopied && g.num_kv_heads > 0 && tp % g.num_kv_heads == 0;
  if (g.attention == Attention::kGrouped && !divides(g.num_kv_heads) && !copied) uneven.push_back({kKvHeads, g.num_kv_heads});
  if (g.feed_forward > 0 && !divides(g.feed_forward)) uneven.push_back({kFeedForward, g.feed_forward});
  return uneven;
}

Diagnostics check_templates(const TextTemplates& templates, const Location& at) {
  Diagnostics diagnostics;
  if (templates.multiturn && !templates.chat_template) {  // V7
    diagnostics.push_back(
        error(code::kConflict, at, "multiturn needs a chat template, and chat_template is off", "turn chat_template on"));
  }
  const std::string& text = templates.input_template;
  if (!text.empty() && text.find("{}") == std::string::npos) {  // V8
    diagnostics.push_back(error(code::kConflict, at, fmt::format("input_template '{}' has 0 placeholders, expected one {{}}", text),
                                "write {} where the prompt goes"));
  }
  if (const size_t place = text.find("\\n"); place != std::string::npos) {  // V9
    diagnostics.push_back(warning(code::kAmbiguousSpelling, at,
                                  fmt::format("input_template has a backslash and an n at character {}, not a line break", place + 1),
                                  "in a shell write $'...\\n...', in YAML use double quotes"));
  }
  return diagnostics;
}

}  // namespace distsetup
