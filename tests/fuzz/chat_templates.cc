// libFuzzer: any bytes as a chat template, and behind a zero byte as the JSON of its values. It renders or says why not; nothing else.
#include "text/template/chat_template.h"

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace distsetup;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t zero = all.find('\0');
  const Result<ChatTemplate> chat = parse_template(all.substr(0, zero), "fuzzed");
  if (!chat.ok()) {
    if (chat.diagnostics.empty()) std::abort();
    return 0;
  }
  auto values = nlohmann::ordered_json::object();
  if (zero != std::string_view::npos) {
    const std::string_view written = all.substr(zero + 1);
    if (!nlohmann::ordered_json::accept(written)) return 0;
    values = nlohmann::ordered_json::parse(written);
  }
  const Result<Rendered> rendered = render(*chat, values, std::tm{}, {.steps = 200'000, .output_bytes = 1 << 20});
  if (!rendered.ok() && rendered.diagnostics.empty()) std::abort();
  if (!rendered.ok()) return 0;
  for (const ByteRange& span : rendered->spans) {
    if (span.begin > span.end || span.end > rendered->text.size()) std::abort();
  }
  return 0;
}
