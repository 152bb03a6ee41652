// Looking things up in the tree of a structured file by path.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/value.h"

namespace distsetup::foreign {

// A key on the way "zero_optimization.offload_param.device"; map and index say where.
struct TreeNode {
  const Value* value = nullptr;
  const Value* map = nullptr;
  size_t index = 0;
  explicit operator bool() const { return value != nullptr; }
  const std::string& text() const { return value->text; }
};
TreeNode node(const Value& root, std::string_view path);
bool has(const Value& root, std::string_view path);                    // and it is not null
std::string text(const Value& root, std::string_view path);            // "" when absent or no scalar
std::optional<double> real(const Value& root, std::string_view path);  // numbers only, quoted or not
bool is_true(const Value& root, std::string_view path);                // true, "true", yes, on
bool is_false(const Value& root, std::string_view path);
std::optional<double> real_of(const Value& value);

}  // namespace distsetup::foreign
