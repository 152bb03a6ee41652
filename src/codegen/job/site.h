// site.yaml, version 1: a site's own values of the settings. Strongest first: flags, site.yaml, the defaults of the table. Nothing of
// a site's own stands in a template.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/diagnostic.h"
#include "base/value.h"
#include "codegen/job/options.h"
#include "codegen/job/settings.h"

namespace distsetup {

// What is wrong with the text of a setting, and the setting: `text` is as typed, of a flag or in site.yaml; lists are split here. What
// a value means for a job is checked where it becomes a field.
Diagnostics set_job_option(JobOptions& options, const JobSetting& setting, std::string_view text, const Location& at);

// Read strictly; all mistakes together. The values go into `options`, and the file's name with its digest (for headers).
Diagnostics apply_site(JobOptions& options, const Value& site, std::string_view text, const std::string& file_name);

// A site file as text: version, and the keys with a value, each with its help as a comment.
std::string site_yaml(const std::vector<std::pair<std::string, std::vector<std::string>>>& values);

}  // namespace distsetup
