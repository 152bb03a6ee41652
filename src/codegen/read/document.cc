#include "codegen/read/document.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/value_json.h"
#include "base/value_toml.h"
#include "base/value_yaml.h"
#include "codegen/read/embedded_scripts.h"
#include "codegen/read/notebook.h"
#include "codegen/read/recognise.h"
#include "codegen/tables/table_cache.h"

namespace distsetup::foreign {
namespace {

// A document of a YAML stream, and how many lines stand before it.
struct StreamPart {
  std::string_view text;
  int lines_before = 0;
};

// Not only blanks, comments and "%YAML 1.2", as in front of the first "---".
bool says_something(std::string_view part) {
  for (size_t at = 0; at < part.size();) {
    const size_t end = std::min(part.find('\n', at), part.size());
    const size_t first = part.find_first_not_of(" \t\r", at);
    if (first < end && part[first] != '#' && part[first] != '%') return true;
    at = end + 1;
  }
  return false;
}

std::vector<StreamPart> split_stream(std::string_view text) {
  std::vector<StreamPart> out;
  size_t begin = 0;
  int line = 0, begin_line = 0;
  const auto add = [&](size_t end, bool is_last) {
    const std::string_view part = text.substr(begin, end - begin);
    if (says_something(part) || (is_last && out.empty())) out.push_back({part, begin_line});
  };
  for (size_t at = 0; at < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (text.substr(at, 3) == "---") {
      add(at, false);
      begin = std::min(end + 1, text.size());
      begin_line = line + 1;
    }
    at = end + 1;
  }
  add(text.size(), true);
  return out;
}

void move_down(Location& at, int lines) { at.line += at.line > 0 ? lines : 0; }
void move_down(Value& value, int lines) {
  move_down(value.location, lines);
  for (Location& at : value.key_locations) move_down(at, lines);
  for (Value& item : value.items) move_down(item, lines);
  for (auto& entry : value.entries) move_down(entry.second, lines);
}

bool is_named_yaml(const std::string& path) {
  const std::string end = path.substr(std::min(path.rfind('.'), path.size()));
  return end == ".yaml" || end == ".yml";
}

// bash and sh; the others have a syntax of their own, and a job script may be Python.
bool is_of_bash(const std::string& shebang) {
  const size_t slash = shebang.find_last_of("/ ", shebang.find_last_not_of(" \t\r"));
  const std::string shell = shebang.substr(slash == std::string::npos ? 0 : slash + 1);
  return shebang.empty() || shebang.find("bash") != std::string::npos || shell == "sh" || shebang.find("/sh ") != std::string::npos;
}

void parse_script(Document& d, const std::vector<OuterVariable>& given, const ReadSourced& read) {
  ShellScript script = parse_shell(d.text, {0, d.text.size()});
  script.outer = given;
  const bool is_python = d.path.size() > 3 && d.path.compare(d.path.size() - 3, 3, ".py") == 0;
  const std::vector<ShellMistake> mistakes = !is_python && is_of_bash(script.shebang) ? script.mistakes : std::vector<ShellMistake>{};
  for (const ShellMistake& one : mistakes) {
    d.broken.push_back(error(code::kSyntax, d.place(one.span.begin), one.message, one.help));
    d.broken.back().length = static_cast<int>(one.span.end - one.span.begin);
  }
  add_script(d, std::move(script), read);
}

// The tree of a structured file, or the script.
void parse(Document& d, const std::vector<OuterVariable>& given, const ReadSourced& read) {
  bool is_one_broken = false;
  const auto take = [&d, &is_one_broken](Result<Value> root, int lines_before = 0) {
    for (Diagnostic& one : root.diagnostics) move_down(one.location, lines_before);
    append(d.broken, root.diagnostics);
    is_one_broken = is_one_broken || !root.value;
    if (!root.value) return;
    if (lines_before > 0) move_down(*root.value, lines_before);
    d.roots.push_back(std::move(*root.value));
  };
  constexpr size_t kMaxBytes = 4'000'000;  // of a file that people write: 1 MB is read within a second
  if (d.text.size() > kMaxBytes) {
    d.form = TextForm::kLines;
    d.broken.push_back(error(code::kSyntax, {d.path, 1, 1},
                             fmt::format("found {:.1f} MB, expected 4 MB at most", static_cast<double>(d.text.size()) / 1e6)));
    return;
  }
  // YAML in braces, with comments.
  if (d.form == TextForm::kJson && is_named_yaml(d.path) && !parse_json(d.text, d.path).ok()) d.form = TextForm::kYaml;
  switch (d.form) {
    case TextForm::kJson: take(parse_json(d.text, d.path)); break;
    case TextForm::kToml: take(parse_toml(d.text, d.path)); break;
    case TextForm::kYaml:
      for (const StreamPart& one : split_stream(d.text)) take(parse_yaml(one.text, d.path, RepeatedKeys::kAllKept), one.lines_before);
      break;
    case TextForm::kScript: parse_script(d, given, read); break;
    case TextForm::kArguments: add_arguments(d); break;
    case TextForm::kLines: break;
  }
  if (!d.roots.empty()) d.root = d.roots[0];
  d.is_whole = !d.roots.empty() && !is_one_broken;
}

// A notebook becomes the script that its cells hand to shells.
bool take_shell_lines(Document& d, const ReadSourced& read) {
  std::optional<NotebookShell> shell = shell_of_notebook(d.root);
  if (!shell) return false;
  d.text = std::move(shell->text);
  d.places = std::move(shell->places);
  d.form = TextForm::kScript;
  d.root = Value();
  d.roots.clear();
  d.is_whole = false;
  parse_script(d, {}, read);
  return true;
}

TextForm form_of_kind(const FileKind& kind, std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  switch (kind.form) {
    case KindForm::kTree: return first != std::string_view::npos && text[first] == '{' ? TextForm::kJson : TextForm::kYaml;
    case KindForm::kToml: return TextForm::kToml;
    case KindForm::kScript: return TextForm::kScript;
    case KindForm::kArguments: return TextForm::kArguments;
    case KindForm::kLines: break;
  }
  return TextForm::kLines;
}

// DeepSpeed's configuration as one section of a tool's own file ("ds_config": {...}): that section is the document then.
Result<const FileKind*> kind_of_section(const TemplateSet& templates, const FileKinds& kinds, Document& d) {
  if (!d.is_structured() || has_error(d.broken) || d.roots.size() != 1 || d.root.kind != Value::Kind::kMap) return nullptr;
  const auto is_its = [](const auto& entry) {
    return entry.second.kind == Value::Kind::kMap && entry.second.find("zero_optimization") != nullptr;
  };
  const auto& entries = d.root.entries;
  const auto section = std::find_if(entries.begin(), entries.end(), is_its);
  if (section == entries.end() || std::count_if(entries.begin(), entries.end(), is_its) != 1) return nullptr;
  const Value whole = d.root;
  d.root = Value(section->second);
  d.roots = {d.root};
  const Result<const FileKind*> kind = recognise(templates, kinds, d);
  if (!kind.ok()) return kind;
  const bool is_read = *kind != nullptr && (*kind)->name == file_kind::kDeepspeed;
  for (size_t i = 0; is_read && i < whole.entries.size(); ++i) {
    if (!is_its(whole.entries[i])) d.beside.emplace_back(whole.entries[i].first, whole.key_locations[i]);
  }
  if (is_read) return kind;
  d.root = whole;
  d.roots = {whole};
  return nullptr;
}

}  // namespace

size_t Document::offset(const Location& at) const { return source().offset(at); }
Location Document::place(size_t offset) const { return source().at(offset); }

const SourceText& Document::source() const {
  if (source_ == nullptr) source_ = std::make_shared<SourceText>(text, path, places);
  return *source_;
}

Result<DocumentPointer> parse_document(const TemplateSet& templates, const std::string& path, std::string_view text,
                                       const std::vector<OuterVariable>& given, const ReadSourced& read) {
  constexpr size_t kMaxKept = 64;
  const Result<std::shared_ptr<const FileKinds>> kinds = load_kinds(templates);
  if (!kinds.ok()) return kinds.diagnostics;
  const TextForm form = form_of(**kinds, path, text);
  const bool may_source = read.read && form == TextForm::kScript &&
                          (text.find("source ") != std::string_view::npos || text.find(". ") != std::string_view::npos);
  auto* const kept = templates.cache == nullptr || !given.empty() || may_source ? nullptr : &templates.cache->documents;
  if (kept != nullptr) {
    const auto known = kept->find(path);
    if (known != kept->end() && known->second.first == *kinds && known->second.second->text == text) return known->second.second;
  }
  auto d = std::make_shared<Document>();
  d->path = path;
  d->text = text;
  d->form = form;
  parse(*d, given, read);
  Result<const FileKind*> kind = recognise(templates, **kinds, *d);
  if (kind.ok() && *kind == nullptr) kind = kind_of_section(templates, **kinds, *d);
  if (!kind.ok()) return kind.diagnostics;
  const bool is_notebook = *kind != nullptr && (*kind)->name == file_kind::kNotebookFile && !has_error(d->broken);
  if (is_notebook && take_shell_lines(*d, read)) *kind = (*kinds)->find(file_kind::kNotebook);
  if (*kind != nullptr) d->kind = {*kinds, *kind};
  find_embedded_scripts(*d);
  if (kept != nullptr) {
    if (kept->size() >= kMaxKept) kept->clear();
    kept->insert_or_assign(path, std::pair{*kinds, DocumentPointer(d)});
  }
  return DocumentPointer(std::move(d));
}

DocumentPointer parse_document_as(std::shared_ptr<const FileKind> kind, const std::string& path, std::string_view text) {
  auto d = std::make_shared<Document>();
  d->path = path;
  d->text = text;
  d->form = form_of_kind(*kind, text);
  d->kind = std::move(kind);
  const bool is_notebook = d->is(file_kind::kNotebook) && d->text.find("\"cells\"") != std::string::npos;
  if (is_notebook) d->form = TextForm::kJson;
  parse(*d, {}, nullptr);
  if (is_notebook) take_shell_lines(*d, nullptr);
  find_embedded_scripts(*d);
  return d;
}

TextSpan key_span(const Document& d, const TreeNode& at) {
  if (at.map == nullptr) return value_span(d, *at.value);
  const size_t begin = d.offset(at.map->key_locations[at.index]);
  const std::string& key = at.map->entries[at.index].first;
  const bool is_quoted = begin < d.text.size() && (d.text[begin] == '"' || d.text[begin] == '\'');
  return {begin, std::min(begin + key.size() + (is_quoted ? 2 : 0), d.text.size())};
}

TextSpan value_span(const Document& d, const Value& value) {
  const size_t begin = d.offset(value.location);
  if (begin >= d.text.size()) return {d.text.size(), d.text.size()};
  if (value.kind == Value::Kind::kList || value.kind == Value::Kind::kMap) return {begin, begin + 1};
  const char c = d.text[begin];
  if (value.quoted && (c == '"' || c == '\'')) {
    size_t close = begin + 1;
    while (close < d.text.size() && d.text[close] != c && d.text[close] != '\n') close += d.text[close] == '\\' && c == '"' ? 2 : 1;
    return {begin, std::min(close + 1, d.text.size())};
  }
  if (c == '|' || c == '>') return {begin, begin + 1};
  return {begin, std::min(begin + std::max<size_t>(value.text.size(), 1), d.text.size())};
}

TextSpan line_span(const Document& d, size_t offset) {
  const size_t begin = offset == 0 ? 0 : d.text.rfind('\n', offset - 1) + 1;
  const size_t end = d.text.find('\n', offset);
  return {begin, end == std::string::npos ? d.text.size() : end + 1};
}

TextSpan entry_lines(const Document& d, const TreeNode& at) {
  const TextSpan key = key_span(d, at);
  TextSpan out = line_span(d, key.begin);
  const size_t indent = key.begin - out.begin;
  while (out.end < d.text.size()) {  // deeper lines belong to it
    const TextSpan next = line_span(d, out.end);
    const size_t blanks = d.text.find_first_not_of(' ', next.begin) - next.begin;
    if (next.begin + blanks >= next.end || blanks <= indent) break;
    out.end = next.end;
  }
  return out;
}

}  // namespace distsetup::foreign
