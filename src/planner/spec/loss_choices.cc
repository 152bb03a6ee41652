#include "planner/spec/loss_choices.h"

namespace distsetup {

const std::vector<SettingChoice>& loss_heads() {
  constexpr std::string_view kHasOthers =
      "the bundled trainer makes the loss of all logits at once (eager) or with the head in chunks (chunked)";
  static const std::vector<SettingChoice> table = {
      {"eager", {}, "all logits at once, each step of the loss a kernel of its own", ""},
      {"compiled", {}, "the loss in one compiled graph", "", kHasOthers},
      {"fused", {"fused_kernel", "vocabulary_parallel"}, "one kernel, in place", "", kHasOthers},
      {"liger", {"fused_linear_cross_entropy"}, "head and loss together, in chunks of tokens", "", kHasOthers},
      {"chunked", {}, "the loss in chunks of the sequence; bundled trainer: with the head, no logits are ever whole", ""},
      {"cut", {"cut_cross_entropy", "cce"}, "no logits in memory at all", "", kHasOthers},
  };
  return table;
}

// Losses of preference pairs, with those of TRL 1.16 (trainer/dpo_config.py) that the trainer has not got.
const std::vector<SettingChoice>& pair_losses() {
  static const std::vector<SettingChoice> table = {
      {"sigmoid", {"dpo", "cdpo"}, "-log sigmoid of the reward margin", ""},
      {"hinge", {"slic"}, "what the margin misses of 1", ""},
      {"ipo", {}, "squared distance of the margin per token from 1 / (2 beta)", ""},
      {"kto", {"kto_pair"}, "", "KTO learns from single answers with a label, the trainer from pairs: sigmoid, hinge or ipo"},
      {"robust", {}, "", "the trainer has no robust loss; sigmoid with label_smoothing counts on wrong labels, too"},
      {"sigmoid_norm", {}, "", "the trainer averages over tokens with ipo only"},
      {"exo_pair", {"exo"}, "", "the trainer has sigmoid, hinge and ipo"},
      {"nca_pair", {"nca"}, "", "the trainer has sigmoid, hinge and ipo"},
      {"bco_pair", {"bco"}, "", "the trainer has sigmoid, hinge and ipo"},
      {"sppo_hard", {"sppo"}, "", "the trainer has sigmoid, hinge and ipo"},
      {"aot", {"aot_unpaired", "aot_pair"}, "", "the trainer has sigmoid, hinge and ipo, which take each pair by itself"},
      {"apo_zero", {"apo_down"}, "", "the trainer has sigmoid, hinge and ipo"},
      {"discopop", {}, "", "the trainer has sigmoid, hinge and ipo"},
      {"orpo", {"simpo", "cpo"}, "", "the trainer has no loss without a reference but these: sigmoid, hinge, ipo with reference none"},
  };
  return table;
}

const std::vector<SettingChoice>& references() {
  static const std::vector<SettingChoice> table = {
      {"cached", {"precomputed", "precompute"}, "the starting weights, run once before the first step", ""},
      {"none", {"reference_free"}, "log-probabilities of 0", ""},
      {"shared", {}, "the model without its adapters, run beside it in each step", ""},
      {"sharded", {"frozen"}, "a frozen copy of what is trained, run in each step", ""},
  };
  return table;
}

}  // namespace distsetup
