#include "codegen/job/site_schema.h"

#include "base/json.h"
#include "codegen/job/settings.h"

namespace distsetup {
namespace {

Json schema_of(const JobSetting& key) {
  Json schema = {{"description", key.help}};
  switch (key.type) {
    case JobSettingType::kSwitch: schema["type"] = "boolean"; break;
    case JobSettingType::kInt:
      schema["type"] = "integer";
      schema["minimum"] = key.minimum;
      schema["maximum"] = key.maximum;
      break;
    case JobSettingType::kNumber:
      schema["type"] = "number";
      schema["minimum"] = 0;
      break;
    case JobSettingType::kList:
    case JobSettingType::kLines:
    case JobSettingType::kWords: schema["anyOf"] = {{{"type", "string"}}, {{"type", "array"}, {"items", {{"type", "string"}}}}}; break;
    case JobSettingType::kChoice:
      schema["type"] = "string";
      schema["enum"] = key.choices;
      break;
    case JobSettingType::kText:
    case JobSettingType::kDuration:
    case JobSettingType::kBytes:
    case JobSettingType::kRate: schema["type"] = "string"; break;
  }
  return schema;
}

}  // namespace

Json site_schema() {
  Json root = {{"$schema", "http://json-schema.org/draft-07/schema#"},
               {"title", "site.yaml of distsetup"},
               {"type", "object"},
               {"required", {"version"}},
               {"additionalProperties", false}};
  root["properties"]["version"] = {{"const", 1}};
  root["properties"]["name"] = {{"type", "string"}, {"description", "what the site is called"}};
  for (const JobSetting* key : site_keys()) {
    const std::string& path = key->site;
    const size_t dot = path.find('.');
    Json& properties = root["properties"];
    if (dot == std::string::npos) {
      properties[path] = schema_of(*key);
      continue;
    }
    Json& section = properties[path.substr(0, dot)];
    section["type"] = "object";
    section["additionalProperties"] = false;
    section["properties"][path.substr(dot + 1)] = schema_of(*key);
  }
  return root;
}

}  // namespace distsetup
