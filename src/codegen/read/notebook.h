// Notebooks: what their cells give to a shell, as one script in which every command stands on its line of the notebook.
#pragma once
#include <optional>
#include <string>

#include "base/value.h"

namespace distsetup::foreign {

// `!torchrun …`, cells of %%bash, %env, and files of %%writefile. Nothing: there are none, or several lines of a cell stand on one
// line of the file, where no place could be told.
std::optional<std::string> shell_of_notebook(const Value& root);

}  // namespace distsetup::foreign
