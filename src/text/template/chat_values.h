// The values that transformers hands to a chat template, from a conversation as data sets hold it.
#pragma once
#include <nlohmann/json.hpp>

#include "base/diagnostic.h"

namespace distsetup {

struct ChatRequest {
  nlohmann::ordered_json messages;  // a list of {role, content …}
  nlohmann::ordered_json tools;     // a list of schemas; null: none
  nlohmann::ordered_json more =
      nlohmann::ordered_json::object();  // special tokens by name (bos_token …), and what else the template reads
  bool adds_generation_prompt = false;
};

// messages, tools, documents (null) and add_generation_prompt, then `more`. As transformers does since 5.x, the reasoning of a message
// is there under each of its names: reasoning_content, thinking.
nlohmann::ordered_json chat_values(const ChatRequest& request);

// A line of a data set, or a file: a list of messages, or an object with `messages` (or `conversation`), `tools` and other values.
Result<ChatRequest> read_chat(const nlohmann::ordered_json& json, const Location& at);

}  // namespace distsetup
