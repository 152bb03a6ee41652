// Values of train.optimizer. What those of the bundled trainer keep: plan/optimizer.h.
#pragma once
#include <vector>

#include "planner/spec/spec_table.h"

namespace distsetup {

inline std::vector<SettingChoice> optimizer_choices() {
  return {{"adamw", {"adamw_torch", "adamw_torch_fused", "fused_adamw"}, "", ""},
          {"adam", {}, "", "the trainer has AdamW; Adam is AdamW with weight_decay 0"},
          {"adamw_8bit", {"adamw_bnb_8bit"}, "moments in 8 bits", ""},
          {"paged_adamw_8bit", {}, "8-bit moments in pages of host memory", "", "the trainer's optimizer state is not paged"},
          {"paged_adamw_32bit", {"paged_adamw"}, "moments in pages of host memory", "", "the trainer's optimizer state is not paged"},
          {"adafactor", {}, "factored second moments", ""},
          {"lion", {}, "signs of one moment", ""},
          {"muon", {}, "orthogonalised momentum on matrices of blocks, AdamW on the rest", ""},
          {"sgd", {}, "no moments, one with train.momentum", ""}};
}

}  // namespace distsetup
