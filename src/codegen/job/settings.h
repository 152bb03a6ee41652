// The table of job settings (templates/_job/settings.yaml): a row there makes a setting. Flags and their help, site.yaml's reader,
// schema and writer, the refusal of flags that do nothing for a target, and the fields of a job are walks over it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "base/json.h"
#include "codegen/tables/templates.h"

namespace distsetup {

enum class JobSettingType { kText, kSwitch, kInt, kNumber, kList, kLines, kWords, kDuration, kBytes, kRate, kChoice };

struct JobSetting {
  std::string key;                   // "gpus.request"
  std::string site;                  // the same where it is a key of site.yaml; empty: a setting of one job
  std::string flag;                  // without dashes; empty: a key of site.yaml only
  std::vector<std::string> aliases;  // other spellings of the flag
  JobSettingType type = JobSettingType::kText;
  std::vector<std::string> choices;  // kChoice
  int minimum = 0, maximum = 0;      // kInt
  Json fallback;                     // when nobody says; null: nothing then
  std::string letters;               // beside letters and digits, where nothing else may be in it
  std::string field;                 // "job.partition" takes the value as it is; empty: none does
  std::vector<std::string> fields;   // all that follow from it; what a target mentions when it uses the setting
  std::string placeholder, help;     // help: one line, lower case
};

// Errors (kTemplate): mistakes of the table, each at its place.
Result<std::vector<JobSetting>> parse_job_settings(std::string_view text, const std::string& file_name);

// The rows of the embedded table: site keys in the order of a site file, then those of one job.
const std::vector<JobSetting>& job_settings();
const JobSetting& job_setting(std::string_view key);  // of a key that exists
std::vector<const JobSetting*> site_keys();           // those with a key of site.yaml

bool is_list(JobSettingType type);                 // a value is several texts
std::string flag_name(const JobSetting& setting);  // "--partition"; the key where there is no flag

// Whether a file of the target mentions one of the fields.
bool target_uses(const TemplateSet& templates, std::string_view target, const std::vector<std::string>& fields);

}  // namespace distsetup
