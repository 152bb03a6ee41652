#include "codegen/read/tree.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace distsetup::foreign {

TreeNode node(const Value& root, std::string_view path) {
  TreeNode out{&root, nullptr, 0};
  while (!path.empty()) {
    const size_t dot = std::min(path.find('.'), path.size());
    const std::string_view key = path.substr(0, dot);
    const Value* map = out.value;
    if (map->kind != Value::Kind::kMap) return {};
    size_t i = 0;
    while (i < map->entries.size() && map->entries[i].first != key) ++i;
    if (i == map->entries.size()) return {};
    out = {&map->entries[i].second, map, i};
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return out;
}

bool has(const Value& root, std::string_view path) {
  const TreeNode at = node(root, path);
  return at && at.value->kind != Value::Kind::kNull;
}

std::string text(const Value& root, std::string_view path) {
  const TreeNode at = node(root, path);
  return at && at.value->kind == Value::Kind::kScalar ? at.text() : "";
}

std::optional<double> real_of(const Value& value) {
  if (value.kind != Value::Kind::kScalar || value.text.empty()) return std::nullopt;
  double out = 0;
  const char* const end = value.text.data() + value.text.size();
  const auto [stop, status] = std::from_chars(value.text.data(), end, out);
  if (status != std::errc() || stop != end) return std::nullopt;
  return out;
}

std::optional<double> real(const Value& root, std::string_view path) {
  const TreeNode at = node(root, path);
  return at ? real_of(*at.value) : std::nullopt;
}

namespace {

bool is_one_of(const Value& root, std::string_view path, std::initializer_list<std::string_view> words) {
  std::string found = text(root, path);
  std::transform(found.begin(), found.end(), found.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::find(words.begin(), words.end(), found) != words.end();
}

}  // namespace

bool is_true(const Value& root, std::string_view path) { return is_one_of(root, path, {"true", "yes", "on", "1"}); }
bool is_false(const Value& root, std::string_view path) { return is_one_of(root, path, {"false", "no", "off", "0"}); }

}  // namespace distsetup::foreign
