#include "codegen/read/recognise.h"

#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <set>

namespace distsetup::foreign {
namespace {

using KeySet = std::set<std::string, std::less<>>;

bool ends_in(std::string_view path, std::string_view end) {
  return path.size() >= end.size() && path.substr(path.size() - end.size()) == end;
}

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
  if (const FileKind* kind = first([&](const FileKind& one) { return has_name(one, path); })) return kind;
  return first([&](const FileKind& one) { return has_word(one, text); });
}

// What looks like the keys of a file that does not parse: quoted words of JSON, "word:" at the beginning of a line of YAML.
KeySet keys_of_text(const Document& d) {
  KeySet keys;
  const std::string_view text = d.text;
  if (d.form == TextForm::kJson) {
    for (size_t at = text.find('"'); at != std::string_view::npos; at = text.find('"', at + 1)) {
      const size_t close = text.find('"', at + 1);
      if (close == std::string_view::npos) break;
      keys.emplace(text.substr(at + 1, close - at - 1));
      at = close;
    }
    return keys;
  }
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos && std::isalpha(static_cast<unsigned char>(line[0])) != 0) keys.emplace(line.substr(0, colon));
  }
  return keys;
}

// Keys at the top, of all documents of a stream.
KeySet top_keys(const Document& d) {
  if (has_error(d.broken)) return keys_of_text(d);
  KeySet keys;
  for (const Value& root : d.roots) {
    for (const auto& entry : root.entries) keys.insert(entry.first);
  }
  return keys;
}

size_t num_in(const std::vector<std::string>& some, const KeySet& keys) {
  return static_cast<size_t>(
      std::count_if(some.begin(), some.end(), [&keys](const std::string& one) { return keys.count(one) != 0; }));
}

// 0: not a file of this kind. A key that only one kind has decides.
size_t score_of(const FileKind& kind, const KeySet& keys) {
  constexpr size_t kDecides = 1000, kNeeded = 100;
  const auto are_there = [&keys](const std::vector<std::string>& some) { return num_in(some, keys) == some.size(); };
  if (std::any_of(kind.decided_by.begin(), kind.decided_by.end(), are_there)) return kDecides;
  if (!kind.one_of.empty() || !kind.within.empty()) return 0;
  if (!kind.needs.empty() && num_in(kind.needs, keys) == 0) return 0;
  return num_in(kind.keys, keys) + (kind.needs.empty() ? 0 : kNeeded);
}

const FileKind* kind_of_keys(const FileKinds& kinds, const KeySet& keys) {
  const FileKind* best = nullptr;
  size_t best_score = 0;
  for (const FileKind& one : kinds.all) {
    const size_t score = one.form == KindForm::kTree ? score_of(one, keys) : 0;
    if (score <= best_score) continue;
    best_score = score;
    best = &one;
  }
  if (best == nullptr) {
    for (const FileKind& one : kinds.all) {
      if (!one.one_of.empty() && num_in(one.one_of, keys) > 0 && num_in(one.keys, keys) == keys.size()) return &one;
    }
    return nullptr;
  }
  for (const FileKind& one : kinds.all) {
    if (one.within == best->name && num_in(one.keys, keys) > 0) return &one;
  }
  return best;
}

const FileKind* first_of_form(const FileKinds& kinds, KindForm form) {
  const auto it = std::find_if(kinds.all.begin(), kinds.all.end(), [form](const FileKind& one) { return one.form == form; });
  return it == kinds.all.end() ? nullptr : &*it;
}

}  // namespace

TextForm form_of(const FileKinds& kinds, std::string_view path, std::string_view text) {
  const size_t first = first_of_text(text);
  const char begin = first == std::string_view::npos ? '\0' : text[first];
  if (begin == '{' || (ends_in(path, ".json") && begin != '#')) return TextForm::kJson;
  if (ends_in(path, ".json") || ends_in(path, ".yaml") || ends_in(path, ".yml")) return TextForm::kYaml;
  if (ends_in(path, ".toml")) return TextForm::kToml;
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

const FileKind* recognise(const FileKinds& kinds, const Document& d) {
  switch (d.form) {
    case TextForm::kJson:
    case TextForm::kYaml: return kind_of_keys(kinds, top_keys(d));
    case TextForm::kToml: return first_of_form(kinds, KindForm::kToml);
    case TextForm::kArguments: return first_of_form(kinds, KindForm::kArguments);
    case TextForm::kLines: return kind_of_lines(kinds, d.path, d.text);
    case TextForm::kScript: break;
  }
  // A script with the lines of a scheduler; without any it is a shell script.
  const FileKind* plain = nullptr;
  for (const FileKind& one : kinds.all) {
    if (one.form != KindForm::kScript) continue;
    if (has_line(one, d.text)) return &one;
    if (plain == nullptr && one.lines.empty()) plain = &one;
  }
  return plain;
}

}  // namespace distsetup::foreign
