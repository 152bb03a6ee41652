// From the nearest to the farthest: names that have it as a part; the name before a misspelt "-Instruct"; names like the whole; like
// it without its owner ("meta-llama/"); like it without its last words, where a word that is no name's part or a misspelt "-Instruct"
// may stand; names that begin like it.
#include "model/near_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <iterator>

#include "base/names.h"

namespace distsetup {
namespace {

constexpr size_t kListed = 6;
constexpr size_t kShortestPart = 3;   // letters that say something of a name
constexpr size_t kLongestName = 128;  // more is no name that somebody mistyped: its words are not tried one by one
constexpr size_t kLongName = 8;       // where one letter more or less is a likeness, though words behind it are left out

bool is_separator(char c) { return c == '-' || c == '_' || c == '.' || c == ' '; }

std::string one_of(const std::vector<std::string>& names) {
  if (names.size() == 1) return fmt::format("did you mean '{}'", names.front());
  const size_t listed = std::min(names.size(), kListed);
  const std::string more = names.size() > listed ? fmt::format(" and {} more", names.size() - listed) : "";
  return fmt::format("did you mean one of {}{}", fmt::join(names.begin(), names.begin() + static_cast<long>(listed), ", "), more);
}

// Leaves the last word away; false: there is only one.
bool leave_last_word(std::string& name) {
  const size_t dash = name.find_last_of("-_ ");
  if (dash == std::string::npos || dash == 0) return false;
  name.resize(dash);
  return true;
}

std::string without_last_words(std::string name, const std::vector<std::string>& known) {
  while (leave_last_word(name)) {
    std::string near = nearest_name(name, known);
    if (!near.empty() && (same_name(near, name) || name.size() >= kLongName)) return near;
  }
  return "";
}

std::string before_instruct(std::string name, const std::vector<std::string>& known) {
  const std::string endings[] = {"Instruct"}, whole = name;
  if (!leave_last_word(name) || nearest_name(whole.substr(name.size() + 1), endings).empty()) return "";
  const auto found =
      std::find_if(known.begin(), known.end(), [&](const std::string& one) { return normal_name(one) == normal_name(name); });
  return found == known.end() ? "" : *found;
}

std::vector<std::string> beginning_like(std::string_view name, const std::vector<std::string>& ids) {
  std::vector<std::string> beginnings;
  for (std::string id : ids)
    while (leave_last_word(id)) beginnings.push_back(id);
  const std::string near = nearest_name(name, beginnings);
  std::vector<std::string> out;
  if (!near.empty())
    std::copy_if(ids.begin(), ids.end(), std::back_inserter(out), [&](const std::string& id) { return id.starts_with(near); });
  return out;
}

// Qwen3-VL-8B is no misspelt Qwen3-VL-2B: the numbers of a name on the Hub say which model it is.
std::string numbers_of(std::string_view name) {
  std::string numbers;
  for (size_t i = 0; i < name.size(); ++i)
    if (is_digit(name[i]))
      numbers += name[i];
    else if (i > 0 && is_digit(name[i - 1]))
      numbers += ' ';
  while (!numbers.empty() && numbers.back() == ' ') numbers.pop_back();
  return numbers;
}

}  // namespace

std::string normal_name(std::string_view name) {
  std::string normal;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (!is_separator(c)) {
      normal += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!normal.empty() && is_digit(normal.back()) && i + 1 < name.size() && is_digit(name[i + 1])) {
      normal += '_';
    }
  }
  return normal;
}

std::string suggest_preset(std::string_view name, const std::vector<std::string>& ids, const std::vector<std::string>& stated) {
  if (name.size() > kLongestName) return suggest(name, ids);
  const std::string own(name.substr(name.rfind('/') + 1));  // npos + 1 is 0
  const std::string part = normal_name(own);
  std::vector<std::string> holding;
  if (part.size() >= kShortestPart)
    std::copy_if(ids.begin(), ids.end(), std::back_inserter(holding),
                 [&](const std::string& id) { return normal_name(id).find(part) != std::string::npos; });
  if (!holding.empty()) return one_of(holding);
  std::vector<std::string> known = ids;
  known.insert(known.end(), stated.begin(), stated.end());
  for (const std::string& near : {before_instruct(std::string(name), known), before_instruct(own, known), nearest_name(name, known),
                                  nearest_name(own, known), without_last_words(own, known)})
    if (!near.empty() && (own == name || numbers_of(near) == numbers_of(own) || numbers_of(near) == numbers_of(name)))
      return one_of({near});
  const std::vector<std::string> alike = part.size() >= kShortestPart ? beginning_like(own, ids) : std::vector<std::string>{};
  return alike.empty() ? suggest(name, ids) : one_of(alike);
}

}  // namespace distsetup
