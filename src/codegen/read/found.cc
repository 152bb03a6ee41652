#include "codegen/read/found.h"

#include <algorithm>

namespace distsetup {
namespace {

std::string text_of_value(const Value& value) {
  if (value.kind == Value::Kind::kScalar || value.kind == Value::Kind::kNull) return value.text;
  std::string out;
  for (const Value& item : value.items) out += (out.empty() ? "" : ",") + text_of_value(item);
  if (value.kind == Value::Kind::kList) return "[" + out + "]";
  for (const Value::Entry& entry : value.entries) out += (out.empty() ? "" : ", ") + entry.first + ": " + text_of_value(entry.second);
  return "{" + out + "}";
}

void collect_leaves(const Value& value, const std::string& key, const Location& at, const std::vector<std::string>& lists,
                    std::vector<FoundKey>& out) {
  if (value.kind == Value::Kind::kNull && key.empty()) return;
  if (value.kind == Value::Kind::kList && std::find(lists.begin(), lists.end(), key) != lists.end()) {
    for (size_t i = 0; i < value.items.size(); ++i)
      collect_leaves(value.items[i], key + "." + std::to_string(i), value.items[i].location, lists, out);
    return;
  }
  if (value.kind == Value::Kind::kMap) {
    for (size_t i = 0; i < value.entries.size(); ++i) {
      const Value::Entry& entry = value.entries[i];
      const Location& place = i < value.key_locations.size() ? value.key_locations[i] : entry.second.location;
      collect_leaves(entry.second, key.empty() ? entry.first : key + "." + entry.first, place, lists, out);
    }
    return;
  }
  FoundKey leaf;
  leaf.key = key;
  leaf.at = at;
  leaf.is_null = value.kind == Value::Kind::kNull;
  leaf.text = leaf.is_null ? "null" : value.text;
  leaf.is_list = value.kind == Value::Kind::kList;
  if (leaf.is_list) {
    for (const Value& item : value.items) {
      leaf.items.push_back(text_of_value(item));
      leaf.text += (leaf.items.size() > 1 ? "," : "") + leaf.items.back();
    }
  }
  out.push_back(std::move(leaf));
}

}  // namespace

std::vector<FoundKey> found_in(const Value& root, const std::vector<std::string>& lists) {
  std::vector<FoundKey> out;
  collect_leaves(root, "", root.location, lists, out);
  return out;
}

bool is_placeholder(std::string_view value) {
  if (value.size() < 3) return false;
  if (value.front() == '<' && value.find('>') != std::string_view::npos) return true;  // "<your folder>/run"
  const bool is_marked = (value.front() == '{' && value.back() == '}') || (value.front() == '<' && value.back() == '>');
  return is_marked && value.substr(1, value.size() - 2).find_first_of("{}<>,:\"'") == std::string_view::npos;
}

}  // namespace distsetup
