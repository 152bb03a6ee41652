// Renders parts of a conversation, and the conversation with marks in it.
#pragma once
#include <string>

#include "text/template/chat_template.h"
#include "text/template/chat_values.h"

namespace distsetup {

// Two characters that the text does not have.
struct Marks {
  std::string begin, end;
};

struct PartRenderer {
  const ChatTemplate& chat;
  const ChatRequest& request;
  const std::tm& now;
  const RenderLimits& limits;

  // The first messages of the conversation.
  Result<Rendered> first(size_t num_messages, bool adds_generation_prompt) const;
  // The same with marks around what each message from `from` on says, within the blanks around it: templates trim.
  Result<Rendered> marked(size_t num_messages, size_t from, const Marks& marks) const;
};
// Its content is text that is not all blanks.
bool says_something(const nlohmann::ordered_json& message);

bool is_assistant(const nlohmann::ordered_json& message);

}  // namespace distsetup
