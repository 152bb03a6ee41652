// Values out of JSON that may lack them: 0, "" or an empty list where there is none or it is of another kind.
#pragma once
#include <string>

#include "base/json.h"

namespace distsetup {

double number_at(const Json& json, const char* path);  // "/memory/device_bytes"
int64_t whole_at(const Json& json, const char* path);
std::string text_at(const Json& json, const char* path);
const Json& list_at(const Json& json, const char* path);
bool has_number_at(const Json& json, const char* path);

}  // namespace distsetup
