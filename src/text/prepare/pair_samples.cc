#include "text/prepare/pair_samples.h"

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "text/template/chat_values.h"

namespace distsetup {
namespace {

using Ids = std::vector<uint32_t>;

// The prompt alone, and with each answer.
struct ThreeTexts {
  std::string prompt, chosen, rejected;
};

uint32_t common_prefix(const Ids& a, const Ids& b) {
  const size_t shorter = std::min(a.size(), b.size());
  return static_cast<uint32_t>(std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(shorter), b.begin()).first - a.begin());
}

Result<ThreeTexts> rendered(const SourceRow& row, const PrepareRequest& request) {
  nlohmann::ordered_json prompt = row.chat;
  prompt.erase("chosen");
  prompt.erase("rejected");
  Result<ChatRequest> chat = read_chat(prompt, row.at);
  if (!chat.ok()) return chat.diagnostics;
  nlohmann::ordered_json values = request.chat->special_tokens;
  for (const auto& [key, value] : chat->more.items()) values[key] = value;
  chat->more = std::move(values);
  ThreeTexts texts;
  for (auto [text, answer] : {std::pair{&texts.prompt, ""}, {&texts.chosen, "chosen"}, {&texts.rejected, "rejected"}}) {
    ChatRequest one = *chat;
    one.adds_generation_prompt = *answer == '\0';
    for (const auto& message : *answer == '\0' ? nlohmann::ordered_json::array() : row.chat[answer]) one.messages.push_back(message);
    Result<Rendered> made = render(request.chat->chat, chat_values(one), request.now);
    if (!made.ok()) return made.diagnostics;
    *text = std::move(made->text);
  }
  return texts;
}

PairOrReason useless(std::string reason) { return {{}, {}, std::move(reason)}; }

}  // namespace

Result<PairOrReason> pair_of(const SourceRow& row, const PrepareRequest& request, Encoder& encoder) {
  const bool is_chat = row.kind == SourceRow::Kind::kChatPair;
  if (is_chat && request.chat == nullptr) {
    Diagnostics said = request.why_no_chat;
    said.push_back(error(code::kData, row.at, "this row is a pair of conversations, and there is no chat template",
                         "--template FILE, or --tokenizer with the folder of a model that has one"));
    return said;
  }
  ThreeTexts texts = {row.prompt, row.prompt + row.completion, row.prompt + row.rejected};
  if (is_chat) {
    Result<ThreeTexts> made = rendered(row, request);
    if (!made.ok()) return useless(made.diagnostics.front().message);
    texts = std::move(*made);
  }
  Ids ids[3];
  const std::string* const text_of[] = {&texts.prompt, &texts.chosen, &texts.rejected};
  for (size_t i = 0; i < 3; ++i) {
    Result<Encoding> encoding = encoder.encode(*text_of[i], {.add_special_tokens = !is_chat});  // a template writes its own
    if (!encoding.ok()) return useless(encoding.diagnostics.front().message);
    ids[i] = std::move(encoding->ids);
  }
  const std::optional<uint32_t>& eos = request.tokenizer->eos;
  for (Ids* answer : {&ids[1], &ids[2]})
    if (!is_chat && eos && (answer->empty() || answer->back() != *eos)) answer->push_back(*eos);
  const uint32_t prompt_end = std::min(common_prefix(ids[0], ids[1]), common_prefix(ids[0], ids[2]));
  PairOrReason out;
  if (ids[1] == ids[2]) return useless("chosen and rejected are the same");
  if (prompt_end == 0) return useless("its prompt has no token that both answers begin with");
  const int64_t longest = request.longest_prompt;
  const uint32_t cut = longest > 0 && prompt_end > longest ? prompt_end - static_cast<uint32_t>(longest) : 0;
  for (auto [sample, answer] : {std::pair{&out.chosen, &ids[1]}, {&out.rejected, &ids[2]}}) {
    if (answer->size() <= prompt_end)
      return useless(sample == &out.chosen ? "its chosen answer is empty" : "its rejected answer is empty");
    answer->erase(answer->begin(), answer->begin() + cut);
    sample->spans = {{prompt_end - cut, static_cast<uint32_t>(answer->size())}};
    sample->ids = std::move(*answer);
    sample->too_long = TooLong::kIsCut;
  }
  return out;
}

}  // namespace distsetup
