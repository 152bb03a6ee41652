#include "codegen/lint/key_types.h"

#include <cmath>
#include <optional>

#include "base/names.h"
#include "codegen/read/tree.h"

namespace distsetup::lint {
namespace {

using foreign::real_of;

bool is_bool_word(const Value& v) { return v.text == "true" || v.text == "false" || v.text == "True" || v.text == "False"; }

// What pydantic and distutils' strtobool take for one.
bool is_read_as_bool(const Value& v) {
  const std::string word = lower(v.text);
  for (const char* one : {"true", "false", "1", "0", "yes", "no", "on", "off", "t", "f", "y", "n"}) {
    if (word == one) return true;
  }
  return false;
}

}  // namespace

std::string key_type_mismatch(const std::string& type, const Value& v) {
  if (type == "any") return "";
  if (v.kind == Value::Kind::kNull)
    return type.find('|') != std::string::npos && type.find("null") == std::string::npos ? "one of " + type : "";
  if (type == "map") return v.kind == Value::Kind::kMap ? "" : "a section";
  if (type == "list") return v.kind == Value::Kind::kList ? "" : "a list";
  if (type == "text") return v.kind == Value::Kind::kScalar ? "" : "a text";
  if (v.kind != Value::Kind::kScalar) return "a single value";
  if (type == "strict_bool") return is_bool_word(v) && !v.quoted ? "" : "true or false";
  if (type == "strict_text") return v.quoted ? "" : "a text in quotes";
  if (type == "bool") return is_read_as_bool(v) ? "" : "true or false";
  if (type.find('|') != std::string::npos) {
    for (size_t at = 0; at <= type.size();) {
      const size_t bar = std::min(type.find('|', at), type.size());
      if (type.substr(at, bar - at) == v.text) return "";
      at = bar + 1;
    }
    return "one of " + type;
  }
  std::optional<double> n;
  if (!v.quoted || type.find("strict") == std::string::npos) n = real_of(v);
  const bool is_int = type.rfind("int", 0) == 0 || type.rfind("strict_int", 0) == 0;
  std::string wanted = is_int ? "a whole number" : "a number";
  if (!n || (is_int && (*n != std::floor(*n) || (v.quoted && v.text.find_first_not_of("-0123456789") != std::string::npos))))
    return wanted;
  if (type.rfind("strict_int", 0) == 0 && v.text.find_first_not_of("-0123456789") != std::string::npos)
    return "a whole number without a point";
  if (type.find(">=0") != std::string::npos && *n < 0) return wanted + " from 0 on";
  if (type.find(">0") != std::string::npos && *n <= 0) return wanted + " above 0";
  if (type.find("0..1") != std::string::npos && (*n < 0 || *n > 1)) return "a number from 0 to 1";
  return "";
}

}  // namespace distsetup::lint
