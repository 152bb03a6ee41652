#include "codegen/job/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/map_reader.h"
#include "base/names.h"
#include "base/value.h"
#include "base/value_yaml.h"

namespace distsetup {
namespace {

constexpr char kTablePath[] = "_job/settings.yaml";

struct SettingTypeName {
  std::string_view name;
  JobSettingType type;
};
constexpr std::array<SettingTypeName, 11> kSettingTypes = {{{"text", JobSettingType::kText},
                                                            {"switch", JobSettingType::kSwitch},
                                                            {"int", JobSettingType::kInt},
                                                            {"number", JobSettingType::kNumber},
                                                            {"list", JobSettingType::kList},
                                                            {"lines", JobSettingType::kLines},
                                                            {"words", JobSettingType::kWords},
                                                            {"duration", JobSettingType::kDuration},
                                                            {"bytes", JobSettingType::kBytes},
                                                            {"rate", JobSettingType::kRate},
                                                            {"choice", JobSettingType::kChoice}}};

JobSettingType type_named(const std::string& name, const Location& at, Diagnostics& diagnostics) {
  const auto found =
      std::find_if(kSettingTypes.begin(), kSettingTypes.end(), [&name](const SettingTypeName& one) { return one.name == name; });
  if (found != kSettingTypes.end()) return found->type;
  std::vector<std::string> known;
  for (const SettingTypeName& one : kSettingTypes) known.emplace_back(one.name);
  diagnostics.push_back(error(code::kTemplate, at, fmt::format("unknown type '{}' of a setting", name), suggest(name, known)));
  return JobSettingType::kText;
}

Json read_fallback(const JobSetting& setting, const Value& value, Diagnostics& diagnostics) {
  if (setting.type != JobSettingType::kInt) return value.text;
  const Result<int64_t> number = as_int(value);
  append(diagnostics, number.diagnostics);
  return number.ok() ? Json(*number) : Json();
}

JobSetting read_setting(const Value& row, bool is_of_site, Diagnostics& diagnostics) {
  JobSetting setting;
  std::string type;
  int64_t least = 0, most = 0;
  MapReader reader(row, "a setting", diagnostics);
  for (const char* key : {"key", "type", "help"}) reader.require(key);
  reader.get("key", setting.key);
  if (is_of_site) setting.site = setting.key;
  if (!reader.get("flag", setting.flag)) setting.flag = setting.key;
  reader.get("aliases", setting.aliases);
  reader.get("type", type);
  setting.type = type_named(type, row.location, diagnostics);
  reader.get("choices", setting.choices);
  reader.get("least", least);
  reader.get("most", most);
  if (const Value* fallback = reader.child("default")) setting.fallback = read_fallback(setting, *fallback, diagnostics);
  reader.get("letters", setting.letters);
  reader.get("acts_on", setting.fields);
  if (reader.get("field", setting.field)) setting.fields.insert(setting.fields.begin(), setting.field);
  reader.get("placeholder", setting.placeholder);
  reader.get("help", setting.help);
  reader.finish();
  setting.minimum = static_cast<int>(least);
  setting.maximum = static_cast<int>(most);
  const auto fail = [&](std::string message) { diagnostics.push_back(error(code::kTemplate, row.location, std::move(message))); };
  const bool is_of_site_alone = setting.flag.empty() && !setting.site.empty();  // price: of plans, not of jobs
  if (setting.fields.empty() && !is_of_site_alone) fail(fmt::format("setting '{}' has neither field nor acts_on", setting.key));
  for (const std::string& field : setting.fields) {
    if (field.compare(0, 4, "job.") != 0) fail(fmt::format("field '{}' of setting '{}' is none of a job: job.*", field, setting.key));
  }
  if ((setting.type == JobSettingType::kChoice) == setting.choices.empty())
    fail(fmt::format("setting '{}': choices belong to type choice, and to no other", setting.key));
  return setting;
}

}  // namespace

Result<std::vector<JobSetting>> parse_job_settings(std::string_view text, const std::string& file_name) {
  const Result<Value> root = parse_yaml(text, file_name);
  if (!root.ok()) return root.diagnostics;
  Diagnostics diagnostics;
  std::vector<JobSetting> settings;
  int64_t version = 0;
  MapReader reader(*root, "the table of settings", diagnostics);
  reader.get("version", version);
  for (const bool is_of_site : {true, false}) {
    const Value* rows = reader.child(is_of_site ? "site" : "job");
    for (const Value& row : rows == nullptr ? std::vector<Value>{} : rows->items)
      settings.push_back(read_setting(row, is_of_site, diagnostics));
  }
  reader.finish();
  if (version != 1)
    diagnostics.push_back(error(code::kTemplate, root->location, fmt::format("settings of version {}, expected 1", version)));
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(settings), std::move(diagnostics)};
}

const std::vector<JobSetting>& job_settings() {
  static const std::vector<JobSetting> kSettings = [] {
    const std::string* text = find_file(embedded_templates(), kTablePath);
    CHECK(text != nullptr, "no {}", kTablePath);
    Result<std::vector<JobSetting>> read = parse_job_settings(*text, std::string("templates/") + kTablePath);
    CHECK(read.ok(), "{}", format_diagnostics(read.diagnostics));
    return std::move(*read);
  }();
  return kSettings;
}

const JobSetting& job_setting(std::string_view key) {
  const std::vector<JobSetting>& settings = job_settings();
  const auto found = std::find_if(settings.begin(), settings.end(), [key](const JobSetting& one) { return one.key == key; });
  CHECK(found != settings.end(), "no setting '{}' of a job", key);
  return *found;
}

std::vector<const JobSetting*> site_keys() {
  std::vector<const JobSetting*> keys;
  for (const JobSetting& setting : job_settings()) {
    if (!setting.site.empty()) keys.push_back(&setting);
  }
  return keys;
}

bool is_list(JobSettingType type) {
  return type == JobSettingType::kList || type == JobSettingType::kLines || type == JobSettingType::kWords;
}

std::string flag_name(const JobSetting& setting) { return setting.flag.empty() ? setting.key : "--" + setting.flag; }

bool target_uses(const TemplateSet& templates, std::string_view target, const std::vector<std::string>& fields) {
  const std::string folder = std::string(target) + "/";
  for (const auto& [path, text] : templates.files) {
    if (path.compare(0, folder.size(), folder) != 0 || path.find(".yaml") == std::string::npos) continue;
    for (const std::string& field : fields) {
      for (size_t at = text.find(field); at != std::string::npos; at = text.find(field, at + 1)) {
        const char next = at + field.size() < text.size() ? text[at + field.size()] : ' ';
        if (next != '_' && (next < 'a' || next > 'z')) return true;
      }
    }
  }
  return false;
}

}  // namespace distsetup
