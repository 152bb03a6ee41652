// The list of jobs, and pages that only say something.
#pragma once
#include <string>
#include <string_view>

#include "base/json.h"
#include "service/page/views.h"

namespace distsetup {

std::string queue_page(const Json& queue);  // as GET /v1/queue answers
std::string notice_page(const Notice& notice, std::string_view version);

// "24 Nov 13:24" of "2026-11-24T13:24:45.123Z"; what is no such time stays as it is.
std::string short_time(std::string_view utc);
bool is_final_state(std::string_view state);

}  // namespace distsetup
