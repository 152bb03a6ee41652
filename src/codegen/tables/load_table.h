// Key tables by their path below templates/.
#pragma once
#include <memory>
#include <string>

#include "codegen/tables/key_table.h"
#include "codegen/tables/templates.h"

namespace distsetup {

// The text of a file; an error that names the nearest one when it is not there. `at`: who asks for it.
Result<std::string> template_text(const TemplateSet& templates, const std::string& path, const Location& at);

// A table with those that it includes; read once for a set of templates.
Result<std::shared_ptr<const KeyTable>> load_key_table(const TemplateSet& templates, const std::string& path, const Location& at);

}  // namespace distsetup
