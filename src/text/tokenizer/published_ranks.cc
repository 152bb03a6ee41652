#include "text/tokenizer/published_ranks.h"

#include <fmt/format.h>

namespace distsetup {
namespace {

using Names = std::vector<std::string>;

void add_numbered(Names& names, std::string_view name, int first, int count) {
  for (int i = first; i < first + count; ++i) names.push_back(fmt::format("<|{}_{}|>", name, i));
}

Names llama3_special_tokens() {
  Names names = {"<|begin_of_text|>",
                 "<|end_of_text|>",
                 "<|reserved_special_token_0|>",
                 "<|reserved_special_token_1|>",
                 "<|finetune_right_pad_id|>",
                 "<|step_id|>",
                 "<|start_header_id|>",
                 "<|end_header_id|>",
                 "<|eom_id|>",
                 "<|eot_id|>",
                 "<|python_tag|>",
                 "<|image|>"};
  add_numbered(names, "reserved_special_token", 2, 256 - 12);
  return names;
}

Names llama4_special_tokens() {
  Names names = {"<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
                 "<|header_start|>",  "<|header_end|>",  "<|eom|>",        "<|eot|>",        "<|step|>"};
  add_numbered(names, "text_post_train_reserved_special_token", 0, 6);
  names.insert(names.end(), {"<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>"});
  add_numbered(names, "text_post_train_reserved_special_token", 8, 61);
  names.insert(names.end(), {"<|image_start|>", "<|image_end|>"});
  add_numbered(names, "vision_reserved_special_token", 0, 2);
  names.insert(names.end(), {"<|tile_x_separator|>", "<|tile_y_separator|>"});
  add_numbered(names, "vision_reserved_special_token", 2, 4);
  names.emplace_back("<|image|>");
  add_numbered(names, "vision_reserved_special_token", 6, 1);
  names.emplace_back("<|patch|>");
  add_numbered(names, "vision_reserved_special_token", 7, 1041);
  add_numbered(names, "reasoning_reserved_special_token", 0, 8);
  names.insert(names.end(), {"<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"});
  add_numbered(names, "reserved_special_token", 0, 2048 - static_cast<int>(names.size()));
  return names;
}

Names qwen_special_tokens() {
  Names names = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  add_numbered(names, "extra", 0, 205);
  return names;
}

constexpr PublishedRanks kPublished[] = {
    {"Llama 3", 128000,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     llama3_special_tokens, "<|begin_of_text|>", "<|end_of_text|>", "<|finetune_right_pad_id|>"},
    {"Llama 4", 200000,
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     llama4_special_tokens, "<|begin_of_text|>", "<|end_of_text|>", "<|finetune_right_pad|>"},
    {"Qwen", 151643,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     qwen_special_tokens, "", "<|endoftext|>", ""},
};

}  // namespace

const PublishedRanks* find_published_ranks(size_t num_ranks) {
  for (const PublishedRanks& one : kPublished) {
    if (one.num_ranks == num_ranks) return &one;
  }
  return nullptr;
}

std::vector<std::string> old_tekken_special_tokens() {
  return {"<unk>",
          "<s>",
          "</s>",
          "[INST]",
          "[/INST]",
          "[AVAILABLE_TOOLS]",
          "[/AVAILABLE_TOOLS]",
          "[TOOL_RESULTS]",
          "[/TOOL_RESULTS]",
          "[TOOL_CALLS]",
          "[IMG]",
          "<pad>",
          "[IMG_BREAK]",
          "[IMG_END]",
          "[PREFIX]",
          "[MIDDLE]",
          "[SUFFIX]",
          "[SYSTEM_PROMPT]",
          "[/SYSTEM_PROMPT]",
          "[TOOL_CONTENT]"};
}

}  // namespace distsetup
