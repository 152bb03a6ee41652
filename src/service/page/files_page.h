// The files of one checkpoint, each to be downloaded.
#pragma once
#include <string>
#include <string_view>

#include "base/json.h"

namespace distsetup {

// `files`: {"files": [{"name", "bytes", "url"}]}, as the service answers for the checkpoint.
std::string files_page(std::string_view job_id, std::string_view identifier, const Json& files, std::string_view version);

}  // namespace distsetup
