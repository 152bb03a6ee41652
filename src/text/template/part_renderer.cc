#include "text/template/part_renderer.h"

namespace distsetup {
namespace {

Result<Rendered> rendered(const PartRenderer& r, const ChatRequest& part) {
  return render(r.chat, chat_values(part), r.now, r.limits);
}

constexpr const char* kBlanks = " \t\r\n";

void put_marks(const Marks& marks, nlohmann::ordered_json& message) {
  std::string& text = message["content"].get_ref<std::string&>();
  text.insert(text.find_last_not_of(kBlanks) + 1, marks.end);
  text.insert(text.find_first_not_of(kBlanks), marks.begin);
}

}  // namespace

bool is_assistant(const nlohmann::ordered_json& message) {
  const auto role = message.find("role");
  return role != message.end() && *role == "assistant";
}

bool says_something(const nlohmann::ordered_json& message) {
  const auto content = message.find("content");
  return content != message.end() && content->is_string() &&
         content->get_ref<const std::string&>().find_first_not_of(kBlanks) != std::string::npos;
}

Result<Rendered> PartRenderer::first(size_t num_messages, bool adds_generation_prompt) const {
  ChatRequest part = request;
  part.messages.get_ref<nlohmann::ordered_json::array_t&>().resize(num_messages);
  part.adds_generation_prompt = adds_generation_prompt;
  return rendered(*this, part);
}

Result<Rendered> PartRenderer::marked(size_t num_messages, size_t from, const Marks& marks) const {
  ChatRequest part = request;
  part.messages.get_ref<nlohmann::ordered_json::array_t&>().resize(num_messages);
  part.adds_generation_prompt = request.adds_generation_prompt && num_messages == request.messages.size();
  for (size_t i = from; i < num_messages; ++i)
    if (says_something(part.messages[i])) put_marks(marks, part.messages[i]);
  return rendered(*this, part);
}

}  // namespace distsetup
