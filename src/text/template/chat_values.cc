#include "text/template/chat_values.h"

#include <fmt/format.h>

#include <array>

#include "base/diagnostic_codes.h"
#include "base/json_fwd.h"

namespace distsetup {
namespace {

// {"thinking": reasoning, the message's own keys, "reasoning_content": reasoning}, in this order.
OrderedJson with_reasoning(const OrderedJson& message) {
  static constexpr std::array<const char*, 3> kNames = {"reasoning_content", "thinking", "reasoning"};
  for (const char* name : kNames) {
    const auto found = message.find(name);
    if (found == message.end() || found->is_null()) continue;
    OrderedJson out = OrderedJson::object();
    out["thinking"] = *found;
    for (const auto& [key, value] : message.items()) out[key] = value;
    out["reasoning_content"] = *found;
    return out;
  }
  return message;
}

std::string kind_of(const OrderedJson& json) { return json.type_name(); }

}  // namespace

OrderedJson chat_values(const ChatRequest& request) {
  OrderedJson messages = OrderedJson::array();
  for (const OrderedJson& message : request.messages) messages.push_back(message.is_object() ? with_reasoning(message) : message);
  OrderedJson values = {{"messages", std::move(messages)}, {"tools", request.tools}, {"documents", nullptr}};
  values["add_generation_prompt"] = request.adds_generation_prompt;
  for (const auto& [key, value] : request.more.items()) values[key] = value;
  return values;
}

Result<ChatRequest> read_chat(const OrderedJson& json, const Location& at) {
  ChatRequest request;
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      if (key == "messages" || key == "conversation") {
        request.messages = value;
      } else if (key == "tools") {
        request.tools = value;
      } else {
        request.more[key] = value;
      }
    }
  } else {
    request.messages = json;
  }
  if (!request.messages.is_array()) {
    return error(code::kWrongType, at,
                 json.is_object() && request.messages.is_null()
                     ? "found no key 'messages' in the conversation"
                     : fmt::format("expected a list of messages, found {}", kind_of(request.messages)),
                 R"(expected {"messages": [{"role": "user", "content": "..."}]})");
  }
  for (size_t i = 0; i < request.messages.size(); ++i) {
    if (request.messages[i].is_object()) continue;
    return error(code::kWrongType, at,
                 fmt::format("message {} is {}, expected an object with a role", i + 1, kind_of(request.messages[i])));
  }
  if (!request.tools.is_null() && !request.tools.is_array()) {
    return error(code::kWrongType, at, fmt::format("'tools' is {}, expected a list of schemas", kind_of(request.tools)));
  }
  return request;
}

}  // namespace distsetup
