// Base64 (RFC 4648) to bytes: vocabularies of tiktoken and tekken, rules in tokenizer.json, a browser's way to send a token.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace distsetup {

std::optional<std::string> from_base64(std::string_view text);  // none: another character, or a length that no bytes have

}  // namespace distsetup
