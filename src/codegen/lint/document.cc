// Taking a file apart. Scripts inside structured files (a block scalar, a quoted text, a list of words) keep their places, since shell
// does not mind the blanks a block scalar is indented with.
#include "codegen/lint/document.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/tree_builder.h"
#include "base/value_json.h"
#include "base/value_toml.h"
#include "base/value_yaml.h"

namespace distsetup::lint {
namespace {

bool is_yaml_kind(FileKind kind) {
  switch (kind) {
    case FileKind::kAccelerate:
    case FileKind::kTrainer:
    case FileKind::kTrl:
    case FileKind::kTrainerFsdp:
    case FileKind::kAxolotl:
    case FileKind::kLlamaFactory:
    case FileKind::kLightning:
    case FileKind::kAutomodel:
    case FileKind::kLlamaStack:
    case FileKind::kMegatronBridge:
    case FileKind::kKubernetes:
    case FileKind::kSkypilot:
    case FileKind::kDeepspeed:
    case FileKind::kPlan: return true;
    default: return false;
  }
}

// The documents of a YAML stream, each with the lines before it empty, so that places stay right.
std::vector<std::string> split_stream(const std::string& text) {
  std::vector<std::string> out;
  std::string blank, current;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, std::min(end + 1, text.size()) - at);
    at = end + 1;
    blank += "\n";
    if (line.rfind("---", 0) == 0) {
      if (current.find_first_not_of(" \t\r\n") != std::string::npos) out.push_back(current);
      current = blank;
    } else {
      current += line;
    }
  }
  if (current.find_first_not_of(" \t\r\n") != std::string::npos || out.empty()) out.push_back(current);
  return out;
}

// The bytes of a scalar that holds a script: a block's lines, the inside of quotes, or a plain text.
Span script_range(const Document& d, const Value& value) {
  size_t begin = d.offset(value.location);
  if (begin >= d.text.size()) return {0, 0};
  const char c = d.text[begin];
  if (c == '|' || c == '>') {
    const size_t first = std::min(d.text.find('\n', begin), d.text.size());
    size_t at = first + 1;
    size_t block_indent = std::string::npos;
    while (at < d.text.size()) {
      const size_t end = std::min(d.text.find('\n', at), d.text.size());
      const size_t blanks = d.text.find_first_not_of(' ', at) - at;
      const bool is_empty = at + blanks >= end;
      if (!is_empty && block_indent == std::string::npos) block_indent = blanks;
      if (!is_empty && blanks < block_indent) break;
      if (!is_empty && blanks == 0) break;
      at = end + 1;
    }
    return {std::min(first + 1, d.text.size()), std::min(at, d.text.size())};
  }
  if (value.quoted && (c == '"' || c == '\'')) {
    const size_t close = d.text.find(c, begin + 1);
    return {begin + 1, close == std::string::npos ? begin + 1 : close};
  }
  return {begin, std::min(begin + value.text.size(), d.text.size())};
}

void add_script(Document& d, ShellScript script) {
  ScriptPart part;
  part.script = std::move(script);
  part.lines = find_lines(part.script);
  d.parts.push_back(std::move(part));
}

// ["torchrun", "--nproc_per_node=8", "train.py"]; a `bash -c` in it is read as a script.
void add_words(Document& d, const std::vector<const Value*>& items) {
  if (items.empty()) return;
  ShellScript script;
  script.text = d.text;
  ShellCommand command;
  bool is_script = false;
  for (const Value* item : items) {
    if (item->kind != Value::Kind::kScalar) return;
    if (is_script) {
      ShellScript inner = parse_shell(d.text, script_range(d, *item));
      add_script(d, std::move(inner));
      is_script = false;
      continue;
    }
    const bool is_option = item->text.size() > 1 && item->text[0] == '-' && item->text[1] != '-' && item->text.back() == 'c';
    if (is_option && !command.words.empty()) {
      const std::string& shell = command.words[0].text;
      const std::string base = shell.substr(shell.rfind('/') + 1);
      is_script = base == "bash" || base == "sh";
    }
    ShellWord word;
    word.text = item->text;
    word.span = value_span(d, *item);
    word.parts = {{Quote::kSingle, item->text, word.span}};
    command.words.push_back(std::move(word));
  }
  script.commands.push_back(std::move(command));
  add_script(d, std::move(script));
}

// One option a line: the arguments of a program that is not named.
void add_arguments(Document& d) {
  const ShellScript lines = parse_shell(d.text, {0, d.text.size()});
  ShellScript script;
  script.text = d.text;
  ShellCommand command;
  ShellWord program;
  program.text = "arguments.py";
  command.words.push_back(std::move(program));
  for (const ShellCommand& line : lines.commands) command.words.insert(command.words.end(), line.words.begin(), line.words.end());
  script.commands.push_back(std::move(command));
  add_script(d, std::move(script));
}

void add_environment(Document& d, const Value& list) {
  for (const Value& item : list.items) {
    const Node name = node(item, "name");
    if (!name || name.value->kind != Value::Kind::kScalar) continue;
    EnvironmentSetting one;
    one.name = name.text();
    one.value = text(item, "value");
    one.name_span = value_span(d, *name.value);
    one.span = one.name_span;
    d.environment.push_back(std::move(one));
  }
  for (size_t i = 0; i < list.entries.size(); ++i) {
    const Node at{&list.entries[i].second, &list, i};
    d.environment.push_back({list.entries[i].first, list.entries[i].second.text, key_span(d, at), key_span(d, at)});
  }
}

// Containers of a manifest anywhere below: command, args, env.
void find_scripts(Document& d, const Value& value) {
  std::vector<const Value*> words;
  for (const char* key : {"command", "args"}) {
    const Node list = node(value, key);
    if (!list || list.value->kind != Value::Kind::kList) continue;
    for (const Value& item : list.value->items) words.push_back(&item);
  }
  add_words(d, words);
  if (const Node env = node(value, "env")) add_environment(d, *env.value);
  for (const Value& item : value.items) find_scripts(d, item);
  for (const auto& entry : value.entries) {
    if (entry.first != "env") find_scripts(d, entry.second);
  }
}

void script_environment(Document& d) {
  for (const ScriptPart& part : d.parts) {
    for (const ShellCommand& command : part.script.commands) {
      for (const Assignment& one : command.assignments) {
        if (one.is_array) continue;
        const Span name{one.span.begin, one.span.begin + one.name.size()};
        d.environment.push_back({one.name, literal(part.script, one.value.text), one.span, name});
      }
    }
    for (const Line& line : part.lines) {
      for (const Stage& stage : line.stages) {
        for (const Option& option : stage.options) {
          const bool exports = (stage.program == Program::kMpirun && (option.name == "x" || option.name == "genv")) ||
                               (stage.program == Program::kSrun && option.name == "export");
          const size_t equals = exports ? option.value.find('=') : std::string::npos;
          if (equals == std::string::npos) continue;
          const size_t comma = option.value.rfind(',', equals) + 1;
          d.environment.push_back(
              {option.value.substr(comma, equals - comma), option.value.substr(equals + 1), option.span, option.span});
        }
      }
    }
  }
}

void settings_of_lines(Document& d) {
  for (size_t at = 0; at < d.text.size();) {
    const size_t end = std::min(d.text.find('\n', at), d.text.size());
    const std::string_view line = std::string_view(d.text).substr(at, end - at);
    const size_t equals = line.find('=');
    if (!line.empty() && line[0] != '#' && equals != std::string_view::npos) {
      std::string_view value = line.substr(equals + 1);
      if (!value.empty() && value.back() == '\r') value.remove_suffix(1);
      size_t begin = line.substr(0, 7) == "export " ? 7 : 0;
      d.environment.push_back(
          {std::string(line.substr(begin, equals - begin)), std::string(value), {at + begin, end}, {at + begin, at + equals}});
    }
    at = end + 1;
  }
}

}  // namespace

bool Document::is_structured() const { return is_yaml_kind(kind) || kind == FileKind::kTorchtitan; }

size_t Document::offset(const Location& at) const {
  size_t line = 0;
  for (int i = 1; i < at.line; ++i) {
    const size_t next = text.find('\n', line);
    if (next == std::string::npos) return text.size();
    line = next + 1;
  }
  size_t out = line;
  for (int column = 1; column < at.column && out < text.size() && text[out] != '\n'; ++column) {
    ++out;
    while (out < text.size() && (static_cast<unsigned char>(text[out]) & 0xc0) == 0x80) ++out;
  }
  return out;
}

Location Document::place(size_t offset) const { return SourceText(text, path).at(offset); }

std::unique_ptr<Document> read_document(const LintFile& file, FileKind kind) {
  auto d = std::make_unique<Document>();
  d->path = file.path;
  d->text = file.text;
  d->kind = kind;
  const size_t first = d->text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  const bool is_json = first != std::string::npos && d->text[first] == '{';
  const auto take = [&d](Result<Value> root) {
    append(d->broken, root.diagnostics);
    if (root.value) d->roots.push_back(std::move(*root.value));
  };
  if (kind == FileKind::kTorchtitan) {
    take(parse_toml(d->text, d->path));
  } else if (is_yaml_kind(kind) && is_json) {
    take(parse_json(d->text, d->path));
  } else if (is_yaml_kind(kind)) {
    for (const std::string& one : split_stream(d->text)) take(parse_yaml(one, d->path));
  } else if (is_script(kind)) {
    add_script(*d, parse_shell(d->text, {0, d->text.size()}));
  } else if (kind == FileKind::kArguments) {
    add_arguments(*d);
  } else if (kind == FileKind::kEnvironment) {
    settings_of_lines(*d);
  }
  if (!d->roots.empty()) d->root = d->roots[0];
  if (kind == FileKind::kKubernetes) {
    for (const Value& root : d->roots) find_scripts(*d, root);
  }
  if (kind == FileKind::kSkypilot) {
    for (const char* key : {"setup", "run"}) {
      const Node script = node(d->root, key);
      if (script && script.value->kind == Value::Kind::kScalar) add_script(*d, parse_shell(d->text, script_range(*d, *script.value)));
    }
    for (const char* key : {"envs", "secrets"}) {
      if (const Node envs = node(d->root, key)) add_environment(*d, *envs.value);
    }
  }
  script_environment(*d);
  return d;
}

Node node(const Value& root, std::string_view path) {
  Node out{&root, nullptr, 0};
  while (!path.empty()) {
    const size_t dot = std::min(path.find('.'), path.size());
    const std::string_view key = path.substr(0, dot);
    const Value* map = out.value;
    if (map->kind != Value::Kind::kMap) return {};
    size_t i = 0;
    while (i < map->entries.size() && map->entries[i].first != key) ++i;
    if (i == map->entries.size()) return {};
    out = {&map->entries[i].second, map, i};
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return out;
}

bool has(const Value& root, std::string_view path) {
  const Node at = node(root, path);
  return at && at.value->kind != Value::Kind::kNull;
}

std::string text(const Value& root, std::string_view path) {
  const Node at = node(root, path);
  return at && at.value->kind == Value::Kind::kScalar ? at.text() : "";
}

std::optional<double> real_of(const Value& value) {
  if (value.kind != Value::Kind::kScalar || value.text.empty()) return std::nullopt;
  double out = 0;
  const char* const end = value.text.data() + value.text.size();
  const auto [stop, status] = std::from_chars(value.text.data(), end, out);
  if (status != std::errc() || stop != end) return std::nullopt;
  return out;
}

std::optional<double> real(const Value& root, std::string_view path) {
  const Node at = node(root, path);
  return at ? real_of(*at.value) : std::nullopt;
}

namespace {
bool is_one_of(const Value& root, std::string_view path, std::initializer_list<std::string_view> words) {
  std::string found = text(root, path);
  std::transform(found.begin(), found.end(), found.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::find(words.begin(), words.end(), found) != words.end();
}
}  // namespace

bool is_true(const Value& root, std::string_view path) { return is_one_of(root, path, {"true", "yes", "on", "1"}); }
bool is_false(const Value& root, std::string_view path) { return is_one_of(root, path, {"false", "no", "off", "0"}); }

Span key_span(const Document& d, const Node& at) {
  if (at.map == nullptr) return value_span(d, *at.value);
  const size_t begin = d.offset(at.map->key_locations[at.index]);
  const std::string& key = at.map->entries[at.index].first;
  const bool is_quoted = begin < d.text.size() && (d.text[begin] == '"' || d.text[begin] == '\'');
  return {begin, std::min(begin + key.size() + (is_quoted ? 2 : 0), d.text.size())};
}

Span value_span(const Document& d, const Value& value) {
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

Span line_span(const Document& d, size_t offset) {
  const size_t begin = offset == 0 ? 0 : d.text.rfind('\n', offset - 1) + 1;
  const size_t end = d.text.find('\n', offset);
  return {begin, end == std::string::npos ? d.text.size() : end + 1};
}

Span entry_lines(const Document& d, const Node& at) {
  const Span key = key_span(d, at);
  Span out = line_span(d, key.begin);
  const size_t indent = key.begin - out.begin;
  while (out.end < d.text.size()) {  // deeper lines belong to it
    const Span next = line_span(d, out.end);
    const size_t blanks = d.text.find_first_not_of(' ', next.begin) - next.begin;
    if (next.begin + blanks >= next.end || blanks <= indent) break;
    out.end = next.end;
  }
  return out;
}

}  // namespace distsetup::lint
