// Files that a configuration or a job script names: where they are on this machine.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "codegen/read/reading.h"
#include "codegen/shell/sourced.h"

namespace distsetup {

struct NamedFile {
  std::string path;
  bool is_elsewhere = false;  // not where it is named: a file that has the name, beside the one that names it
};

// `text` as a trainer sees it, from the folder one is in, or from the folder of the file `from` that names it. A path of another
// machine ("/home/somebody/repository/configs/ds.json", "$ROOT/scripts/run.sh") is taken for the file beside `from` that has its name,
// or for the one below a folder above `from` that has its last folders too. A name without folders may lie in one of the three folders
// above, where only one of them has it.
std::optional<NamedFile> find_named_file(const std::string& text, const std::string& from);

// What a script in the file `from` sources.
foreign::ReadSourced read_beside(const std::string& from);

// A file that says how the model is sharded and is not here, where nothing else says it: an error, since a plan of any other strategy
// is of another run. Of a script that a job starts and that is not here a warning: the machines of the job are known.
Diagnostics unread_strategy(const std::vector<Reading>& readings);

}  // namespace distsetup
