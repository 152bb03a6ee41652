// JSON output: keys sorted, integers as integers, doubles in shortest round-trip form, two-space indent, one final newline.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "base/json_fwd.h"

// What most files call of it, compiled once, in json.cc. All of its members would be readers of binary formats and patches too.
#if NLOHMANN_JSON_VERSION_MAJOR == 3 && NLOHMANN_JSON_VERSION_MINOR == 11
#define DISTSETUP_MEMBERS_OF_JSON(template_of)                                               \
  template_of nlohmann::json::json_value::json_value(nlohmann::json::value_t);               \
  template_of void nlohmann::json::json_value::destroy(nlohmann::json::value_t);             \
  template_of nlohmann::json::basic_json(const nlohmann::json&);                             \
  template_of nlohmann::json::basic_json(nlohmann::json&&);                                  \
  template_of nlohmann::json::basic_json(initializer_list_t, bool, nlohmann::json::value_t); \
  template_of nlohmann::json::~basic_json();                                                 \
  template_of nlohmann::json& nlohmann::json::operator=(nlohmann::json);                     \
  template_of nlohmann::json nlohmann::json::array(initializer_list_t);                      \
  template_of nlohmann::json nlohmann::json::object(initializer_list_t);                     \
  template_of std::string nlohmann::json::dump(int, char, bool, error_handler_t) const;      \
  template_of const char* nlohmann::json::type_name() const;                                 \
  template_of bool nlohmann::json::empty() const;                                            \
  template_of size_t nlohmann::json::size() const;                                           \
  template_of void nlohmann::json::push_back(nlohmann::json&&);                              \
  template_of void nlohmann::json::push_back(const nlohmann::json&);                         \
  template_of void nlohmann::json::push_back(initializer_list_t);                            \
  template_of nlohmann::json& nlohmann::json::back();                                        \
  template_of nlohmann::json& nlohmann::json::operator[](std::string);                       \
  template_of const nlohmann::json& nlohmann::json::operator[](const std::string&) const;    \
  template_of nlohmann::json& nlohmann::json::operator[](size_t);                            \
  template_of const nlohmann::json& nlohmann::json::operator[](size_t) const;                \
  template_of nlohmann::json::iterator nlohmann::json::begin();                              \
  template_of nlohmann::json::const_iterator nlohmann::json::begin() const;                  \
  template_of nlohmann::json::iterator nlohmann::json::end();                                \
  template_of nlohmann::json::const_iterator nlohmann::json::end() const;                    \
  template_of nlohmann::json::const_iterator nlohmann::json::find(const std::string&) const;
#else  // another release may declare them otherwise
#define DISTSETUP_MEMBERS_OF_JSON(template_of) template_of class nlohmann::basic_json<>;
#endif
DISTSETUP_MEMBERS_OF_JSON(extern template)

namespace distsetup {

std::string dump_json(const Json& json);  // indented, ends in '\n'

}  // namespace distsetup
