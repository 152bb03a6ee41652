#include "service/page/json_values.h"

namespace distsetup {
namespace {

const Json* value_at(const Json& json, const char* path) {
  const Json::json_pointer pointer(path);
  return json.contains(pointer) ? &json.at(pointer) : nullptr;
}

}  // namespace

bool has_number_at(const Json& json, const char* path) {
  const Json* value = value_at(json, path);
  return value != nullptr && value->is_number();
}

double number_at(const Json& json, const char* path) { return has_number_at(json, path) ? value_at(json, path)->get<double>() : 0; }

int64_t whole_at(const Json& json, const char* path) { return has_number_at(json, path) ? value_at(json, path)->get<int64_t>() : 0; }

std::string text_at(const Json& json, const char* path) {
  const Json* value = value_at(json, path);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

const Json& list_at(const Json& json, const char* path) {
  static const Json kNone = Json::array();
  const Json* value = value_at(json, path);
  return value != nullptr && value->is_array() ? *value : kNone;
}

}  // namespace distsetup
