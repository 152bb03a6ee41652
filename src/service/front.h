// --mode front: what concerns jobs, data sets and plans is passed on to a remote service, with retries; its answers come back as they
// are.
#pragma once
#include <string_view>

#include "service/http_message.h"
#include "service/service.h"

namespace distsetup {

bool is_passed_on(std::string_view path);
HttpAnswer pass_on(Service& service, const HttpRequest& request);
// Whether the remote service is healthy; asked at the start, so that a front without one ends at once.
Diagnostics check_remote(const ServiceSettings& settings);

}  // namespace distsetup
