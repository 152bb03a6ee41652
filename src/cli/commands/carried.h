// What of the settings that were read a written configuration file really holds: asked of the writer itself, with other values.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "codegen/artifact.h"
#include "codegen/read/reading.h"
#include "codegen/tables/coverage.h"

namespace distsetup {

using WriteFields = std::function<Result<Artifacts>(const ReadFields&)>;

// Settings of these fields that change nothing in the files, whatever they are: a script beside the file would have had them. And
// settings that have a form in some targets only, or together with others.
std::vector<LostKey> not_in_files(const std::string& target, const ReadFields& fields, const std::vector<FieldCoverage>& coverage,
                                  const WriteFields& write);

// An error where the files say nothing of how the model is sharded and the target's have to; `lost` may name the file that does.
Diagnostics check_sharding_is_known(const std::string& target, const ReadFields& fields, const std::vector<LostKey>& lost,
                                    const std::vector<FieldCoverage>& coverage, const Artifacts& written, const WriteFields& write);

}  // namespace distsetup
