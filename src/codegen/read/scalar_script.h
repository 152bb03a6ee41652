// A script that a YAML or JSON scalar holds, as the shell gets it: line breaks folded, escapes taken out. Every character stays at its
// place in the file, so that whatever is said of the script is said of the file.
#pragma once
#include "codegen/read/document.h"

namespace distsetup::foreign {

// The bytes of the scalar in d.script_text, which is a copy of the file with such scalars written anew.
TextSpan write_script(Document& d, const Value& value);

}  // namespace distsetup::foreign
