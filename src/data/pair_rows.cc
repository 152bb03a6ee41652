#include "data/pair_rows.h"

#include <algorithm>

#include "base/json_text.h"
#include "data/row_keys.h"

namespace distsetup {
namespace {

constexpr const char* kPairMessages = "pair messages";
constexpr const char* kSame = "chosen and rejected are the same";
constexpr const char* kNoPrompt = "chosen and rejected do not begin alike: there is no prompt";

bool is_filled(const OrderedJson* value) { return value != nullptr && !value->empty(); }
bool is_text(const OrderedJson* value) { return value != nullptr && value->is_string(); }

// What is trained of a pair are its answers, whatever a message says of itself.
std::string problem_of_turns(OrderedJson& turns) {
  std::vector<bool> ignored;
  return problem_of_messages(turns, ignored);
}

// Both answers of a row: under keys of their own, or as a list of two under output.
struct Answers {
  OrderedJson chosen, rejected;
};
std::optional<Answers> answers_of(const RowKeys& row) {
  const OrderedJson *chosen = row.first({"chosen", "chosen_messages", "preferred_output"}),
                    *rejected = row.first({"rejected", "rejected_messages", "non_preferred_output"});
  if (is_filled(chosen) && is_filled(rejected)) return Answers{*chosen, *rejected};
  const OrderedJson* both = row.find("output");
  if (both == nullptr || !both->is_array() || both->size() != 2 || !(*both)[0].is_string() || !(*both)[1].is_string()) return {};
  return Answers{(*both)[0], (*both)[1]};
}

OrderedJson one_turn(const char* role, const OrderedJson& content) {
  OrderedJson turns = OrderedJson::array(), turn = {{"role", role}, {"content", content}};
  turns.push_back(std::move(turn));
  return turns;
}
// One answer as a list of turns: a text, a turn, or turns.
OrderedJson turns_of(const OrderedJson& answer) {
  if (answer.is_string()) return one_turn("assistant", answer);
  OrderedJson turns = OrderedJson::array();
  if (answer.is_array()) return answer;
  turns.push_back(answer);
  return turns;
}

RowOrReason chat_pair(OrderedJson prompt, OrderedJson chosen, OrderedJson rejected, const OrderedJson& row, std::string kind) {
  RowOrReason out;
  out.kind = std::move(kind);
  for (OrderedJson* turns : {&prompt, &chosen, &rejected}) {
    out.reason = problem_of_turns(*turns);
    if (!out.reason.empty()) return out;
  }
  if (chosen == rejected) {
    out.reason = kSame;
    return out;
  }
  const bool has_system = row.contains("system") && row["system"].is_string() && !row["system"].get<std::string>().empty();
  if (has_system && prompt[0]["role"] != "system") prompt.insert(prompt.begin(), one_turn("system", row["system"])[0]);
  out.row.kind = SourceRow::Kind::kChatPair;
  out.row.chat = {{"messages", std::move(prompt)}, {"chosen", std::move(chosen)}, {"rejected", std::move(rejected)}};
  if (!row.contains("tools")) return out;
  const OrderedJson tools = row["tools"].is_string() ? ordered_json_from_text(row["tools"].get<std::string>()) : row["tools"];
  if (tools.is_array() && !tools.empty()) out.row.chat["tools"] = tools;
  return out;
}

RowOrReason text_pair(const std::string& prompt, const Answers& answers, std::string kind) {
  RowOrReason out;
  out.kind = std::move(kind);
  out.row.kind = SourceRow::Kind::kTextPair;
  out.row.prompt = prompt;
  out.row.completion = answers.chosen.get<std::string>();
  out.row.rejected = answers.rejected.get<std::string>();
  return out;
}

RowOrReason refused(std::string reason) {
  RowOrReason out;
  out.kind = "pair";
  out.reason = std::move(reason);
  return out;
}

// Two conversations that begin alike.
RowOrReason implicit_chat_pair(OrderedJson chosen, OrderedJson rejected, const OrderedJson& row) {
  for (OrderedJson* turns : {&chosen, &rejected})
    if (std::string problem = problem_of_turns(*turns); !problem.empty()) return refused(std::move(problem));
  size_t same = 0;
  while (same < std::min(chosen.size(), rejected.size()) && chosen[same] == rejected[same]) ++same;
  if (same == chosen.size() && same == rejected.size()) return refused(kSame);
  if (same == 0) return refused(kNoPrompt);
  if (same == chosen.size() || same == rejected.size())
    --same;  // one of them ends where the other goes on: its last turn is an answer
  OrderedJson prompt = OrderedJson::array();
  for (size_t i = 0; i < same; ++i) prompt.push_back(chosen[i]);
  for (OrderedJson* turns : {&chosen, &rejected}) turns->erase(turns->begin(), turns->begin() + static_cast<ptrdiff_t>(same));
  if (prompt.empty()) return refused(kNoPrompt);
  return chat_pair(std::move(prompt), std::move(chosen), std::move(rejected), row, kPairMessages);
}

RowOrReason alpaca_pair(const RowKeys& row, const OrderedJson& json, const OrderedJson& instruction, Answers answers) {
  const OrderedJson* input = row.first({"input", "context"});
  if (!instruction.is_string() || (input != nullptr && !input->is_string())) return refused("its instruction or input is no text");
  OrderedJson turns = OrderedJson::array();
  if (std::string problem = add_history(row.find("history"), turns); !problem.empty()) return refused(std::move(problem));
  std::string question = instruction.get<std::string>();
  if (input != nullptr && !input->get<std::string>().empty()) question += "\n\n" + input->get<std::string>();
  turns.push_back(one_turn("user", question)[0]);
  return chat_pair(std::move(turns), turns_of(answers.chosen), turns_of(answers.rejected), json, "pair alpaca");
}

}  // namespace

std::string add_history(const nlohmann::ordered_json* history, nlohmann::ordered_json& turns) {
  if (history == nullptr) return "";
  if (!history->is_array()) return "its history is no list";
  for (const OrderedJson& turn : *history) {
    if (!turn.is_array() || turn.size() != 2 || !turn[0].is_string() || !turn[1].is_string())
      return "its history is no list of questions with answers";
    turns.push_back(one_turn("user", turn[0])[0]);
    turns.push_back(one_turn("assistant", turn[1])[0]);
  }
  return "";
}

size_t common_prompt(const std::string& chosen, const std::string& rejected) {
  size_t same = 0;
  const size_t shorter = std::min(chosen.size(), rejected.size());
  while (same < shorter && chosen[same] == rejected[same]) ++same;
  const auto inside_character = [](const std::string& text, size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  while (same > 0 && (inside_character(chosen, same) || inside_character(rejected, same))) --same;
  return same > 0 && chosen[same - 1] == ' ' ? same - 1 : same;
}

bool is_pair_row(const OrderedJson& json, const RowOptions& options) { return answers_of(RowKeys(json, options)).has_value(); }

RowOrReason pair_row(const OrderedJson& json, const RowOptions& options) {
  const RowKeys row(json, options);
  Answers answers = *answers_of(row);
  const bool are_texts = answers.chosen.is_string() && answers.rejected.is_string();
  if (const OrderedJson* turns = row.first({"messages", "conversations", "conversation"}); is_filled(turns) && turns->is_array())
    return chat_pair(*turns, turns_of(answers.chosen), turns_of(answers.rejected), json, kPairMessages);
  const OrderedJson* nested = row.find("input");  // OpenAI's
  if (nested != nullptr && nested->is_object() && nested->contains("messages"))
    return chat_pair((*nested)["messages"], turns_of(answers.chosen), turns_of(answers.rejected), *nested, kPairMessages);
  const OrderedJson* prompt = row.first({"prompt", "question"});
  if (prompt != nullptr && prompt->is_array())
    return chat_pair(*prompt, turns_of(answers.chosen), turns_of(answers.rejected), json, kPairMessages);
  if (const OrderedJson* instruction = row.find("instruction"); instruction != nullptr && prompt == nullptr)
    return alpaca_pair(row, json, *instruction, std::move(answers));
  if (answers.chosen.is_array() && answers.rejected.is_array())
    return answers.chosen.size() == 1 && answers.rejected.size() == 1 && is_text(prompt)
               ? chat_pair(one_turn("user", *prompt), answers.chosen, answers.rejected, json, kPairMessages)
               : implicit_chat_pair(std::move(answers.chosen), std::move(answers.rejected), json);
  if (answers.chosen.is_object() && answers.rejected.is_object() && is_text(prompt))
    return chat_pair(one_turn("user", *prompt), turns_of(answers.chosen), turns_of(answers.rejected), json, kPairMessages);
  if (!are_texts) return refused("its chosen and rejected answers are neither two texts nor two lists of messages");
  if (prompt == nullptr) prompt = row.find("input");
  const bool has_system = json.contains("system") && json["system"].is_string() && json["system"] != "";
  if (is_text(prompt) && has_system) {  // which a text has no place for
    if (options.prompt_format) return refused("it has a system message, which the prompt format has no place for");
    return chat_pair(one_turn("user", *prompt), turns_of(answers.chosen), turns_of(answers.rejected), json, kPairMessages);
  }
  if (is_text(prompt)) return text_pair(prompt->get<std::string>(), answers, "pair texts");
  if (prompt != nullptr) return refused("its prompt is no text");
  const std::string chosen = answers.chosen.get<std::string>(), rejected = answers.rejected.get<std::string>();
  if (chosen == rejected) return refused(kSame);
  const size_t begin = common_prompt(chosen, rejected);
  if (begin == 0) return refused(kNoPrompt);
  return text_pair(chosen.substr(0, begin), {chosen.substr(begin), rejected.substr(begin)}, "pair texts");
}

}  // namespace distsetup
