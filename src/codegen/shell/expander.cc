// Parameter expansion of bash (5.2, "Shell Expansions") for what a script says itself. A variable that the script never sets is the
// environment's, and not known; one with a default (${NAME:-8}) has it: the script is read as it is started without anything else.
// Limits keep values that double with every line (A="$A $A") small: beyond them a value is not known.
#include "codegen/shell/expander.h"

#include <algorithm>
#include <cctype>

#include "codegen/shell/arithmetic.h"
#include "codegen/shell/counted_list.h"
#include "codegen/shell/cut_text.h"
#include "codegen/shell/maps.h"
#include "codegen/shell/references.h"
#include "codegen/shell/script_folder.h"
#include "codegen/shell/words.h"

namespace distsetup::foreign {
namespace {

constexpr size_t kMaxSpent = 20'000'000, kWordBytes = 200, kMaxDefaultDepth = 20;  // ${A:-${B:-…}}

}  // namespace

bool ShellExpander::spend(size_t bytes) {
  spent_ += bytes;
  return spent_ <= kMaxSpent;
}

ExpandedText ShellExpander::with_default(std::string_view name, std::string_view rest, bool is_quoted) {
  const bool has_colon = rest[0] == ':';
  const char how = rest[has_colon ? 1 : 0];
  const std::string other = unquoted_default(rest.substr(has_colon ? 2 : 1), is_quoted);
  const ShellValue* set_here = find(name);
  ExpandedText value = value_text(name);
  const bool is_empty = value.is_known && value.text.empty();
  if (how == '+') {
    if (set_here == nullptr || (is_empty && has_colon)) return {"", true, set_here != nullptr && value.is_certain};
    return value.is_known ? expand_text(other, is_quoted) : ExpandedText{"", false, false};
  }
  if (set_here != nullptr && !(is_empty && has_colon)) return value;
  if (is_set_by_job(name)) return {"$" + std::string(name), false, false};
  if (how == '?') return {"", false, false};
  ExpandedText out = expand_text(other, is_quoted);
  if (how == '=' && out.is_known) set_text(name, out.text);
  return out;
}

// What stands inside ${ }.
ExpandedText ShellExpander::expand_braces(std::string_view inside, bool is_quoted) {
  ExpandedText unknown{"", false, false};
  if (inside.size() > 1 && inside[0] == '#' && is_name_start(inside[1])) {
    const size_t end = name_end(inside, 1);
    const ShellValue* value = find(inside.substr(1, end - 1));
    const std::string_view rest = inside.substr(end);
    if (value == nullptr || !value->is_known) return unknown;
    if (rest == "[@]" || rest == "[*]") {
      if (value->is_array && has_reference(value->text)) return unknown;
      return {std::to_string(value->is_array ? value->words.size() : 1), true, value->is_certain};
    }
    return rest.empty() ? ExpandedText{std::to_string(value_text(inside.substr(1)).text.size()), true, value->is_certain} : unknown;
  }
  if (is_script_folder(inside)) return {std::string(kScriptFolder), false, false};
  if (!inside.empty() && (inside[0] == '@' || inside[0] == '*')) return argument_text(inside.substr(0, 1), inside.substr(1));
  const size_t end = name_end(inside, 0);
  const std::string_view name = inside.substr(0, end);
  std::string_view rest = inside.substr(end);
  if (name.empty()) return unknown;
  if (rest.size() > 2 && rest[0] == '[') {
    const size_t close = rest.find(']');
    if (is_map(*this, name) && close == rest.size() - 1) {
      const std::string entry = map_entry(*this, name, rest.substr(1, close - 1));
      return entry.empty() ? unknown : value_text(entry);
    }
    const ShellValue* value = find(name);
    if (close != rest.size() - 1 || value == nullptr || !value->is_known || !value->is_array) return unknown;
    const std::string_view index = rest.substr(1, close - 1);
    if (index == "@" || index == "*") return {value->text, !has_reference(value->text), value->is_certain};
    const auto i = arithmetic(index, [this](std::string_view one) { return number_text(one); });
    if (!i || *i < 0 || static_cast<size_t>(*i) >= value->words.size() || has_reference(value->text)) return unknown;
    return {value->words[static_cast<size_t>(*i)].text, true, value->is_certain};
  }
  if (rest.empty()) return value_text(name);
  const char op = rest[0] == ':' && rest.size() > 1 ? rest[1] : rest[0];
  if (std::string_view("-=+?").find(op) != std::string_view::npos) {
    if (depth_ > kMaxDefaultDepth) return unknown;
    return with_default(name, rest, is_quoted);
  }
  const ExpandedText value = value_text(name);
  if (!value.is_known) return unknown;
  const ExpandedText argument = expand_text(rest, is_quoted);
  const auto cut = argument.is_known ? cut_text(value.text, argument.text) : std::nullopt;
  return cut ? ExpandedText{*cut, true, value.is_certain} : unknown;
}

// What stands inside $( ): known where it only repeats a text: cat <<EOF.
ExpandedText ShellExpander::expand_command(std::string_view inside) {
  if (const auto known = outer_.find(inside); known != outer_.end()) return {known->second, true, true};
  const size_t first = inside.find_first_not_of(" \t\n");
  for (const std::string_view how : {"which ", "command -v ", "type -p "}) {  // the program, wherever it stands
    if (first == std::string_view::npos || inside.substr(first, how.size()) != how) continue;
    const std::string_view name = inside.substr(first + how.size());
    const bool is_word = std::all_of(name.begin(), name.end(), [](char c) { return is_name_char(c) || c == '-' || c == '.'; });
    return {std::string(is_word ? name : ""), is_word && !name.empty(), is_word};
  }
  const auto sum = sum_of_expr(inside, [this](std::string_view name) { return number_text(name); });
  if (sum) return {std::to_string(*sum), true, true};
  if (std::optional<std::string> folder = script_folder(inside, [this](const ShellWord& word) { return expand(word).text; }))
    return {std::move(*folder), false, false};
  const bool may_count = inside.find("NF") != std::string_view::npos || inside.find("wc -l") != std::string_view::npos;
  const bool is_cat =
      first != std::string_view::npos && inside.substr(first, 3) == "cat" && inside.find("<<") != std::string_view::npos;
  if (first == std::string_view::npos || (!is_cat && !may_count)) return {"", false, false};
  const ShellScript script = parse_shell(inside, {0, inside.size()});
  if (const std::optional<CountedList> counted = may_count ? counted_list(script) : std::nullopt) {
    const ExpandedText list = expand(counted->list);
    if (!list.is_known || list.text.empty() || list.text.find('\n') != std::string::npos) return {"", false, false};
    return {std::to_string(1 + std::count(list.text.begin(), list.text.end(), counted->between)), true, list.is_certain};
  }
  if (script.commands.size() != 1 || script.commands[0].words.size() != 1 || script.commands[0].here.size() != 1)
    return {"", false, false};
  const HereDocument& here = script.commands[0].here[0];
  const std::string_view body = inside.substr(here.body.begin, here.body.end - here.body.begin);
  ExpandedText out = here.expands ? expand_text(body, true) : ExpandedText{std::string(body), true, true};
  while (!out.text.empty() && out.text.back() == '\n') out.text.pop_back();
  return out;
}

ExpandedText ShellExpander::expand_text(std::string_view text, bool is_quoted) {
  ExpandedText out;
  ++depth_;
  for (size_t i = 0; i < text.size() && out.text.size() <= kMaxValueBytes;) {
    const char c = text[i], next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (c == '\\' && next != '\0') {
      out.text += text.substr(i, 2);
      i += 2;
      continue;
    }
    size_t end = i + 1;
    ExpandedText value{std::string(1, c), true, true};
    if (c == '`') {
      end = std::min(text.find('`', i + 1), text.size() - 1) + 1;
      value = expand_command(text.substr(i + 1, end - i - 1 - (text[end - 1] == '`' ? 1 : 0)));
    } else if (c == '$' && (next == '{' || next == '(')) {
      const size_t close = depth_ > kMaxDefaultDepth ? text.size() : closing_bracket(text, i + 1, text.size());
      end = std::min(close + 1, text.size());
      const std::string_view inside = close >= text.size() ? std::string_view() : text.substr(i + 2, close - i - 2);
      if (close >= text.size()) {
        value.is_known = false;
      } else if (next == '{') {
        value = expand_braces(inside, is_quoted);
      } else if (inside.size() > 1 && inside[0] == '(' && inside.back() == ')') {
        value = sum_text(inside.substr(1, inside.size() - 2));
      } else {
        value = expand_command(inside);
      }
    } else if (c == '$' && next == '[') {  // bash's old arithmetic
      const size_t close = std::min(text.find(']', i + 2), text.size());
      end = std::min(close + 1, text.size());
      value = sum_text(close == text.size() ? std::string_view() : text.substr(i + 2, close - i - 2));
    } else if (c == '$' && is_name_start(next)) {
      end = name_end(text, i + 1);
      value = value_text(text.substr(i + 1, end - i - 1));
    } else if (c == '$' && next != '\0' && !is_shell_blank(next) &&
               std::string_view("\"'/.,:;)=%+").find(next) == std::string_view::npos) {
      end = i + 2;  // $1, $@, $?
      value = argument_text(text.substr(i + 1, 1), "");
    }
    const bool is_spent = value.is_known && end != i + 1 && !spend(value.text.size());
    value.is_known = value.is_known && !is_spent;
    const bool has_name = !value.is_known && !is_spent && value.text.size() > 1;
    out.text += value.is_known || has_name ? value.text : std::string(text.substr(i, end - i));
    out.is_known = out.is_known && value.is_known;
    out.is_certain = out.is_certain && value.is_certain;
    i = end;
  }
  --depth_;
  if (out.text.size() > kMaxValueBytes) out.is_known = false;
  return out;
}

ExpandedText ShellExpander::expand(const ShellWord& word) {
  ExpandedText out;
  for (const WordPart& part : word.parts) {
    if (part.quote == ShellQuote::kSingle) {
      out.text += part.text;
      out.is_known = out.is_known && !has_reference(part.text);  // told apart from what the script expands
      continue;
    }
    const ExpandedText one = expand_text(part.text, part.quote == ShellQuote::kDouble);
    out.text += one.text;
    out.is_known = out.is_known && one.is_known;
    out.is_certain = out.is_certain && one.is_certain;
  }
  return out;
}

std::string ShellExpander::undecided(const ShellWord& word) const {
  const auto reference = word.parts.size() == 1 ? single_reference(word.parts[0].text) : std::nullopt;
  const ShellValue* value = reference ? find(reference->first) : nullptr;
  return value != nullptr && value->differs ? std::string(reference->first) : "";
}

// The words that the text at `span` is split into where nothing quotes it. Quotes inside it group words, as they do for a shell that
// is given the text as a script (bash -c "$COMMAND", eval); blanks are most of what is inside.
std::vector<ShellWord> ShellExpander::split(TextSpan span, bool expands) {
  std::vector<ShellWord> out;
  size_t at = span.begin;
  while (at < span.end && out.size() <= kMaxValueWords) {
    const char c = script_[at];
    if (is_shell_blank(c) || c == '\0') {
      ++at;
    } else if (c == '\\' && at + 1 < span.end && script_[at + 1] == '\n') {
      at += 2;
    } else if (const size_t placeholder = end_of_placeholder(script_, at, span.end); placeholder > at) {
      const WordRead rest = read_word(script_, {placeholder, span.end});
      const size_t end = std::max(rest.end, placeholder);
      std::string text(script_.substr(at, placeholder - at));
      if (end > placeholder) text += expands ? expand(rest.word).text : rest.word.text;
      out.push_back(bare_word(std::move(text), {at, end}));
      at = end;
    } else if (ends_word(c)) {  // an operator
      size_t end = at + 1;
      while (end < span.end && ends_word(script_[end]) && !is_shell_blank(script_[end])) ++end;
      out.push_back(bare_word(std::string(script_.substr(at, end - at)), {at, end}));
      at = end;
    } else {
      const WordRead read = read_word(script_, {at, span.end});
      at = std::max(read.end, at + 1);
      if (expands) {
        add_words(read.word, out);
      } else if (!read.word.parts.empty()) {
        out.push_back(read.word);
      }
    }
  }
  return out;
}

void ShellExpander::add_words(const ShellWord& word, std::vector<ShellWord>& out) {
  const bool is_single = word.parts.size() == 1 && word.parts[0].quote != ShellQuote::kSingle;
  const bool is_quoted = is_single && word.parts[0].quote == ShellQuote::kDouble;
  const auto reference = is_single ? single_reference(word.parts[0].text) : std::nullopt;
  const ShellValue* value = reference ? find(reference->first) : nullptr;
  const auto take = [&out, &word](const std::vector<ShellWord>& words) {
    for (const ShellWord& one : words) {
      out.push_back(one);
      if (one.span.end == 0) out.back().span = word.span;  // its value stands in another file
    }
  };
  if (value != nullptr && spend(value->words.size() * kWordBytes)) {
    const bool is_all = reference->first == "@" || reference->first == "*";
    const bool is_list = reference->second == "[@]" || reference->second == "[*]";
    if (is_all) {
      const auto words = value->is_known ? arguments_from(*value, reference->second) : std::nullopt;
      return take(words ? *words : std::vector<ShellWord>{word});
    }
    if (value->is_array && is_list && (value->is_known || !value->words.empty())) return take(value->words);
    if (!value->is_array && !is_quoted && (reference->second.empty() || is_list) && (value->is_known || !value->words.empty()))
      return take(value->words);
    const bool has_default = !is_quoted && reference->second.size() > 1 && reference->second.substr(0, 2) == ":-";
    if (has_default && !value->is_array && value->is_known && !value->text.empty()) return take(value->words);
  }
  if (word.parts.empty()) {
    if (!word.text.empty()) out.push_back(word);
    return;
  }
  if (const std::vector<ShellWord> words = is_single && !is_quoted ? printed_words(word.text) : std::vector<ShellWord>();
      !words.empty())
    return take(words);
  ExpandedText text = expand(word);
  const bool is_bare =
      std::all_of(word.parts.begin(), word.parts.end(), [](const WordPart& part) { return part.quote == ShellQuote::kNone; });
  if (text.text.empty() && is_bare) return;
  if (reference && !is_quoted && text.is_known) return take(words_of_text(text.text, word.span));
  if (text.text == word.text) {
    out.push_back(word);
  } else {
    out.push_back(bare_word(std::move(text.text), word.span));
  }
}

std::vector<ShellWord> ShellExpander::printed_words(std::string_view text) {
  if (!text.starts_with("$(printf ") || text.back() != ')') return {};
  const ShellScript script = parse_shell(text, {2, text.size() - 1});
  if (script.commands.size() != 1 || script.commands[0].words.size() < 3 || !script.commands[0].redirections.empty()) return {};
  const std::vector<ShellWord>& words = script.commands[0].words;
  const std::string& how = words[1].text;
  if (how != " %q" && how != "%q " && how != " %s" && how != "%s ") return {};
  std::vector<ShellWord> printed(words.begin() + 2, words.end());
  for (ShellWord& word : printed) {  // its place is one in this text
    word.span = {};
    for (WordPart& part : word.parts) part.span = {};
  }
  return expand_words(printed);
}

ExpandedText ShellExpander::sum_text(std::string_view inside) {
  const ValueOfName value_of = [this](std::string_view name) { return number_text(name); };
  auto number = arithmetic(inside, value_of);
  if (!number && inside.find("${") != std::string_view::npos && depth_ <= kMaxDefaultDepth) {  // $(( ${N:-8} / 2 ))
    const ExpandedText text = expand_text(inside, true);
    if (text.is_known) number = arithmetic(text.text, value_of);
  }
  return number ? ExpandedText{std::to_string(*number), true, true} : ExpandedText{"", false, false};
}

std::vector<ShellWord> ShellExpander::expand_words(const std::vector<ShellWord>& words) {
  std::vector<ShellWord> out;
  for (const ShellWord& word : words) add_words(word, out);
  return out;
}

void ShellExpander::assign_span(std::string_view name, TextSpan span, bool expands) {
  ShellValue value;
  const std::string_view raw = script_.substr(span.begin, span.end - span.begin);
  const ExpandedText text = expands ? expand_text(raw, true) : ExpandedText{std::string(raw), true, true};
  value.text = text.text;
  value.is_known = text.is_known;
  value.is_certain = text.is_certain;
  value.words = split(span, expands);
  set(name, std::move(value));
}

void ShellExpander::assign(ShellAssignment& one) {
  if (const size_t bracket = one.name.find('['); bracket != std::string::npos) {
    if (assign_in_map(*this, one)) return;
    one.known = expand(one.value).text;
    return set_unknown(one.name.substr(0, bracket));
  }
  if (one.is_array && assign_in_map(*this, one)) return;
  if (one.is_array) {
    const std::vector<ShellWord> items = expand_words(one.array);
    std::optional<ShellValue> before = one.appends ? take(one.name) : std::nullopt;
    ShellValue value = before ? std::move(*before) : ShellValue();
    value.words.insert(value.words.end(), items.begin(), items.end());
    const bool has_text = value.is_array && !value.text.empty();
    value.text = has_text ? value.text + (items.empty() ? "" : " " + joined(items)) : joined(value.words);
    value.is_array = true;
    return set(one.name, std::move(value));
  }
  const ExpandedText text = expand(one.value);
  one.known = text.text;
  std::vector<ShellWord> words;
  if (const WordPart* quoted = only_quoted(one.value)) {
    words = split(quoted->span, quoted->quote == ShellQuote::kDouble);
  } else if (one.value.parts.size() == 1 && !text.is_known) {
    words = expand_words({one.value});
  } else {
    words = words_of_text(text.text, one.value.span);
  }
  std::optional<ShellValue> before = one.appends ? take(one.name) : std::nullopt;
  ShellValue value = before ? std::move(*before) : ShellValue();
  const bool is_one_word =
      before && !value.text.empty() && !is_shell_blank(value.text.back()) && !text.text.empty() && !is_shell_blank(text.text[0]);
  value.text += text.text;
  value.is_known = text.is_known && value.is_known && !(one.appends && !before);
  value.is_certain = text.is_certain && value.is_certain;
  if (is_one_word) {
    value.words = words_of_text(value.text, one.value.span);
  } else {
    value.words.insert(value.words.end(), words.begin(), words.end());
  }
  set(one.name, std::move(value));
}

}  // namespace distsetup::foreign
