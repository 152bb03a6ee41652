// What the settings of losses may be: how logits become one (trainer.loss_head), what a preference pair costs (train.loss), and what
// it is compared with (train.reference).
#pragma once
#include <vector>

#include "planner/spec/spec_table.h"

namespace distsetup {

const std::vector<SettingChoice>& loss_heads();
const std::vector<SettingChoice>& pair_losses();
const std::vector<SettingChoice>& references();

}  // namespace distsetup
