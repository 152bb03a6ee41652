// Commands of the shell that fill variables, or write files.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/shell/expander.h"

namespace distsetup::foreign {

// read -r -d '' NAME <<EOF: the document is the value. read A B <<< "x y": its fields, as IFS parts them.
void read_into_variables(const ShellCommand& command, ShellExpander& variables);

// ((N++)), let N=2: the variables that it changes. `is_once`: false in a loop, behind which nobody knows what they are.
std::vector<std::string> change_by_arithmetic(const ShellCommand& command, ShellExpander& variables, bool is_once);

// cat <<EOF > file, tee file <<EOF, echo "…" > file, sbatch <<EOF: into the script's files. `piped`: what stands in front of a pipe.
void find_written_file(const ShellCommand& command, const std::optional<HereDocument>& piped, ShellExpander& variables,
                       ShellScript& script);
std::optional<HereDocument> piped_document(const ShellCommand& command);  // cat <<EOF |

// local V=1, declare V: names that belong to the function around the command.
void add_local_names(const ShellCommand& one, std::set<std::string>& names);

}  // namespace distsetup::foreign
