// libFuzzer: any bytes are read as YAML, JSON and TOML, or refused with a place that is in the text.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/value_json.h"
#include "base/value_toml.h"
#include "base/value_yaml.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace distsetup;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto num_lines = std::count(text.begin(), text.end(), '\n') + 1;
  for (const auto& read : {parse_yaml(text, "y"), parse_json(text, "j"), parse_toml(text, "t")}) {
    if (!read.ok() && read.diagnostics.empty()) std::abort();
    for (const Diagnostic& one : read.diagnostics) {
      if (one.location.line > num_lines) std::abort();
    }
  }
  return 0;
}
