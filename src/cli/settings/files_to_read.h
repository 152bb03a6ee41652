// The files of a command line, and those that they name: configurations, and scripts that they start. Each is read once.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "codegen/read/document.h"
#include "codegen/read/reading.h"

namespace distsetup {

struct FileToRead {
  std::string path;
  bool is_given = false;                      // on the command line
  bool is_config = false;                     // by --config of a script of one's own, which may be of a form that nobody else has
  std::string option;                         // which one that was
  bool is_below_config = false;               // such a file, or one that it names: what the line itself names is over it
  bool is_started = false;                    // by another script, whose nodes and GPUs count and not its own
  bool is_plain = false;                      // no launcher starts it: bash run.sh
  bool is_helper = false;                     // one of several such: bash setup.sh
  bool is_submitted = false;                  // sbatch job.sh: a job, whose own nodes and GPUs count
  std::string directives;                     // to such a job, on the line that submits it
  std::string table;                          // of the program that is known to read it
  std::vector<foreign::OuterVariable> given;  // to a script, by the one that starts it
};

class FilesToRead {
 public:
  explicit FilesToRead(const std::vector<std::string>& paths);

  // nullptr: that was all of them.
  const FileToRead* next();
  // A file that `from` names, in what was read as `by`: false where it is not here, or where there are too many. `said`: that another
  // one is read in its place.
  bool add_named(const LostKey& lost, const Reading& by, const foreign::Document& from, Diagnostics& said);

 private:
  std::vector<FileToRead> files_;
  size_t at_ = 0;
};

// How the model is sharded, where files of `below_config` (FileToRead::is_below_config) and others differ: theirs is left out.
void leave_sharding_to_the_line(std::vector<Reading>& readings, const std::set<std::string>& below_config, Diagnostics& said);

// A script that is started by itself and in which no known tool or launcher is: an evaluation, a download.
bool says_nothing_of_a_run(const FileToRead& file, const std::vector<Reading>& readings);

// A TOML file that a script of one's own takes: of the tools that are read only torchtitan has such files, and it knows no more than half
// of the keys.
bool is_of_own_form(const foreign::Document& document, const std::vector<Reading>& readings);

// An error where the files do nothing but start scripts, of which none says anything.
Diagnostics nothing_but_started(const std::vector<Reading>& readings);

}  // namespace distsetup
