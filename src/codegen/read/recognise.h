// The one recogniser: which kind a file is of, by what it says. lint, convert, plan --from and validate all ask it (parse_document
// does).
#pragma once
#include <string_view>

#include "codegen/read/document.h"
#include "codegen/tables/kind.h"

namespace distsetup::foreign {

// How the text is to be parsed: by the file's name where that says it, else by how the text looks.
TextForm form_of(const FileKinds& kinds, std::string_view path, std::string_view text);

// By the marks of the kinds (templates/_kinds.yaml) in a document that was parsed; nullptr: it has those of none. A structured file is
// of a kind that knows most of its keys. One that does not parse is recognised by what looks like its keys, so that its kind's own
// rules can say why.
Result<const FileKind*> recognise(const TemplateSet& templates, const FileKinds& kinds, const Document& document);

// Of a file of a kind that nothing here reads, by name.
Diagnostic foreign_format(const Document& document);

// Blank lines and comments are all there is.
bool says_nothing(const Document& document);

}  // namespace distsetup::foreign
