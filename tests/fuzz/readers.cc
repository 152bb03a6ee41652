// libFuzzer: any bytes are recognised, read by the key tables and linted, as a file of one name or another.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "codegen/lint/lint.h"
#include "codegen/read/read.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace distsetup;
  constexpr std::array<std::string_view, 9> kNames = {"a.json",   "a.yaml",   "a.toml",         "a.sh", "a.sbatch",
                                                      "hostfile", "args.txt", ".deepspeed_env", "a"};
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string name(kNames[size % kNames.size()]);
  const Result<foreign::DocumentPointer> document = foreign::parse_document(embedded_templates(), name, text);
  if (!document.ok()) std::abort();  // the built-in table of kinds has no mistake
  const Result<std::vector<Reading>> read = read_document(embedded_templates(), **document);
  if (!read.ok() && read.diagnostics.empty()) std::abort();
  if (read.ok()) (void)merge_readings(*read);
  for (const LintFinding& one : lint_documents({*document}, {}).findings) {
    for (const LintEdit& edit : one.edits) {
      if (edit.begin > edit.end || edit.end > text.size()) std::abort();
    }
  }
  return 0;
}
