// The page of one job: state, curves, memory and time as predicted and measured, checkpoints, log, cancel.
#pragma once
#include <string>
#include <string_view>

#include "base/json.h"
#include "service/page/views.h"

namespace distsetup {

// `job`: as the service answers for its status, with every detail.
std::string job_page(const Json& job, const LogView& log, std::string_view version);

}  // namespace distsetup
