// Where a model keeps its chat template: chat_template.jinja, chat_template.json, or tokenizer_config.json (one, or several with
// names).
#pragma once
#include <nlohmann/json.hpp>

#include "text/template/chat_template.h"

namespace distsetup {

struct ModelTemplate {
  ChatTemplate chat;
  nlohmann::ordered_json special_tokens = nlohmann::ordered_json::object();  // bos_token, eos_token … of tokenizer_config.json
};

// path: a model's folder, or a file with a template. name: which one, where a model has several ("default" when empty).
Result<ModelTemplate> read_chat_template(const std::string& path, const std::string& name = "");

}  // namespace distsetup
