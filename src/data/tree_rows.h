// Rows of OpenAssistant's files (oasst1, oasst2). A row of a file of trees (…trees.jsonl) is a prompt with its replies, their replies
// and so on, or that prompt itself; it becomes the conversation that people ranked highest at each turn, as the Guanaco subset does.
// In the tables of the Hub every message is a row of its own, which is no sample.
#pragma once
#include <optional>

#include "data/source_rows.h"

namespace distsetup {

// nullopt: it is none of these. A reason: it is one, and why it is no sample.
std::optional<RowOrReason> tree_row(const nlohmann::ordered_json& json);

}  // namespace distsetup
