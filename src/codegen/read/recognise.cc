#include "codegen/read/recognise.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <set>

#include "base/diagnostic_codes.h"
#include "codegen/read/known_keys.h"
#include "codegen/read/match.h"
#include "codegen/read/tree.h"

namespace distsetup::foreign {
namespace {

using KeySet = std::set<std::string, std::less<>>;

size_t first_of_text(std::string_view text) { return text.find_first_not_of(" \t\r\n\xef\xbb\xbf"); }

bool has_name(const FileKind& kind, std::string_view path) {
  const std::string base(path.substr(path.rfind('/') + 1));
  return std::any_of(kind.file_names.begin(), kind.file_names.end(),
                     [&base](const std::string& pattern) { return ::fnmatch(pattern.c_str(), base.c_str(), 0) == 0; });
}

bool has_line(const FileKind& kind, std::string_view text) {
  return std::any_of(kind.lines.begin(), kind.lines.end(), [text](const std::string& begin) {
    return text.substr(0, begin.size()) == begin || text.find("\n" + begin) != std::string_view::npos;
  });
}

bool has_word(const FileKind& kind, std::string_view text) {
  return std::any_of(kind.words.begin(), kind.words.end(),
                     [text](const std::string& word) { return text.find(word) != std::string_view::npos; });
}

// Calls `see` with each line that says something, without the blanks in front, until it returns false.
void for_each_line(std::string_view text, const std::function<bool(std::string_view)>& see) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    const size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos || line[first] == '#') continue;
    line.remove_prefix(first);
    if (!see(line)) return;
  }
}

bool is_of_shape(std::string_view line, LineShape shape) {
  const size_t name = line.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.");
  if (name == std::string_view::npos || name == 0 || line[name] != '=') return false;
  return (line.substr(name, 2) == "==") == (shape == LineShape::kPackage);
}

bool has_shape(std::string_view text, LineShape shape) {
  if (shape == LineShape::kNone) return false;
  bool is_all = true, is_empty = true;
  for_each_line(text, [&](std::string_view line) {
    is_empty = false;
    return is_all = is_of_shape(line, shape);
  });
  return is_all && !is_empty;
}

// "{", or a line "word:" before anything else: structured.
bool looks_structured(std::string_view text) {
  bool looks = false;
  for_each_line(text, [&looks](std::string_view line) {
    const size_t colon = line.find(':');
    looks = line[0] == '{' || line.substr(0, 3) == "---" || line.substr(0, 5) == "%YAML" ||
            (colon != std::string_view::npos && line.find_first_of(" =") > colon &&
             (colon + 1 == line.size() || line[colon + 1] == ' ' || line[colon + 1] == '\r'));
    return false;
  });
  return looks;
}

bool has_toml_section(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (text[at] == '[' && text.substr(at, end - at).find(']') != std::string_view::npos) return true;
    at = end + 1;
  }
  return false;
}

// Files of lines: the shape of every line counts before the file's name, and that before words.
const FileKind* kind_of_lines(const FileKinds& kinds, std::string_view path, std::string_view text) {
  const auto first = [&kinds](auto fits) -> const FileKind* {
    const auto it = std::find_if(kinds.all.begin(), kinds.all.end(),
                                 [&fits](const FileKind& one) { return one.form == KindForm::kLines && fits(one); });
    return it == kinds.all.end() ? nullptr : &*it;
  };
  if (first_of_text(text) == std::string_view::npos) return nullptr;
  if (const FileKind* kind = first([&](const FileKind& one) { return has_shape(text, one.every_line); })) return kind;
  // Of another tool's program both say it: its name is any program's, and its words may stand in any text.
  const auto has_both = [&](const FileKind& one) { return one.is_foreign && has_name(one, path) && has_word(one, text); };
  if (const FileKind* kind = first(has_both)) return kind;
  const auto is_marked_by_both = [](const FileKind& one) { return one.is_foreign && !one.words.empty(); };
  if (const FileKind* kind = first([&](const FileKind& one) { return !is_marked_by_both(one) && has_name(one, path); })) return kind;
  return first([&](const FileKind& one) { return !is_marked_by_both(one) && has_word(one, text); });
}

// What looks like the keys of a file that does not parse: quoted words before a colon at the top of JSON, "word:" at the beginning of
// a line of YAML.
KeySet keys_of_text(const Document& d) {
  KeySet keys;
  const std::string_view text = d.text;
  int depth = 0;
  for (size_t at = 0; d.form == TextForm::kJson && at < text.size(); ++at) {
    if (text[at] == '{' || text[at] == '[') ++depth;
    if (text[at] == '}' || text[at] == ']') --depth;
    if (text[at] != '"') continue;
    const size_t close = text.find('"', at + 1);
    if (close == std::string_view::npos) break;
    const size_t next = text.find_first_not_of(" \t\r\n", close + 1);
    if (depth == 1 && next != std::string_view::npos && text[next] == ':') keys.emplace(text.substr(at + 1, close - at - 1));
    at = close;
  }
  if (d.form == TextForm::kJson) return keys;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos && std::isalpha(static_cast<unsigned char>(line[0])) != 0) keys.emplace(line.substr(0, colon));
  }
  return keys;
}

// A structured file as its marks are looked for.
struct TopKeys {
  KeySet keys;  // at the top, of all documents of a stream
  std::vector<const Value*> roots;

  const Value* value(const std::string& key) const {
    for (const Value* root : roots) {
      if (const Value* found = root->find(key)) return found;
    }
    return nullptr;
  }
  // A key at the top, or a path; '-' and '_' the same.
  bool has(const std::string& path) const {
    if (path.find('.') == std::string::npos)
      return std::any_of(keys.begin(), keys.end(), [&path](const std::string& key) { return is_same_key(key, path); });
    return std::any_of(roots.begin(), roots.end(), [&path](const Value* root) { return node(*root, path).value != nullptr; });
  }
  bool has_all(const std::vector<std::string>& paths) const {
    return std::all_of(paths.begin(), paths.end(), [this](const std::string& one) { return has(one); });
  }
  bool has_any(const std::vector<std::string>& paths) const {
    return std::any_of(paths.begin(), paths.end(), [this](const std::string& one) { return has(one); });
  }
  size_t num_known(const KnownKeys& known) const {
    return static_cast<size_t>(
        std::count_if(keys.begin(), keys.end(), [&](const std::string& key) { return known.knows(key, value(key)); }));
  }
};

TopKeys top_keys(const Document& d) {
  TopKeys top;
  if (!d.is_whole && has_error(d.broken)) {
    top.keys = keys_of_text(d);
    return top;
  }
  for (const Value& root : d.roots) {
    top.roots.push_back(&root);
    for (const auto& entry : root.entries) top.keys.insert(entry.first);
  }
  return top;
}

struct Score {
  size_t marks = 0;  // 0: not a file of this kind. A key that only one kind has decides.
  size_t known = 0;  // of the file's keys
};

// A kind is claimed where it knows most keys of a file, unless keys that nothing else has decide.
Result<Score> score_of(const TemplateSet& templates, const FileKinds& kinds, const FileKind& kind, const TopKeys& top) {
  constexpr size_t kDecides = 1000, kNeeded = 100;
  const bool has_values = std::all_of(kind.values.begin(), kind.values.end(), [&top](const auto& wanted) {
    const Value* found = top.value(wanted.first);
    return found != nullptr && found->text == wanted.second;
  });
  if (!has_values) return Score{};
  const bool is_others = std::any_of(kind.instead_of.begin(), kind.instead_of.end(),
                                     [&top](const auto& word) { return top.has(word.first) && !top.has(word.second); });
  if (is_others) return Score{};
  const auto are_there = [&top](const std::vector<std::string>& some) { return top.has_all(some); };
  if (std::any_of(kind.decided_by.begin(), kind.decided_by.end(), are_there)) return Score{kDecides, top.keys.size()};
  if (kind.is_foreign || !kind.within.empty()) return Score{};
  const bool is_needed = !kind.needs.empty();
  if (is_needed && !top.has_any(kind.needs)) return Score{};
  if (!kind.needs_too.empty() && !top.has_any(kind.needs_too)) return Score{};
  const auto is_there = [&top](const std::string& key) { return top.has(key); };
  if (!is_needed && std::none_of(kind.keys.begin(), kind.keys.end(), is_there)) return Score{};
  Result<KnownKeys> known = known_keys(templates, kind);
  if (!known.ok()) return known.diagnostics;
  for (const FileKind& one : kinds.all) {
    if (one.within != kind.name || !top.has_any(one.keys)) continue;
    const Result<KnownKeys> more = known_keys(templates, one);
    if (!more.ok()) return more.diagnostics;
    known->top.insert(more->top.begin(), more->top.end());
  }
  const size_t num_known = top.num_known(*known);
  if (!kind.one_of.empty()) {
    const bool is_its =
        num_known == top.keys.size() && top.has_any(kind.one_of) &&
        std::all_of(top.roots.begin(), top.roots.end(), [&](const Value* root) { return known->knows_sections(*root); });
    return Score{is_its ? size_t{1} : 0, 0};
  }
  const auto num_marks = static_cast<size_t>(std::count_if(
      kind.keys.begin(), kind.keys.end(), [&](const std::string& key) { return top.has(key) && known->knows(key, top.value(key)); }));
  if (!is_most(num_known, top.keys.size())) return Score{};
  return Score{num_marks + (is_needed ? kNeeded : 0), num_known};
}

// A kind within `best` that the file has a key of.
Result<const FileKind*> kind_within(const TemplateSet& templates, const FileKinds& kinds, const FileKind& best, const TopKeys& top) {
  for (const FileKind& one : kinds.all) {
    if (one.within != best.name) continue;
    if (top.has_any(one.keys)) return &one;
    if (!top.has_any(one.one_of)) continue;
    const Result<KnownKeys> known = known_keys(templates, one);
    if (!known.ok()) return known.diagnostics;
    if (top.num_known(*known) == top.keys.size()) return &one;
  }
  return &best;
}

// Files that are filled in before anybody reads them: "{{ .Values.gpus }}".
const FileKind* kind_of_template(const FileKinds& kinds, const Document& d) {
  if (!has_error(d.broken)) return nullptr;
  const auto it = std::find_if(kinds.all.begin(), kinds.all.end(),
                               [&d](const FileKind& one) { return one.form == KindForm::kTree && has_word(one, d.text); });
  return it == kinds.all.end() ? nullptr : &*it;
}

// A script with statements of Jinja on lines of their own, or variables of it in what a scheduler reads.
bool is_unfilled_script(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    const bool is_directive = line.starts_with("#SBATCH ") || line.starts_with("#PBS ") || line.starts_with("#BSUB ");
    if (line.starts_with("{%") || (is_directive && line.find("{{") != std::string_view::npos)) return true;
  }
  return false;
}

// A file that was written here says whose it is, in the comment that it begins with: "# for trl 1.16.0".
const FileKind* kind_of_header(const FileKinds& kinds, std::string_view text, KindForm form) {
  constexpr std::string_view kFor = "\n# for ";
  if (!text.starts_with("# distsetup ")) return nullptr;
  size_t end = 0;
  while (end < text.size() && text[end] == '#') end = std::min(text.find('\n', end), text.size() - 1) + 1;
  const size_t at = text.substr(0, end).find(kFor);
  if (at == std::string_view::npos) return nullptr;
  const std::string_view tool = text.substr(at + kFor.size(), text.find('\n', at + 1) - at - kFor.size());
  const FileKind* kind = tool.find(',') == std::string_view::npos ? kinds.find(tool.substr(0, tool.find(' '))) : nullptr;
  return kind != nullptr && kind->form == form ? kind : nullptr;
}

// Most keys of the file are of the kind: Lightning runs files of other forms than its own, too.
Result<bool> has_keys_of(const TemplateSet& templates, const FileKinds& kinds, const FileKind& kind, const TopKeys& top) {
  Result<KnownKeys> known = known_keys(templates, kind);
  if (!known.ok()) return known.diagnostics;
  if (const FileKind* around = kind.within.empty() ? nullptr : kinds.find(kind.within)) {
    const Result<KnownKeys> more = known_keys(templates, *around);
    if (!more.ok()) return more.diagnostics;
    known->top.insert(more->top.begin(), more->top.end());
  }
  return is_most(top.num_known(*known), top.keys.size());
}

Result<const FileKind*> kind_of_keys(const TemplateSet& templates, const FileKinds& kinds, const Document& d) {
  const TopKeys top = top_keys(d);
  if (const FileKind* unfilled = kind_of_template(kinds, d)) return unfilled;
  const KindForm form = d.form == TextForm::kToml ? KindForm::kToml : KindForm::kTree;
  if (const FileKind* told = kind_of_header(kinds, d.text, form)) {
    const Result<bool> is_its = has_keys_of(templates, kinds, *told, top);
    if (!is_its.ok()) return is_its.diagnostics;
    if (*is_its) return told;
  }
  const FileKind* best = nullptr;
  Score best_score;
  for (const FileKind& one : kinds.all) {
    if (one.form != form && !(one.is_foreign && one.form == KindForm::kTree)) continue;
    const Result<Score> score = score_of(templates, kinds, one, top);
    if (!score.ok()) return score.diagnostics;
    const bool is_better = score->marks > best_score.marks || (score->marks == best_score.marks && score->known > best_score.known);
    if (score->marks == 0 || !is_better) continue;
    best_score = *score;
    best = &one;
  }
  if (best == nullptr) return nullptr;
  return kind_within(templates, kinds, *best, top);
}

const FileKind* first_of_form(const FileKinds& kinds, KindForm form) {
  const auto it = std::find_if(kinds.all.begin(), kinds.all.end(), [form](const FileKind& one) { return one.form == form; });
  return it == kinds.all.end() ? nullptr : &*it;
}

}  // namespace

TextForm form_of(const FileKinds& kinds, std::string_view path, std::string_view text) {
  const size_t first = first_of_text(text);
  const char begin = first == std::string_view::npos ? '\0' : text[first];
  if (begin == '{' || (path.ends_with(".json") && begin != '#')) return TextForm::kJson;
  if (path.ends_with(".json") || path.ends_with(".yaml") || path.ends_with(".yml")) return TextForm::kYaml;
  if (path.ends_with(".toml")) return TextForm::kToml;
  // A program of another language is none of the shell, whatever it imports.
  const bool is_of_others = std::any_of(kinds.all.begin(), kinds.all.end(), [path](const FileKind& one) {
    return one.is_foreign && one.form == KindForm::kLines && has_name(one, path);
  });
  if (is_of_others) return TextForm::kLines;
  const auto any_script = [&kinds](auto fits) {
    return std::any_of(kinds.all.begin(), kinds.all.end(),
                       [&fits](const FileKind& one) { return one.form == KindForm::kScript && fits(one); });
  };
  const bool is_script =
      text.substr(0, 2) == "#!" || any_script([&](const FileKind& one) { return has_line(one, text) || has_name(one, path); });
  if (is_script) return TextForm::kScript;
  if (begin == '-' && text.substr(first, 2) == "--" && text.substr(first, 3) != "---") return TextForm::kArguments;
  if (looks_structured(text)) return TextForm::kYaml;
  if (has_toml_section(text)) return TextForm::kToml;
  if (kind_of_lines(kinds, path, text) != nullptr) return TextForm::kLines;
  return any_script([&](const FileKind& one) { return has_word(one, text); }) ? TextForm::kScript : TextForm::kLines;
}

Result<const FileKind*> recognise(const TemplateSet& templates, const FileKinds& kinds, const Document& d) {
  switch (d.form) {
    case TextForm::kJson:
    case TextForm::kYaml:
    case TextForm::kToml: return kind_of_keys(templates, kinds, d);
    case TextForm::kArguments: return first_of_form(kinds, KindForm::kArguments);
    case TextForm::kLines: return kind_of_lines(kinds, d.path, d.text);
    case TextForm::kScript: break;
  }
  if (is_unfilled_script(d.text)) {
    const auto it = std::find_if(kinds.all.begin(), kinds.all.end(), [](const FileKind& one) {
      return one.form == KindForm::kTree && one.is_foreign && std::find(one.words.begin(), one.words.end(), "{%") != one.words.end();
    });
    if (it != kinds.all.end()) return &*it;
  }
  // A script with the lines of a scheduler, or its ending; without any it is a shell script.
  const FileKind *named = nullptr, *plain = nullptr;
  for (const FileKind& one : kinds.all) {
    if (one.form != KindForm::kScript) continue;
    if (has_line(one, d.text)) return &one;
    if (named == nullptr && has_name(one, d.path)) named = &one;
    if (plain == nullptr && one.lines.empty()) plain = &one;
  }
  return named != nullptr ? named : plain;
}

bool says_nothing(const Document& d) {
  for (size_t at = 0; at < d.text.size();) {
    const size_t end = std::min(d.text.find('\n', at), d.text.size());
    const size_t first = d.text.find_first_not_of(" \t\r", at);
    if (first < end && d.text[first] != '#' && d.text.compare(first, end - first, "---") != 0) return false;
    at = end + 1;
  }
  return true;
}

Diagnostic foreign_format(const Document& d) {
  return error(code::kUnknownValue, {d.path, 1, 1}, fmt::format("the file is {}, which distsetup does not read", d.kind->says),
               d.kind->instead.empty() ? "a configuration of another tool is read when its keys are known: distsetup help convert"
                                       : d.kind->instead);
}

}  // namespace distsetup::foreign
