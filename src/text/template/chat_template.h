// A model's chat template: its own Jinja, read and run as jinja2 does in transformers (ImmutableSandboxedEnvironment with trim_blocks,
// lstrip_blocks, loop controls and {% generation %}), to the byte. What a template of today does not use is refused with its place.
#pragma once
#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace distsetup {

namespace jinja {
struct Syntax;
}

struct ChatTemplate {
  std::string name;  // in messages: a path, or what the caller calls it
  std::string source;
  std::shared_ptr<const jinja::Syntax> syntax;
  bool has_generation = false;  // marks what an assistant wrote
};

// Bytes [begin, end) of a text.
struct ByteRange {
  size_t begin = 0, end = 0;
  bool operator==(const ByteRange&) const = default;
};

struct Rendered {
  std::string text;
  std::vector<ByteRange> spans;  // of {% generation %} blocks, in the order of the text
  // A generation block whose output the template keeps (a macro, a set block) before it writes it: its place in `text` is not known.
  std::optional<Location> lost_span;
};

// A template that runs away fails. 1,000 turns take from 50,000 to 4 million steps (measured on nine public templates).
struct RenderLimits {
  uint64_t steps = 50'000'000;  // expressions, items, and 32 bytes of text each
  size_t output_bytes = 256 << 20;
};

Result<ChatTemplate> parse_template(std::string_view source, std::string name);

// values: an object; what transformers gives is in chat_values.h. now: what strftime_now tells.
Result<Rendered> render(const ChatTemplate& chat, const nlohmann::ordered_json& values, const std::tm& now,
                        const RenderLimits& limits = {});

}  // namespace distsetup
