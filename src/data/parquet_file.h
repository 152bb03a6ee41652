// Parquet files as rows, by a plugin (plugins/parquet), which is loaded when the first such file is read: it needs Arrow, which
// Debian 12 has not. It is looked for in the variable DISTSETUP_PARQUET, then as lib/libdistsetup_parquet.so beside the program's
// folder.
#pragma once
#include <string>

#include "data/source_reading.h"

namespace distsetup {

// Errors: there is no plugin (and how to get one), it does not fit, or the file cannot be read.
Diagnostics read_parquet(const std::string& path, SourceReading& reading);

}  // namespace distsetup
