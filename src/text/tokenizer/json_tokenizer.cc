#include "text/tokenizer/json_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "text/tokenizer/json_model.h"
#include "text/tokenizer/json_node.h"
#include "text/tokenizer/json_steps.h"

namespace distsetup {
namespace {

constexpr uint32_t kFarthestId = 1 << 20;  // beyond the model's vocabulary: an added token there is a damaged file

AddedToken read_added_token(const JsonNode& node) {
  AddedToken token;
  token.content = node.at("content").text();
  token.id = static_cast<uint32_t>(node.at("id").number(0, kNoId - 1));
  token.single_word = node.at("single_word").flag_or(false);
  token.lstrip = node.at("lstrip").flag_or(false);
  token.rstrip = node.at("rstrip").flag_or(false);
  token.special = node.at("special").flag_or(false);
  token.normalized = node.at("normalized").flag_or(!token.special);
  return token;
}

// What the normalizers make of an added token.
std::string normalized(const Tokenizer& tokenizer, const std::string& content, const JsonNode& node) {
  AlignedText text = aligned_text(content);
  RegexScratch scratch;
  for (const Normalizer& step : tokenizer.normalizers) {
    if (!normalize(step, text, scratch)) node.note("cannot be normalized");
  }
  return text.bytes;
}

void read_added_tokens(const JsonNode& list, Tokenizer& tokenizer) {
  if (list.is_absent()) return;
  const size_t in_model = tokenizer.tokens.size();
  StringIndex known;
  for (uint32_t id = 0; id < in_model; ++id) known.set(tokenizer.tokens[id], id);
  for (const JsonNode& node : list.items()) {
    const AddedToken token = read_added_token(node);
    if (!node.notes().diagnostics.empty()) return;
    if (token.content.empty()) continue;
    const uint32_t before = known.find(token.content);
    if (before != StringIndex::kNone && before != token.id) {
      node.note(fmt::format("gives '{}' the id {}, but it has {} already", token.content, token.id, before));
      return;
    }
    if (token.id >= in_model + kFarthestId) return node.note(fmt::format("has the id {}, far beyond {} tokens", token.id, in_model));
    if (token.id >= tokenizer.tokens.size()) tokenizer.tokens.resize(token.id + 1);
    std::string& text = tokenizer.tokens[token.id];
    if (!text.empty() && text != token.content)
      return node.note(fmt::format("gives '{}' the id {}, which '{}' has", token.content, token.id, text));
    text = token.content;
    known.set(token.content, token.id);
    const auto same = std::find_if(tokenizer.added_tokens.begin(), tokenizer.added_tokens.end(),
                                   [&](const AddedToken& one) { return one.id == token.id; });
    if (same == tokenizer.added_tokens.end()) {
      tokenizer.added_tokens.push_back(token);
    } else {
      *same = token;
    }
  }
  std::sort(tokenizer.added_tokens.begin(), tokenizer.added_tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
}

void make_matchers(const JsonNode& list, Tokenizer& tokenizer) {
  for (const AddedToken& token : tokenizer.added_tokens) {
    if (!token.normalized) {
      tokenizer.in_input.add(token, token.content);
      continue;
    }
    const std::string text = normalized(tokenizer, token.content, list);
    tokenizer.in_normalized.add(token, text);
    if (text != token.content) {
      tokenizer.decoded_as.resize(tokenizer.tokens.size());
      tokenizer.decoded_as[token.id] = text;
    }
  }
  tokenizer.in_input.finish();
  tokenizer.in_normalized.finish();
}

void check_ids(const std::vector<uint32_t>& ids, const Tokenizer& tokenizer, const JsonNode& node) {
  for (const uint32_t id : ids) {
    if (id >= tokenizer.tokens.size() || tokenizer.tokens[id].empty())
      node.note(fmt::format("names the id {}, which no token has", id));
  }
}

}  // namespace

Result<Tokenizer> parse_json_tokenizer(const Json& json, const std::string& file) {
  JsonNotes notes{file, {}};
  const JsonNode root(&json, "", &notes);
  if (!json.is_object() || root.at("model").is_absent())
    return error(code::kData, {file, 0, 0}, "no tokenizer.json: there is no 'model' in it", "give the tokenizer.json of a model");
  Tokenizer tokenizer;
  tokenizer.file = file;
  read_normalizers(root.at("normalizer"), tokenizer.normalizers);
  read_pre_tokenizers(root.at("pre_tokenizer"), tokenizer.pre_tokenizers);
  read_decoders(root.at("decoder"), tokenizer.decoders);
  read_post_processor(root.at("post_processor"), tokenizer);
  // The last step of most: the model does it itself, on the bytes that the characters would stand for.
  const bool bytes = !tokenizer.pre_tokenizers.empty() && std::holds_alternative<BytesAsCharacters>(tokenizer.pre_tokenizers.back());
  if (bytes) tokenizer.pre_tokenizers.pop_back();
  read_json_model(root.at("model"), bytes ? Alphabet::kBytes : Alphabet::kCharacters, tokenizer);
  if (notes.diagnostics.empty()) read_added_tokens(root.at("added_tokens"), tokenizer);
  if (notes.diagnostics.empty()) make_matchers(root.at("added_tokens"), tokenizer);
  if (notes.diagnostics.empty()) {
    check_ids(tokenizer.before, tokenizer, root.at("post_processor"));
    check_ids(tokenizer.after, tokenizer, root.at("post_processor"));
  }
  if (!notes.diagnostics.empty()) return notes.diagnostics;
  return tokenizer;
}

}  // namespace distsetup
