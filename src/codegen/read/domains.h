// Which values a field of a condition can have while a file is read.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/tables/key_table.h"

namespace distsetup {

// Stands for every value that no condition of the table names.
inline constexpr std::string_view kAnyOther = "*";

// A field that is tried out.
struct ReadVariable {
  std::string field;
  std::vector<std::string> domain;  // texts, first preferred; "null" = not known
};

// The fields that conditions of the table's rows ask about, each with its domain.
std::vector<ReadVariable> read_variables(const KeyTable& table);

// Fields that say how a file is written, not what is trained: tried out, and not carried.
bool is_hidden(const std::string& field);

// Pairs of fields that restrict each other: tried together where both are.
const std::vector<std::pair<std::string, std::string>>& dependent_fields();

// False for a combination that no plan has (zero3 with DeepSpeed stage 2). `text_of(field)`: its value, or "" when it is no variable.
template <class TextOf>
bool is_possible(const TextOf& text_of) {
  const std::string_view sharding = text_of("strategy.sharding"), stage = text_of("derived.zero_stage");
  if (!sharding.empty() && !stage.empty() && (sharding == "ddp" ? "0" : sharding.substr(4)) != stage) return false;
  for (const char* engine : {"derived.engine", "derived.lightning"}) {
    const std::string_view runs = text_of(engine);
    if (!runs.empty() && !sharding.empty() && (runs == "ddp") != (sharding == "ddp")) return false;
    if (runs == "fsdp" && sharding == "zero1") return false;
  }
  const std::string_view nvme = text_of("derived.nvme"), to_disk = text_of("offload.optimizer"),
                         from_disk = text_of("offload.parameters");
  if (!nvme.empty() && !to_disk.empty() && !from_disk.empty() && (to_disk == "nvme" || from_disk == "nvme") != (nvme == "true"))
    return false;
  if (text_of("derived.hybrid") == "true" && (sharding == "ddp" || stage == "0")) return false;
  const std::string_view offload = text_of("derived.offload");
  if (!offload.empty()) {
    const std::string_view optimizer = text_of("offload.optimizer"), parameters = text_of("offload.parameters");
    const bool wants_optimizer = offload == "both" || offload == "optimizer",
               wants_parameters = offload == "both" || offload == "parameters";
    if (!optimizer.empty() && (optimizer != "none") != wants_optimizer) return false;
    if (!parameters.empty() && (parameters != "none") != wants_parameters) return false;
  }
  return true;
}

}  // namespace distsetup
