// A file of somebody else's, parsed once: which kind it is, the tree of a structured one, the scripts it holds and the environment it
// sets. lint looks at it, convert and plan --from read it (read_file.h); nobody parses the text again. Places are bytes of the text.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/tree_builder.h"
#include "base/value.h"
#include "codegen/read/tree.h"
#include "codegen/shell/launch_line.h"
#include "codegen/shell/shell.h"
#include "codegen/shell/sourced.h"
#include "codegen/tables/kind.h"
#include "codegen/tables/templates.h"

namespace distsetup::foreign {

enum class TextForm { kJson, kYaml, kToml, kScript, kArguments, kLines };

struct EnvironmentSetting {
  std::string name, value;
  TextSpan span;  // of name and value where they stand together, else of the name
  TextSpan name_span;
};

struct ScriptPart {
  ShellScript script;
  std::vector<LaunchLine> lines;
};

struct Document {
  std::string path, text;
  TextForm form = TextForm::kLines;
  std::shared_ptr<const FileKind> kind;  // nullptr: the marks are those of no kind
  Diagnostics broken;                    // mistakes of syntax
  Value root;                            // of a structured file
  std::vector<Value> roots;              // every document of a YAML stream; roots[0] is root
  bool is_whole = false;                 // every document has a tree, whatever is said of it
  std::vector<ScriptPart> parts;         // the script, or the commands inside a manifest
  std::vector<EnvironmentSetting> environment;
  std::vector<LinePlace> places;  // of a notebook's lines for shells, in its file
  // `text` with the scalars that are scripts as a shell gets them (scalar_script.h).
  std::shared_ptr<std::string> script_text;
  // Keys of another tool around the one section that is read.
  std::vector<std::pair<std::string, Location>> beside;

  bool is(std::string_view kind_name) const { return kind != nullptr && kind->name == kind_name; }
  // Also of a kind within that one: a TRL file is a file of TrainingArguments.
  bool is_a(std::string_view kind_name) const { return is(kind_name) || (kind != nullptr && kind->within == kind_name); }
  bool is_structured() const { return form == TextForm::kJson || form == TextForm::kYaml || form == TextForm::kToml; }
  bool is_script() const { return form == TextForm::kScript; }
  bool takes_training_arguments() const { return kind != nullptr && kind->takes_training_arguments; }

  size_t offset(const Location& at) const;
  Location place(size_t offset) const;
  const SourceText& source() const;
  std::string_view cut(TextSpan span) const { return std::string_view(text).substr(span.begin, span.end - span.begin); }

 private:
  mutable std::shared_ptr<const SourceText> source_;  // of `text`, which stays as it is once a place was asked for
};

// Parses the text and recognises its kind (recognise.h), once: the same text again is the same document. A document cannot move: its
// scripts point into its text. Mistakes of syntax are in `broken`. Errors: the table of kinds has a mistake.
using DocumentPointer = std::shared_ptr<const Document>;
// `given`: what a script gets from the one that starts it; `read`: files that it sources.
Result<DocumentPointer> parse_document(const TemplateSet& templates, const std::string& path, std::string_view text,
                                       const std::vector<OuterVariable>& given = {}, const ReadSourced& read = nullptr);

// As a file of this kind, whatever its marks.
DocumentPointer parse_document_as(std::shared_ptr<const FileKind> kind, const std::string& path, std::string_view text);

TextSpan key_span(const Document& document, const TreeNode& at);
TextSpan value_span(const Document& document, const Value& value);
// The bytes of a line, with its end; and of a whole entry of a block mapping (YAML), for removing it.
TextSpan line_span(const Document& document, size_t offset);
TextSpan entry_lines(const Document& document, const TreeNode& at);

}  // namespace distsetup::foreign
