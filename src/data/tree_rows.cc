#include "data/tree_rows.h"

#include <fmt/format.h>

#include "base/json_fwd.h"

namespace distsetup {
namespace {

bool is_deleted(const OrderedJson& message) {
  const auto deleted = message.find("deleted");
  return deleted != message.end() && deleted->is_boolean() && deleted->get<bool>();
}

// 0 is the best; messages that nobody ranked come last.
double rank_of(const OrderedJson& message) {
  const auto rank = message.find("rank");
  return rank != message.end() && rank->is_number() ? rank->get<double>() : 1e9;
}

// The best of the replies; the first of equals. nullptr: there are none.
const OrderedJson* best_reply(const OrderedJson& message) {
  const auto replies = message.find("replies");
  if (replies == message.end() || !replies->is_array()) return nullptr;
  const OrderedJson* best = nullptr;
  for (const OrderedJson& reply : *replies) {
    if (!reply.is_object() || is_deleted(reply)) continue;
    if (best == nullptr || rank_of(reply) < rank_of(*best)) best = &reply;
  }
  return best;
}

// "": it has a role and a text.
std::string add_message(const OrderedJson& message, OrderedJson& messages) {
  const auto role = message.find("role"), text = message.find("text");
  if (text == message.end() || !text->is_string()) return "a message of the tree has no text";
  if (role == message.end() || (*role != "prompter" && *role != "assistant"))
    return "a message of the tree is neither the prompter's nor the assistant's";
  messages.push_back({{"role", *role == "prompter" ? "user" : "assistant"}, {"content", *text}});
  return "";
}

}  // namespace

std::optional<RowOrReason> tree_row(const OrderedJson& json) {
  const bool is_message = json.contains("message_id") && json.contains("role") && json.contains("text");
  const bool is_tree = json.contains("message_tree_id") && json.contains("prompt") && json["prompt"].is_object();
  if (!is_message && !is_tree) return std::nullopt;
  RowOrReason out;
  out.kind = "oasst";
  if (is_message && !json.contains("replies")) {
    out.reason = "it is one message of a conversation whose others are rows of their own; take OpenAssistant's file of trees";
    return out;
  }
  OrderedJson messages = OrderedJson::array();
  for (const OrderedJson* at = is_tree ? &json["prompt"] : &json; at != nullptr && out.reason.empty(); at = best_reply(*at))
    out.reason = add_message(*at, messages);
  if (!out.reason.empty()) return out;
  while (!messages.empty() && messages.back()["role"] == "user") messages.erase(messages.size() - 1);  // nobody answered
  if (messages.empty()) out.reason = "nobody answered its prompt";
  out.row.kind = SourceRow::Kind::kChat;
  out.row.chat = {{"messages", std::move(messages)}};
  return out;
}

}  // namespace distsetup
