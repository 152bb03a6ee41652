// What `distsetup jobs` prints of the service's answers: the page's words, in columns.
#pragma once
#include <string>

#include "base/json.h"

namespace distsetup {

std::string queue_text(const Json& queue, const std::string& state);  // state "": all
std::string job_text(const Json& job);
std::string plan_text(const Json& plan);
std::string log_line_text(const Json& line);  // ends in '\n'

}  // namespace distsetup
