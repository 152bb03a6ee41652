// The one way out for files: to standard output, to a file, or to a folder; shown instead of written with --dry-run, replaced only
// with --force, as an envelope with --json. Every command that writes files ends here.
#pragma once
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/line/flags.h"
#include "codegen/artifact.h"

namespace distsetup {

struct Delivery {
  Artifacts files;
  Diagnostics diagnostics;  // what was said on the way: warnings and notes
  std::string output;       // --output, or what the command takes without it; "" = standard output, which takes one file
  std::string named_file;   // the file that `output` names, unless it is a folder; the others go beside it. "" = `output` is a folder
  int code = kDone;         // of the command, when the files are written
  std::string next;         // the command that goes on from here; "" = none. Said when all is well
  Json also = Json::object();  // more of the envelope of --json
};
int deliver(const Arguments& arguments, const Terminal& terminal, Delivery delivery);

// A single file, named by --output; without it to standard output.
Delivery one_file(const Arguments& arguments, Artifact file, Diagnostics diagnostics = {});

// Files below `directory`. Refused as a whole before the first is written when one exists with other content, unless --force; the run
// file is never an output.
struct WrittenFile {
  std::string path;
  Written how = Written::kCreated;
};
Result<std::vector<WrittenFile>> write_artifacts(const Arguments& arguments, const Artifacts& artifacts, const std::string& directory);
// "wrote job.sbatch", "unchanged plan.json" to standard error.
void mention_written(const Terminal& terminal, const std::vector<WrittenFile>& files);

// Folder and file name of an output path; a path that is a folder, or ends in '/', gets `name`.
struct OutputPath {
  std::string directory, file;
};
OutputPath output_path(const std::string& path, const std::string& name);

}  // namespace distsetup
