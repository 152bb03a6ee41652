#include "text/template/filters_of_texts.h"

#include <fmt/format.h>

#include "text/template/arithmetic.h"
#include "text/template/attributes.h"
#include "text/template/call.h"
#include "text/template/characters.h"
#include "text/template/json_text.h"
#include "text/template/letter_case.h"
#include "text/template/percent_format.h"
#include "text/template/python_text.h"
#include "text/template/steps.h"
#include "text/template/text_methods.h"
#include "text/template/text_splits.h"
#include "text/template/walk.h"

namespace distsetup::jinja {
namespace {

PyValue as_text(const PyValue& input) { return input.is(Type::kText) ? input : text(python_str(input)); }

PyValue string_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  (void)Matched("string", arguments, {});
  return as_text(input);
}

PyValue safe_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  (void)Matched("safe", arguments, {});
  return text(python_str(input), true);
}

PyValue escape_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  (void)Matched("escape", arguments, {});
  if (input.is(Type::kText) && input.flag) return input;
  return text(escape_html(python_str(input)), true);
}

PyValue force_escape_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  (void)Matched("forceescape", arguments, {});
  return text(escape_html(python_str(input)), true);
}

PyValue trim_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  const Matched given("trim", arguments, {"chars"});
  CallArguments chars;
  if (given.has(0)) chars.positional.push_back(given.at(0));
  return call_text_method(as_text(input), "strip", chars);
}

template <const char* kMethod>
PyValue case_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  return call_text_method(as_text(input), kMethod, arguments);
}
constexpr char kUpper[] = "upper", kLower[] = "lower", kCapitalize[] = "capitalize";

// Unlike str.title, a word begins only after blanks, hyphens and opening brackets.
PyValue title_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  (void)Matched("title", arguments, {});
  const std::u32string points = code_points(text_of(as_text(input)));
  const auto is_between = [](char32_t c) { return is_space(c) || std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos; };
  std::string out;
  for (size_t i = 0; i < points.size();) {
    size_t end = i + 1;
    while (end < points.size() && is_between(points[end]) == is_between(points[i])) ++end;
    out += upper_case(utf8(points.substr(i, 1))) + lower_case(utf8(points.substr(i + 1, end - i - 1)));
    i = end;
  }
  return text(std::move(out));
}

PyValue replace_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  const Matched given("replace", arguments, {"old", "new", "count"}, 2);
  const Integer max = given.has_value(2) ? given.whole(2, -1) : Integer(-1);
  return text(replaced(python_str(input), python_str(given.at(0)), python_str(given.at(1)), max));
}

PyValue join_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  const Matched given("join", arguments, {"d", "attribute"});
  const std::string between = given.has(0) ? python_str(given.at(0)) : "";
  std::string out;
  bool is_first = true;
  for (Walk walk(input); std::optional<PyValue> one = walk.next(); is_first = false) {
    if (!is_first) out += between;
    const std::string item = python_str(given.has_value(1) ? path_of(*one, given.at(1)) : *one);
    out += item;
    count_bytes(item.size() + between.size());
  }
  return text(std::move(out));
}

PyValue indent_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  const Matched given("indent", arguments, {"width", "first", "blank"});
  const bool is_blank_too = given.truth_of(2, false);
  std::string indent;
  if (given.has(0) && given.at(0).is(Type::kText)) {
    indent = text_of(given.at(0));
  } else {
    indent = aligned("", Align::kLeft, given.whole(0, 4), " ");
  }
  const PyValue whole = arithmetic("+", input, text("\n", input.is(Type::kText) && input.flag));
  std::string out;
  bool is_first = true;
  for (const std::string& line : split_lines(text_of(whole), false)) {
    if (!is_first) out += "\n";
    if (!is_first && (is_blank_too || !line.empty())) out += indent;
    count_bytes(indent.size() + line.size());
    out += line;
    is_first = false;
  }
  return text((given.truth_of(1, false) ? indent : "") + out, whole.flag);
}

JsonForm json_form(const Matched& given) {
  JsonForm form;
  form.is_ascii = given.truth_of(0, false);
  if (given.has_value(1)) {
    form.indent = given.at(1).is(Type::kText) ? text_of(given.at(1)) : aligned("", Align::kLeft, given.whole(1, 0), " ");
    form.item_separator = ",";
  }
  if (given.has_value(2)) {
    const Values separators = all_items(given.at(2));
    if (separators.size() != 2 || !separators[0].is(Type::kText) || !separators[1].is(Type::kText)) {
      fail("tojson: 'separators' are two texts, between items and behind a key");
    }
    form.item_separator = text_of(separators[0]);
    form.key_separator = text_of(separators[1]);
  }
  form.is_sorted = given.truth_of(3, false);
  return form;
}

PyValue tojson_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  return text(json_text(input, json_form(Matched("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}))));
}

PyValue format_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  if (!arguments.positional.empty() && !arguments.keywords.empty()) fail("format takes values with names or without, not both");
  if (arguments.keywords.empty()) return percent_format(as_text(input), tuple(arguments.positional));
  Entries named;
  for (const auto& [name, value] : arguments.keywords) named.emplace_back(text(name), value);
  return percent_format(as_text(input), dict(std::move(named)));
}

PyValue truncate_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  const Matched given("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const std::optional<size_t> size = length_of(input);
  if (!size) fail(fmt::format("truncate needs a text, found {}", type_name(input)));
  const std::u32string end = code_points(given.has(2) ? given.text_at(2) : std::string("..."));
  const Integer length = given.whole(0, 255), leeway = given.has_value(3) ? given.whole(3, 5) : Integer(5);
  if (length < static_cast<Integer>(end.size()) || leeway < 0)
    fail("truncate: 'length' is at least that of 'end', and 'leeway' at least 0");
  if (static_cast<Integer>(*size) <= length + leeway) return input;
  if (!input.is(Type::kText)) fail(fmt::format("truncate needs a text, found {}", type_name(input)));
  const std::u32string points = code_points(text_of(input));
  std::u32string kept = points.substr(0, static_cast<size_t>(length) - end.size());
  if (!given.truth_of(1, false)) kept = kept.substr(0, kept.rfind(U' '));
  return text(utf8(kept + end));
}

PyValue center_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  const Matched given("center", arguments, {"width"});
  const PyValue whole = as_text(input);
  return text(aligned(text_of(whole), Align::kCentre, given.whole(0, 80), " "), whole.flag);
}

PyValue wordcount_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  (void)Matched("wordcount", arguments, {});
  Integer count = 0;
  bool was_word = false;
  for (const char32_t c : code_points(text_of(as_text(input)))) {
    const bool is_word = is_alphabetic(c) || is_numeric(c) || c == U'_';
    if (is_word && !was_word) ++count;
    was_word = is_word;
  }
  return integer(count);
}

}  // namespace

std::vector<NamedFilter> text_filters() {
  return {{"string", string_filter},
          {"safe", safe_filter},
          {"escape", escape_filter},
          {"e", escape_filter},
          {"forceescape", force_escape_filter},
          {"trim", trim_filter},
          {"upper", case_filter<kUpper>},
          {"lower", case_filter<kLower>},
          {"capitalize", case_filter<kCapitalize>},
          {"title", title_filter},
          {"replace", replace_filter},
          {"join", join_filter},
          {"indent", indent_filter},
          {"tojson", tojson_filter},
          {"format", format_filter},
          {"truncate", truncate_filter},
          {"center", center_filter},
          {"wordcount", wordcount_filter}};
}

}  // namespace distsetup::jinja
