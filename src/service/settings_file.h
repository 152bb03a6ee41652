// The service's part of its configuration file: a run file of Llama Stack with a provider (providers.post_training), the provider's
// config alone, and a section `serve` of our own in either.
#pragma once
#include "base/value.h"
#include "service/service_settings.h"

namespace distsetup {

// Over what `settings` has. Unknown keys of `serve` are errors; those of the provider are `distsetup validate`'s matter.
Diagnostics apply_settings_file(const Value& file, ServiceSettings& settings);

std::string mode_name(ServiceMode mode);  // "inline", "remote", "front"
Result<ServiceMode> mode_from(const std::string& text, const Location& at);
Result<LauncherKind> launcher_from(const std::string& text, const Location& at);

}  // namespace distsetup
