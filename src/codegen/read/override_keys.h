// Settings that stand on a program's line over a configuration that is not here ("trainer.devices=8").
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/read/found.h"
#include "codegen/read/reading.h"
#include "codegen/tables/templates.h"

namespace distsetup {

// "name=value", "+a.b=value": both sides. Nothing: the word is none.
std::optional<std::pair<std::string, std::string>> override_in(std::string_view word);

// Hydra's overrides of a program. What they say to Lightning's Trainer, Megatron-Bridge or SkyRL under its own names is read, without
// what it would assume; the rest is told as not carried over.
Result<Reading> reading_of_overrides(const TemplateSet& templates, const std::string& program, const std::vector<FoundKey>& found,
                                     const std::string& file);

}  // namespace distsetup
