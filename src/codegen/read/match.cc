#include "codegen/read/match.h"

#include <charconv>
#include <cmath>

#include "base/names.h"
#include "base/text.h"

namespace distsetup {

// "500_000": PyYAML, TOML and Python's int take a line between digits.
static std::string without_lines(const std::string& text) {
  std::string out;
  const auto is_digit_at = [&text](size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_line = text[i] == '_' && i > 0 && is_digit_at(i - 1) && is_digit_at(i + 1);
    if (!is_line) out += text[i];
  }
  return out;
}

std::optional<double> number_of(const std::string& said) {
  const std::string text = without_lines(said);
  double number = 0;
  const char* begin = text.data() + (!text.empty() && text[0] == '+' ? 1 : 0);
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(begin, end, number);
  if (text.empty() || failure != std::errc() || stop != end || !std::isfinite(number)) return std::nullopt;
  return number;
}

namespace {

std::optional<bool> truth_of(const FoundKey& found) {
  if (found.is_list) return std::nullopt;
  if (found.stands_alone) return true;
  const std::string text = lower(found.text);
  // 1 and 0 too, as Transformers reads truth on a command line (hf_argparser.py, string_to_bool).
  if (text == "true" || text == "yes" || text == "on" || text == "1" || text == "t" || text == "y") return true;
  if (text == "false" || text == "no" || text == "off" || text == "0" || text == "f" || text == "n") return false;
  return std::nullopt;
}

bool is_integral(double number) { return std::nearbyint(number) == number && std::abs(number) < 9e15; }

}  // namespace

bool is_same_key(std::string_view one, std::string_view other) {
  if (one.size() != other.size()) return false;
  for (size_t i = 0; i < one.size(); ++i) {
    const auto fold = [](char c) { return c == '-' ? '_' : c; };
    if (fold(one[i]) != fold(other[i])) return false;
  }
  return true;
}

bool is_same(const FoundKey& found, const Json& constant) {
  if (found.is_null || constant.is_null()) return found.is_null && constant.is_null();
  if (constant.is_boolean()) return truth_of(found) == constant.get<bool>();
  if (constant.is_number()) return !found.is_list && number_of(found.text) == constant.get<double>();
  if (constant.is_array()) {
    const std::vector<std::string> items = found.is_list ? found.items : split_words(found.text, ',');
    if (items.size() != constant.size()) return false;
    for (size_t i = 0; i < items.size(); ++i) {
      if (!same_name(items[i], constant[i].is_string() ? constant[i].get<std::string>() : constant[i].dump())) return false;
    }
    return true;
  }
  return constant.is_string() && same_name(found.text, constant.get<std::string>());
}

bool is_of_type(const FoundKey& found, KeyType type) {
  KeyRow row;
  row.type = type;
  return read_backwards(row, found).has_value() || (type == KeyType::kText && same_name(found.text, "auto"));
}

Json value_of_text(const std::string& text) {
  if (text == "true") return true;
  if (text == "false") return false;
  if (text == "null") return nullptr;
  if (const std::optional<double> number = number_of(text); number && is_integral(*number)) return static_cast<int64_t>(*number);
  return text;
}

// The items of a list, also of one that is written into a text: "[0.9, 0.95]", "(0.9, 0.95)".
static std::vector<std::string> items_of(const FoundKey& found) {
  std::vector<std::string> items = !found.items.empty() ? found.items : split_words(found.text, ',');
  if (items.empty() || items.front().empty() || items.back().empty()) return items;
  const char open = items.front().front(), close = items.back().back();
  const bool is_in_brackets = (open == '[' && close == ']') || (open == '(' && close == ')');
  if (!is_in_brackets || (items.size() == 1 && items[0].size() < 3)) return items;
  items.front().erase(0, 1);
  items.back().pop_back();
  return items;
}

// A list by its items; one that the map lacks makes the whole list another value.
static std::optional<Json> list_backwards(const KeyRow& row, const FoundKey& found) {
  Json list = Json::array();
  for (const std::string& item : items_of(found)) {
    const auto entry = std::find_if(row.value_map.begin(), row.value_map.end(), [&item](const auto& one) {
      return one.second.is_string() && same_name(one.second.template get<std::string>(), item);
    });
    if (entry == row.value_map.end()) return std::nullopt;
    list.push_back(entry->first);
  }
  return list.empty() ? std::nullopt : std::optional<Json>(std::move(list));
}

// AdamW's two numbers; anything else is no value of theirs.
static std::optional<Json> betas_of(const std::vector<std::string>& items) {
  Json out = Json::array();
  for (const std::string& item : items) {
    const std::optional<double> number = number_of(item);
    if (!number || *number < 0 || *number >= 1) return std::nullopt;
    out.push_back(*number);
  }
  return out.size() == 2 ? std::optional<Json>(std::move(out)) : std::nullopt;
}

std::optional<Json> read_backwards(const KeyRow& row, const FoundKey& found) {
  if (!found.unknown.empty() || found.is_null) return std::nullopt;
  const bool is_list = row.type == KeyType::kTextList || row.type == KeyType::kCommaList;
  if (!row.value_map.empty() && is_list) return list_backwards(row, found);
  if (!row.value_map.empty()) {
    for (const auto& [ours, theirs] : row.value_map) {
      if (is_same(found, theirs)) return value_of_text(ours);
    }
    return std::nullopt;
  }
  // "gpu:8" and "h100:8" of SLURM are 8; torchrun's "2:4" is a range, and no number.
  const size_t colon = row.type == KeyType::kInt ? found.text.rfind(':') : std::string::npos;
  const bool is_range = colon != std::string::npos && found.text.find_first_not_of("0123456789:") == std::string::npos;
  const std::string text = is_range ? found.text : found.text.substr(colon + 1);  // npos + 1 = 0
  std::optional<double> number;
  if (!found.is_list) number = number_of(text);
  switch (row.type) {
    case KeyType::kBool: {
      const std::optional<bool> truth = truth_of(found);
      return truth ? std::optional<Json>(*truth) : std::nullopt;
    }
    case KeyType::kInt:
      if (!number || !is_integral(*number)) return std::nullopt;
      return static_cast<int64_t>(*number);
    case KeyType::kNumber:
      if (!number) return std::nullopt;
      return is_integral(*number) ? Json(static_cast<int64_t>(*number)) : Json(*number);
    case KeyType::kText:
      if (found.is_list || found.stands_alone || same_name(found.text, "auto")) return std::nullopt;
      return found.text;
    case KeyType::kIntList: {
      Json list = Json::array();
      for (const std::string& item : found.items) {
        const std::optional<double> one = number_of(item);
        if (!one || !is_integral(*one)) return std::nullopt;
        list.push_back(static_cast<int64_t>(*one));
      }
      return list.empty() ? std::nullopt : std::optional<Json>(std::move(list));
    }
    case KeyType::kTextList:
    case KeyType::kCommaList: {
      const std::vector<std::string> items = items_of(found);
      if (items.empty()) return std::nullopt;
      if (row.field == "derived.betas") return betas_of(items);
      return Json(items);
    }
  }
  return std::nullopt;
}

}  // namespace distsetup
