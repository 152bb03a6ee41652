// The strict half around kainjow's Mustache: every tag is checked against the values before anything is rendered, so that a mistake
// in a branch that is not taken today is found today.
#include "codegen/job/script.h"

#include <fmt/format.h>

#include <algorithm>
#include <kainjow/mustache.hpp>
#include <set>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "codegen/shell/quote.h"

namespace distsetup {
namespace {

namespace mustache = kainjow::mustache;

bool is_list(Form form) { return form == Form::kShellList || form == Form::kVerbatimList; }
bool is_present(const ScriptValue& value) { return is_list(value.form) ? !value.items.empty() : value.present; }

struct Tag {
  char kind = 0;  // '#', '^', '/', '&', '!' or 0 for {{name}}
  std::string name;
  size_t begin = 0, end = 0;  // in the template; end is past the closing braces
};

class TemplateChecker {
 public:
  TemplateChecker(std::string_view text, const std::string& file_name, const ScriptValues& values)
      : text_(text), file_name_(file_name), values_(values) {}

  Diagnostics check() {
    for (size_t at = text_.find("{{"); at != std::string_view::npos; at = text_.find("{{", at)) {
      const size_t close = text_.find("}}", at + 2);
      if (close == std::string_view::npos) {
        fail(at, "'{{' without '}}'");
        return std::move(diagnostics_);
      }
      tag(parse(at, close));
      at = close + 2;
    }
    if (!sections_.empty()) fail(sections_.back().begin, fmt::format("section '{}' is not closed", sections_.back().name));
    for (const auto& entry : values_) {
      if (used_.count(entry.first) == 0)
        fail(0, fmt::format("value '{}' has no place in the template", entry.first), "use it or take it out of target.yaml");
    }
    return std::move(diagnostics_);
  }

 private:
  void fail(size_t at, std::string message, std::string help = "") {
    const int line = 1 + static_cast<int>(std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(at), '\n'));
    const size_t start = at == 0 ? 0 : text_.rfind('\n', at - 1) + 1;  // npos + 1 = 0
    const int column = 1 + static_cast<int>(at - start);
    diagnostics_.push_back(error(code::kTemplate, Location{file_name_, line, column}, std::move(message), std::move(help)));
  }

  Tag parse(size_t at, size_t close) const {
    Tag tag;
    tag.begin = at;
    tag.end = close + 2;
    std::string_view inside = text_.substr(at + 2, close - at - 2);
    if (!inside.empty() && std::string_view("#^/&!{>=").find(inside[0]) != std::string_view::npos) {
      tag.kind = inside[0];
      inside.remove_prefix(1);
    }
    const size_t first = inside.find_first_not_of(" \t");
    const size_t last = inside.find_last_not_of(" \t");
    if (first != std::string_view::npos) tag.name = inside.substr(first, last - first + 1);
    return tag;
  }

  void tag(const Tag& tag) {
    switch (tag.kind) {
      case '!': return;
      case '{': return fail(tag.begin, "'{{{' is not used here", "write {{&name}} for a value that is declared verbatim");
      case '>':
      case '=': return fail(tag.begin, fmt::format("'{{{{{}' is not supported", tag.kind));
      case '/':
        if (sections_.empty() || sections_.back().name != tag.name)
          return fail(tag.begin, fmt::format("'{}' closes no open section", tag.name));
        sections_.pop_back();
        return;
      default: break;
    }
    if (tag.name == ".") return item(tag);
    const auto found = values_.find(tag.name);
    if (found == values_.end()) {
      std::vector<std::string> names;
      for (const auto& entry : values_) names.push_back(entry.first);
      return fail(tag.begin, fmt::format("no value '{}'", tag.name), suggest(tag.name, names));
    }
    used_.insert(tag.name);
    if (tag.kind == '#' || tag.kind == '^') {
      sections_.push_back(tag);
    } else {
      variable(tag, found->second);
    }
  }

  void variable(const Tag& tag, const ScriptValue& value) {
    if (value.form == Form::kSwitch || is_list(value.form))
      return fail(tag.begin, fmt::format("'{}' is not text: open a section with it", tag.name));
    if (!inside(tag.name) && !value.present)
      return fail(tag.begin, fmt::format("'{}' may be absent: place it inside its own section", tag.name));
    form(tag, value.form == Form::kVerbatim);
  }

  void item(const Tag& tag) {
    if (sections_.empty() || sections_.back().kind != '#') return fail(tag.begin, "'{{.}}' outside the section of a list");
    const auto list = values_.find(sections_.back().name);
    if (list == values_.end() || !is_list(list->second.form)) return fail(tag.begin, "'{{.}}' outside the section of a list");
    form(tag, list->second.form == Form::kVerbatimList);
  }

  void form(const Tag& tag, bool verbatim) {
    if (verbatim != (tag.kind == '&')) {
      return fail(tag.begin, verbatim ? fmt::format("'{}' is verbatim: write {{{{&{}}}}}", tag.name, tag.name)
                                      : fmt::format("'{}' must be quoted: write {{{{{}}}}}", tag.name, tag.name));
    }
    const char before = tag.begin == 0 ? ' ' : text_[tag.begin - 1];
    const char after = tag.end >= text_.size() ? ' ' : text_[tag.end];
    const auto quote = [](char c) { return c == '"' || c == '\'' || c == '`'; };
    if (!verbatim && (quote(before) || quote(after)))
      fail(tag.begin, fmt::format("'{}' is quoted already: take the quotes around it away", tag.name));
  }

  bool inside(const std::string& name) const {
    return std::any_of(sections_.begin(), sections_.end(), [&name](const Tag& tag) { return tag.kind == '#' && tag.name == name; });
  }

  std::string_view text_;
  const std::string& file_name_;
  const ScriptValues& values_;
  std::vector<Tag> sections_;
  std::set<std::string> used_;
  Diagnostics diagnostics_;
};

mustache::data data_of(const ScriptValue& value) {
  if (!is_present(value)) return mustache::data(false);
  if (is_list(value.form)) {
    mustache::list items;
    for (const std::string& item : value.items) items.emplace_back(item);
    return mustache::data(items);
  }
  return value.form == Form::kSwitch ? mustache::data(true) : mustache::data(value.text);
}

// A tag of a section or comment alone on its line takes the whole line with it (Mustache's "standalone tags"). kainjow does so only
// for sections that are rendered, so it is done here: the tag moves in front of the next line, behind a mark that keeps a blank one.
constexpr char kMark = '\x01';

std::string join_standalone(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t newline = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, newline - at);
    const size_t first = line.find_first_not_of(" \t"), last = line.find_last_not_of(" \t");
    const std::string_view inside = first == std::string_view::npos ? "" : line.substr(first, last - first + 1);
    const bool alone = inside.size() > 4 && inside.substr(0, 2) == "{{" &&
                       std::string_view("#^/!").find(inside[2]) != std::string_view::npos && inside.find("}}") == inside.size() - 2;
    out += alone ? inside : line;
    if (newline < text.size()) out += alone ? kMark : '\n';
    at = newline + 1;
  }
  return out;
}

}  // namespace

Result<std::string> render_script(std::string_view text, const std::string& file_name, const ScriptValues& values) {
  Diagnostics found = TemplateChecker(text, file_name, values).check();
  if (has_error(found)) return found;
  mustache::mustache parsed{join_standalone(text)};
  parsed.set_custom_escape([](const std::string& value) { return quote_shell(value); });
  mustache::data data;
  for (const auto& [name, value] : values) data.set(name, data_of(value));
  std::string out = parsed.render(data);
  if (!parsed.is_valid()) return error(code::kTemplate, Location{file_name, 0, 0}, parsed.error_message());
  out.erase(std::remove(out.begin(), out.end(), kMark), out.end());
  return out;
}

}  // namespace distsetup
