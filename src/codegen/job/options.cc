#include "codegen/job/options.h"

#include "base/check.h"
#include "codegen/job/settings.h"

namespace distsetup {
namespace {

bool is_of_type(const Json& value, JobSettingType type) {
  if (is_list(type)) return value.is_array();
  if (type == JobSettingType::kSwitch) return value.is_boolean();
  return type == JobSettingType::kInt ? value.is_number_integer() : value.is_string();
}

}  // namespace

void JobValues::set(std::string_view key, Json value) {
  CHECK(is_of_type(value, job_setting(key).type), "setting '{}' of another type: {}", key, value.dump());
  given_.insert_or_assign(std::string(key), std::move(value));
}

bool JobValues::has(std::string_view key) const { return given_.find(key) != given_.end(); }

const Json& JobValues::value(std::string_view key) const {
  const auto found = given_.find(key);
  return found != given_.end() ? found->second : job_setting(key).fallback;
}

std::string JobValues::text(std::string_view key) const {
  const Json& found = value(key);
  return found.is_null() ? "" : found.get<std::string>();
}

std::optional<int> JobValues::number(std::string_view key) const {
  const Json& found = value(key);
  return found.is_null() ? std::nullopt : std::optional<int>(found.get<int>());
}

bool JobValues::is_on(std::string_view key) const {
  const Json& found = value(key);
  return !found.is_null() && found.get<bool>();
}

std::vector<std::string> JobValues::list(std::string_view key) const {
  const Json& found = value(key);
  return found.is_null() ? std::vector<std::string>{} : found.get<std::vector<std::string>>();
}

}  // namespace distsetup
