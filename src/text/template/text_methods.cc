#include "text/template/text_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "text/template/attributes.h"
#include "text/template/call.h"
#include "text/template/characters.h"
#include "text/template/letter_case.h"
#include "text/template/steps.h"
#include "text/template/text_splits.h"
#include "text/template/walk.h"

namespace distsetup::jinja {
namespace {

PyValue texts(const std::vector<std::string>& parts, bool is_safe) {
  Values items;
  for (const std::string& part : parts) items.push_back(text(part, is_safe));
  count_bytes(items.size() * sizeof(PyValue));
  return list(std::move(items));
}

// The part of a text that find(), count() … look at: [start, end) in characters.
struct Portion {
  std::string text;
  size_t start = 0;  // characters in front of it
};
std::optional<Portion> part_of(const PyValue& self, const Matched& given, size_t first) {
  if (!given.has_value(first) && !given.has_value(first + 1)) return Portion{text_of(self), 0};
  const auto size = static_cast<Integer>(num_characters(text_of(self)));
  const auto end = [&](size_t i, Integer absent) {
    Integer value = given.has_value(i) ? given.whole(i, 0) : absent;
    if (value < 0) value = std::max(value + size, Integer(0));
    return value;
  };
  const Integer start = end(first, 0), stop = std::min(end(first + 1, size), size);
  if (start > stop || start > size) return std::nullopt;
  const Slice slice = {integer(start), integer(stop), none()};
  return Portion{text_of(slice_of(self, slice)), static_cast<size_t>(start)};
}

PyValue strip_method(const PyValue& self, std::string_view name, const CallArguments& arguments) {
  const Matched given(name, arguments, {"chars"});
  const Side side = name == "strip" ? Side::kBoth : name == "lstrip" ? Side::kLeft : Side::kRight;
  std::optional<std::string_view> chars;
  if (given.has_value(0)) chars = given.text_at(0);
  return text(std::string(strip(text_of(self), side, chars)), self.flag);
}

PyValue split_method(const PyValue& self, std::string_view name, const CallArguments& arguments) {
  const Matched given(name, arguments, {"sep", "maxsplit"});
  const Integer most = given.whole(1, -1);
  const bool is_right = name == "rsplit";
  if (!given.has_value(0)) {
    return texts(is_right ? split_at_space_from_right(text_of(self), most) : split_at_space(text_of(self), most), self.flag);
  }
  const std::string& separator = given.text_at(0);
  if (separator.empty()) fail("split() at an empty text");
  return texts(is_right ? split_from_right(text_of(self), separator, most) : split_at(text_of(self), separator, most), self.flag);
}

PyValue partition_method(const PyValue& self, std::string_view name, const CallArguments& arguments) {
  const Matched given(name, arguments, {"sep"}, 1);
  const std::string& whole = text_of(self);
  const std::string& separator = given.text_at(0);
  if (separator.empty()) fail("partition() at an empty text");
  const bool is_right = name == "rpartition";
  const size_t at = is_right ? whole.rfind(separator) : whole.find(separator);
  std::array<std::string, 3> parts;
  if (at == std::string::npos) {
    parts[is_right ? 2 : 0] = whole;
  } else {
    parts = {whole.substr(0, at), separator, whole.substr(at + separator.size())};
  }
  return tuple({text(parts[0], self.flag), text(parts[1], self.flag), text(parts[2], self.flag)});
}

// startswith and endswith: one text, or any of a tuple.
PyValue edge_method(const PyValue& self, std::string_view name, const CallArguments& arguments) {
  const Matched given(name, arguments, {"prefix", "start", "end"}, 1);
  const std::optional<Portion> part = part_of(self, given, 1);
  const Values wanted = given.at(0).is(Type::kTuple) ? items_of(given.at(0)) : Values{given.at(0)};
  for (const PyValue& one : wanted) {
    if (!one.is(Type::kText)) fail(fmt::format("{}() needs a text or a tuple of texts, found {}", name, type_name(one)));
    const std::string& edge = text_of(one);
    if (!part || edge.size() > part->text.size()) continue;
    if (part->text.compare(name == "startswith" ? 0 : part->text.size() - edge.size(), edge.size(), edge) == 0) return boolean(true);
  }
  return boolean(false);
}

PyValue find_method(const PyValue& self, std::string_view name, const CallArguments& arguments) {
  const Matched given(name, arguments, {"sub", "start", "end"}, 1);
  const std::string& wanted = given.text_at(0);
  const std::optional<Portion> part = part_of(self, given, 1);
  const bool is_right = name[0] == 'r';
  const size_t at = !part ? std::string::npos : is_right ? part->text.rfind(wanted) : part->text.find(wanted);
  if (at != std::string::npos)
    return integer(static_cast<Integer>(part->start + num_characters(std::string_view(part->text).substr(0, at))));
  if (name == "index" || name == "rindex") fail(fmt::format("{}(): the text does not have '{}'", name, wanted));
  return integer(-1);
}

PyValue count_method(const PyValue& self, std::string_view name, const CallArguments& arguments) {
  const Matched given(name, arguments, {"sub", "start", "end"}, 1);
  const std::optional<Portion> part = part_of(self, given, 1);
  const std::string& wanted = given.text_at(0);
  if (!part) return integer(0);
  if (wanted.empty()) return integer(static_cast<Integer>(num_characters(part->text)) + 1);
  Integer count = 0;
  for (size_t at = part->text.find(wanted); at != std::string::npos; at = part->text.find(wanted, at + wanted.size())) ++count;
  return integer(count);
}

PyValue replace_method(const PyValue& self, std::string_view name, const CallArguments& arguments) {
  const Matched given(name, arguments, {"old", "new", "count"}, 2);
  const bool escapes = self.flag && !given.at(1).flag;
  const std::string with = escapes ? escape_html(given.text_at(1)) : given.text_at(1);
  return text(replaced(text_of(self), given.text_at(0), with, given.whole(2, -1)), self.flag);
}

PyValue join_method(const PyValue& self, std::string_view name, const CallArguments& arguments) {
  const Matched given(name, arguments, {"iterable"}, 1);
  std::string joined;
  bool is_first = true;
  for (Walk walk(given.at(0)); std::optional<PyValue> one = walk.next(); is_first = false) {
    if (!one->is(Type::kText)) fail(fmt::format("join() needs texts, found {}", type_name(*one)));
    if (!is_first) joined += text_of(self);
    joined += self.flag && !one->flag ? escape_html(text_of(*one)) : text_of(*one);
    count_bytes(text_of(self).size() + text_of(*one).size());
  }
  return text(std::move(joined), self.flag);
}

PyValue align_method(const PyValue& self, std::string_view name, const CallArguments& arguments) {
  const Matched given(name, arguments, {"width", "fillchar"}, 1);
  const std::string fill = given.has(1) ? given.text_at(1) : " ";
  if (num_characters(fill) != 1) fail(fmt::format("{}() fills with one character", name));
  const Align align = name == "ljust" ? Align::kLeft : name == "rjust" ? Align::kRight : Align::kCentre;
  return text(aligned(text_of(self), align, given.whole(0, 0), fill), self.flag);
}

PyValue zfill_method(const PyValue& self, std::string_view name, const CallArguments& arguments) {
  const Matched given(name, arguments, {"width"}, 1);
  const std::string& whole = text_of(self);
  const bool has_sign = !whole.empty() && (whole[0] == '-' || whole[0] == '+');
  const std::string sign = has_sign ? whole.substr(0, 1) : "";
  const std::string rest = whole.substr(sign.size());
  return text(sign + aligned(rest, Align::kRight, given.whole(0, 0) - static_cast<Integer>(sign.size()), "0"), self.flag);
}

PyValue remove_method(const PyValue& self, std::string_view name, const CallArguments& arguments) {
  const Matched given(name, arguments, {"affix"}, 1);
  std::string_view whole = text_of(self);
  const std::string& affix = given.text_at(0);
  if (affix.size() <= whole.size()) {
    if (name == "removeprefix" && whole.substr(0, affix.size()) == affix)
      whole.remove_prefix(affix.size());
    else if (name == "removesuffix" && whole.substr(whole.size() - affix.size()) == affix)
      whole.remove_suffix(affix.size());
  }
  return text(std::string(whole), self.flag);
}

PyValue case_method(const PyValue& self, std::string_view name, const CallArguments& arguments) {
  (void)Matched(name, arguments, {});
  const std::string& whole = text_of(self);
  count_bytes(whole.size() * 4);
  if (name == "upper") return text(upper_case(whole), self.flag);
  if (name == "lower") return text(lower_case(whole), self.flag);
  if (name == "capitalize") return text(capitalised(whole), self.flag);
  if (name == "title") return text(title_case(whole), self.flag);
  return text(swapped_case(whole), self.flag);
}

PyValue lines_method(const PyValue& self, std::string_view name, const CallArguments& arguments) {
  const Matched given(name, arguments, {"keepends"});
  return texts(split_lines(text_of(self), given.truth_of(0, false)), self.flag);
}

using Method = PyValue (*)(const PyValue&, std::string_view, const CallArguments&);
const std::map<std::string_view, Method>& methods() {
  static const std::map<std::string_view, Method> all = {{"strip", strip_method},          {"lstrip", strip_method},
                                                         {"rstrip", strip_method},         {"split", split_method},
                                                         {"rsplit", split_method},         {"partition", partition_method},
                                                         {"rpartition", partition_method}, {"startswith", edge_method},
                                                         {"endswith", edge_method},        {"find", find_method},
                                                         {"rfind", find_method},           {"index", find_method},
                                                         {"rindex", find_method},          {"count", count_method},
                                                         {"replace", replace_method},      {"join", join_method},
                                                         {"ljust", align_method},          {"rjust", align_method},
                                                         {"center", align_method},         {"zfill", zfill_method},
                                                         {"removeprefix", remove_method},  {"removesuffix", remove_method},
                                                         {"upper", case_method},           {"lower", case_method},
                                                         {"capitalize", case_method},      {"title", case_method},
                                                         {"swapcase", case_method},        {"splitlines", lines_method}};
  return all;
}

// islower(), isdigit() …: none: not such a question.
std::optional<bool> answer(std::string_view name, std::u32string_view points) {
  const auto all = [&](auto holds) { return !points.empty() && std::all_of(points.begin(), points.end(), holds); };
  const auto any = [&](auto holds) { return std::any_of(points.begin(), points.end(), holds); };
  if (name == "isspace") return all(is_space);
  if (name == "isalpha") return all(is_alphabetic);
  if (name == "isdecimal") return all(is_decimal);
  if (name == "isdigit") return all(is_digit_like);
  if (name == "isalnum") return all([](char32_t c) { return is_alphabetic(c) || is_numeric(c); });
  if (name == "isascii") return !any([](char32_t c) { return c > 0x7f; });
  if (name == "isprintable") return !any([](char32_t c) { return !is_printable(c); });
  if (name == "islower") return any(is_lower) && !any([](char32_t c) { return is_upper(c) || is_title(c); });
  if (name == "isupper") return any(is_upper) && !any([](char32_t c) { return is_lower(c) || is_title(c); });
  return std::nullopt;
}

}  // namespace

PyValue call_text_method(const PyValue& self, std::string_view name, const CallArguments& arguments) {
  count_bytes(text_of(self).size());
  const auto found = methods().find(name);
  if (found != methods().end()) return found->second(self, name, arguments);
  if (const std::optional<bool> known = answer(name, code_points(text_of(self)))) {
    (void)Matched(name, arguments, {});
    return boolean(*known);
  }
  fail(fmt::format("the method '{}' of a text is not read", name));
}

}  // namespace distsetup::jinja
