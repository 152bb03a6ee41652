// What some settings of a run may be: who runs it and with which attention, how nodes are joined, where its states lie, what becomes
// of a step whose loss is not finite or a spike.
#pragma once
#include <vector>

#include "planner/spec/spec_table.h"

namespace distsetup {

const std::vector<SettingChoice>& trainers();           // trainer.name
const std::vector<AmbiguousChoice>& tools();            // that start a trainer and are none of those
const std::vector<SettingChoice>& code_bases();         // trainer.code_base
const std::vector<SettingChoice>& attention_kernels();  // trainer.attention
const std::vector<SettingChoice>& network_kinds();      // hardware.network_kind
const std::vector<SettingChoice>& offload_places();     // parallel.offload
const std::vector<SettingChoice>& nan_answers();        // train.on_nan
const std::vector<SettingChoice>& spike_answers();      // train.on_spike

}  // namespace distsetup
