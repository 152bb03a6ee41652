// Lint: files that people already have, against what the tools that read them really do. One table of rules (templates/_lint/*.yaml:
// code, severity, when it bites, why, fix, source, a bad and a good example) and one table of accepted keys per format
// (templates/_lint/*_keys.yaml); the checks are in this folder. Files named together are one set-up: what a job script starts is
// compared with what the configuration files say. Nothing is read from disk here: the context's functions are asked.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace distsetup {

namespace foreign {
struct Document;
}

struct LintFile {
  std::string path, text;
};

// What the files do not say. Zero and empty: not known, and then rules that need it ask the files or stay silent.
struct LintContext {
  int64_t nodes = 0, gpus_per_node = 0;
  std::string gpu;  // label
  int64_t gpu_memory_bytes = 0;
  bool gpu_has_bf16 = true;
  std::string layer_class;                             // of the model: what FSDP wraps
  int64_t model_parameters = 0;                        // 0 = not known
  std::string consumer;                                // of DeepSpeed JSON: deepspeed, hf, accelerate, lightning
  std::map<std::string, std::string> tools;            // package -> version
  std::string as;                                      // kind of every file; empty: recognised
  bool (*is_directory)(const std::string&) = nullptr;  // asked for folders that logs go to; nullptr: none is known to be there
  std::string (*text_of_program)(const std::string&) = nullptr;  // "" where there is none; nullptr: none is known to be there
  // Where a script is that the file `from` names; "" = not here. nullptr: scripts that a script starts are not looked at.
  std::string (*find_script)(const std::string& name, const std::string& from) = nullptr;
};

// Bytes [begin, end) of a file become `text`.
struct LintEdit {
  size_t begin = 0, end = 0;
  std::string text;
};

struct LintFinding {
  Diagnostic diagnostic;
  std::string bites;            // parse, start, run, silent
  std::vector<LintEdit> edits;  // a safe fix; empty: none
  size_t file = 0;              // index in the report
};

struct LintReport {
  struct File {
    std::string path;
    std::string kind;  // "deepspeed"
    std::string says;  // "DeepSpeed configuration"
    std::string from;  // the file that starts or sources it; "" = it was given
    bool is_sourced = false;
  };
  std::vector<File> files;
  std::vector<LintFinding> findings;  // by file, then by place
  Diagnostics unreadable;             // files of no known kind
};

// An error when `as` ("" = not given) names no kind that lint has rules for.
Diagnostics check_kind_name(std::string_view as);

// Files that were parsed already (foreign::parse_document).
LintReport lint_documents(const std::vector<std::shared_ptr<const foreign::Document>>& documents, const LintContext& context);

// Parsed here: by `context.as`, or as their marks say.
LintReport lint_files(const std::vector<LintFile>& files, const LintContext& context);

// The text with every edit of the findings of file `index` made. Of edits that overlap the first one is made.
std::string apply_fixes(const LintReport& report, size_t index, std::string text, std::vector<const LintFinding*>& applied);

}  // namespace distsetup
