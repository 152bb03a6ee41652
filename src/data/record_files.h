// CSV files and Megatron-LM's token ids as rows (csv.h, megatron_files.h).
#pragma once
#include <string>

#include "data/source_reading.h"

namespace distsetup {

Diagnostics read_commas(const std::string& path, SourceReading& reading);
Diagnostics read_tabs(const std::string& path, SourceReading& reading);
Diagnostics read_token_ids(const std::string& path, SourceReading& reading);

}  // namespace distsetup
