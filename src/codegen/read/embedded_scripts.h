// Scripts and environment variables inside a document: of a script itself, of the containers of a manifest, of keys that hold scripts.
#pragma once
#include "codegen/read/document.h"

namespace distsetup::foreign {

// `read`: files that the script sources.
void add_script(Document& d, ShellScript script, const ReadSourced& read = nullptr);

// A list of arguments as those of a program that is not named.
void add_arguments(Document& d);

// What the document's kind says it holds, and the variables that its scripts set.
void find_embedded_scripts(Document& d);

}  // namespace distsetup::foreign
