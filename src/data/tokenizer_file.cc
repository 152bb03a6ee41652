#include "data/tokenizer_file.h"

#include <filesystem>

#include "base/digest.h"
#include "base/file.h"

namespace distsetup {

namespace fs = std::filesystem;

std::string tokenizer_file_in(const std::string& folder) {
  std::error_code failed;
  for (const std::string_view name : kTokenizerFiles)
    if (const fs::path file = fs::path(folder) / name; fs::exists(file, failed)) return file.string();
  return "";
}

Result<std::string> tokenizer_digest(const std::string& file) {
  Sha256 digest;
  const fs::path config = fs::path(file).parent_path() / kTokenizerConfigFile;
  std::error_code failed;
  for (const fs::path& path : {fs::path(file), config}) {
    if (path == config && !fs::exists(path, failed)) continue;
    const Result<std::string> text = read_file(path.string());
    if (!text.ok()) return text.diagnostics;
    digest.update(*text);
  }
  return digest.hex();
}

}  // namespace distsetup
