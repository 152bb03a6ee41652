#include "model/config_keys.h"

#include <algorithm>

#include "model/condition.h"

namespace distsetup {
namespace {

bool is_set(const Value& value) {
  if (const Result<double> number = as_double(value); number.ok()) return *number != 0;
  if (const Result<bool> yes = as_bool(value); yes.ok()) return *yes;
  return !value.text.empty() || !value.items.empty() || !value.entries.empty();
}

bool is_same(const Value& value, std::string_view text) {
  const Result<double> number = as_double(value), other = as_double(scalar_value(std::string(text)));
  return number.ok() && other.ok() ? *number == *other : value.text == text;
}

}  // namespace

const Value* value_at(const Value& config, std::string_view path) {
  const Value* value = &config;
  while (value != nullptr && !path.empty()) {
    const size_t dot = std::min(path.find('.'), path.size());
    value = value->find(path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return value;
}

const Value* stated_at(const Value& config, std::string_view path) {
  const Value* value = value_at(config, path);
  return value == nullptr || value->kind == Value::Kind::kNull ? nullptr : value;
}

const Value* stated_as(const Value& config, std::string_view condition) {
  const bool expected = !condition.starts_with(kConditionNot);
  if (!expected) condition.remove_prefix(kConditionNot.size());
  const size_t equals = condition.find(kConditionEquals);
  const Value* value = stated_at(config, condition.substr(0, equals));
  if (value == nullptr) return nullptr;
  const bool holds =
      equals == std::string_view::npos ? is_set(*value) : is_same(*value, condition.substr(equals + kConditionEquals.size()));
  return holds == expected ? value : nullptr;
}

}  // namespace distsetup
