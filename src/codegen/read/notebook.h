// Notebooks: what their cells give to a shell, as one script.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/tree_builder.h"

namespace distsetup::foreign {

struct NotebookShell {
  std::string text;
  std::vector<LinePlace> places;  // of its lines in the notebook
};

// `!torchrun …`, cells of %%bash, %env, and files of %%writefile. Nothing: there are none. Of a cell that is one text (nbformat 4,
// multiline_string) every line stands where the text does.
std::optional<NotebookShell> shell_of_notebook(const Value& root);

}  // namespace distsetup::foreign
