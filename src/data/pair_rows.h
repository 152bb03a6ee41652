// Rows that say which of two answers is better, as they are found:
//   prompt, chosen, rejected          texts (TRL); a list of prompts with lists of messages; question or input in place of prompt
//   chosen, rejected                  two conversations that begin alike, or two texts that do (HH-RLHF): the prompt is what they
//   share.
//                                     Also as chosen_messages, rejected_messages. A prompt beside two conversations that hold it
//                                     already (UltraFeedback) is not read
//   conversations, chosen, rejected   ShareGPT's turns, then one more turn each (LLaMA-Factory)
//   input {messages}, preferred_output, non_preferred_output   (OpenAI)
//   instruction, input, chosen, rejected, also system and history; output may be a list of both answers (LLaMA-Factory)
// Leaves out: more than two answers, scores without an order.
#pragma once
#include <nlohmann/json.hpp>

#include "data/source_rows.h"

namespace distsetup {

bool is_pair_row(const nlohmann::ordered_json& json, const RowOptions& options);
RowOrReason pair_row(const nlohmann::ordered_json& json, const RowOptions& options);

// LLaMA-Factory's turns before an instruction, a list of questions with their answers, as messages; "": it is one, or null.
std::string add_history(const nlohmann::ordered_json* history, nlohmann::ordered_json& turns);

// Bytes that two texts begin with alike; a blank there begins the answers, and no character is cut. Source: TRL, extract_prompt.
size_t common_prompt(const std::string& chosen, const std::string& rejected);

}  // namespace distsetup
