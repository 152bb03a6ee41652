// Settings of a job beyond the plan, and site.yaml: one table. A row is a member of JobOptions with the flag that sets it, the key of
// site.yaml that gives a site's own value, and the fields it becomes (what a target's files must mention for the flag to act there).
// The reader of site.yaml, its schema, the flags and their help are walks over it.
// Strongest first: flags, site.yaml, what JobOptions begins with. Nothing of a site's own stands in a template.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/diagnostic.h"
#include "base/json_fwd.h"
#include "base/value.h"
#include "codegen/codegen.h"

namespace distsetup {

enum class JobSettingType { kText, kSwitch, kInt, kList, kLines, kWords, kDuration, kBytes, kRate, kChoice };

struct JobSetting {
  using Member = std::variant<std::string JobOptions::*, bool JobOptions::*, int JobOptions::*, std::optional<int> JobOptions::*,
                              std::vector<std::string> JobOptions::*>;
  std::string_view site;                  // key of site.yaml, '.' between levels; empty: a flag only
  std::string_view flag;                  // without dashes; empty: a key of site.yaml only
  std::vector<std::string_view> aliases;  // other spellings of the flag
  JobSettingType type = JobSettingType::kText;
  Member member = &JobOptions::job_name;
  std::vector<std::string_view> fields;   // "job.partition"; what a target mentions when it uses the setting
  std::string_view placeholder, help;     // help: one line, lower case
  std::vector<std::string_view> choices;  // kChoice
  int minimum = 0, maximum = 0;           // kInt
};

std::span<const JobSetting> job_settings();
// Those with a key of site.yaml, in the order in which a site file is written.
std::vector<const JobSetting*> site_keys();

// What is wrong with the text of a setting, and the setting: `text` is as typed; lists are split here.
Diagnostics set_job_option(JobOptions& options, const JobSetting& setting, std::string_view text, const Location& at);

// site.yaml, version 1, read strictly; all mistakes together. Its values go into `options`, and its digest (for headers).
Diagnostics apply_site(JobOptions& options, const Value& site, std::string_view text, const std::string& file_name);

// A site file as text: version, and the keys with a value, each with its help as a comment.
std::string site_yaml(const std::vector<std::pair<std::string, std::vector<std::string>>>& values);

// site.yaml as JSON Schema, draft-07.
Json site_schema();

// Whether a file of the target mentions one of the setting's fields.
bool target_uses(const TemplateSet& templates, std::string_view target, const JobSetting& setting);

}  // namespace distsetup
