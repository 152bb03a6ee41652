// What every command does at its end: say the diagnostics, print or write the result, choose the exit code.
#pragma once
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "base/file.h"
#include "base/json_fwd.h"
#include "cli/line/flags.h"
#include "codegen/codegen.h"

namespace distsetup {

// Warnings and notes to standard error (notes not with --quiet).
void say_diagnostics(const Terminal& terminal, const Diagnostics& diagnostics);
// The end of a command that failed: everything to standard error, with --json the failed envelope to standard output.
int fail(const Arguments& arguments, const Terminal& terminal, const Diagnostics& diagnostics);
// Text to standard output; the exit code of a command that ends with it.
int print_result(const Terminal& terminal, std::string_view text, int code = kDone);

// Files below `directory`. Refused as a whole before the first is written when one exists with other content, unless --force.
struct WrittenFile {
  std::string path;
  Written how = Written::kCreated;
};
// The run file is never an output, --force or not.
Result<std::vector<WrittenFile>> write_artifacts(const Arguments& arguments, const Artifacts& artifacts, const std::string& directory);
// "wrote job.sbatch", "unchanged plan.json" to standard error.
void mention_written(const Terminal& terminal, const std::vector<WrittenFile>& files);

// One file: to --output (a file, or a folder it goes into by its own name) or to standard output; with --json as an envelope.
int deliver(const Arguments& arguments, const Terminal& terminal, const Artifact& artifact, const Diagnostics& diagnostics);
// Several files to the folder --output.
int deliver_all(const Arguments& arguments, const Terminal& terminal, const Artifacts& artifacts, const std::string& directory,
                const Diagnostics& diagnostics, int code = kDone);

// Folder and file name of an output path; a path that is a folder, or ends in '/', gets `name`.
struct OutputPath {
  std::string directory, file;
};
OutputPath output_path(const std::string& path, const std::string& name);

// Words as they were typed, without those that do not change the bytes (--output, --force, --quiet, --color, --json).
std::vector<std::string> command_words(const std::vector<std::string>& words);

}  // namespace distsetup
