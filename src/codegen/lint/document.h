// A file that is linted, taken apart once: the tree of a structured one, the scripts it holds, and the environment it sets. Places are
// bytes of its text. Internal to lint.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/value.h"
#include "codegen/lint/lint.h"
#include "codegen/lint/stage.h"
#include "codegen/shell/shell.h"

namespace distsetup::lint {

struct EnvironmentSetting {
  std::string name, value;
  Span span;  // of name and value where they stand together, else of the name
  Span name_span;
};

struct ScriptPart {
  ShellScript script;
  std::vector<Line> lines;
};

struct Document {
  std::string path, text;
  FileKind kind = FileKind::kShell;
  Diagnostics broken;             // syntax
  Value root;                     // of a structured file
  std::vector<Value> roots;       // every document of a stream (Kubernetes); roots[0] is root
  std::vector<ScriptPart> parts;  // the script, or the commands inside a manifest
  std::vector<EnvironmentSetting> environment;

  size_t offset(const Location& at) const;
  Location place(size_t offset) const;
  std::string_view cut(Span span) const { return std::string_view(text).substr(span.begin, span.end - span.begin); }
  bool is_structured() const;
};

// A document cannot move: its scripts point into its text.
std::unique_ptr<Document> read_document(const LintFile& file, FileKind kind);

// A key on the way "zero_optimization.offload_param.device"; map and index say where.
struct Node {
  const Value* value = nullptr;
  const Value* map = nullptr;
  size_t index = 0;
  explicit operator bool() const { return value != nullptr; }
  const std::string& text() const { return value->text; }
};
Node node(const Value& root, std::string_view path);
bool has(const Value& root, std::string_view path);
std::string text(const Value& root, std::string_view path);            // "" when absent or no scalar
std::optional<double> real(const Value& root, std::string_view path);  // numbers only, quoted or not
bool is_true(const Value& root, std::string_view path);                // true, "true", yes, on
bool is_false(const Value& root, std::string_view path);
std::optional<double> real_of(const Value& value);

Span key_span(const Document& document, const Node& at);
Span value_span(const Document& document, const Value& value);
// The bytes of a line, with its end; and of a whole entry of a block mapping (YAML), for removing it.
Span line_span(const Document& document, size_t offset);
Span entry_lines(const Document& document, const Node& at);

}  // namespace distsetup::lint
