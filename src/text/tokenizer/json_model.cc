#include "text/tokenizer/json_model.h"

#include <fmt/format.h>

#include <unordered_map>

#include "text/tokenizer/byte_level.h"

namespace distsetup {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 28;  // an id beyond it is a damaged file, and would be memory for nothing

void place(std::vector<std::string>& tokens, uint32_t id, const std::string& text) {
  if (id >= tokens.size()) tokens.resize(id + 1);
  tokens[id] = text;
}

// Text -> id, from an object.
StringIndex read_vocabulary(const JsonNode& node, std::vector<std::string>& tokens) {
  StringIndex index;
  if (node.json() == nullptr || !node.json()->is_object()) {
    node.note("is missing or no object, expected tokens with their ids");
    return index;
  }
  index.reserve(node.json()->size());
  const auto most = static_cast<int64_t>(std::min<size_t>(kMostTokens, 16 * node.json()->size() + 65536));
  for (const auto& [text, id] : node.json()->items()) {
    const JsonNode one(&id, fmt::format("{}['{}']", node.path(), text), &node.notes());
    const auto number = static_cast<uint32_t>(one.number(0, most));
    if (!node.notes().diagnostics.empty()) return index;
    place(tokens, number, text);
    index.set(text, number);
  }
  return index;
}

// Both halves of a merge: ["a", "b"] or "a b".
std::optional<std::pair<std::string, std::string>> halves(const Json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return std::pair(merge[0].get<std::string>(), merge[1].get<std::string>());
  if (!merge.is_string()) return std::nullopt;
  const auto& text = merge.get_ref<const std::string&>();
  const size_t blank = text.find(' ');
  if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos) return std::nullopt;
  return std::pair(text.substr(0, blank), text.substr(blank + 1));
}

void read_merges(const JsonNode& node, const StringIndex& index, Bpe& bpe, std::vector<std::string>& merged) {
  if (node.json() == nullptr || !node.json()->is_array()) return node.note("is missing or no list, expected pairs of tokens");
  bpe.merges.reserve(node.json()->size());
  uint32_t rank = 0;
  size_t number = 0;
  for (const Json& merge : *node.json()) {
    const size_t place = number++;
    if (merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version")) continue;
    const auto pair = halves(merge);
    const std::string path = fmt::format("merges[{}]", place);
    if (!pair)
      return node.note(
          fmt::format("[{}] is {}, expected two tokens", place, merge.dump(-1, ' ', false, Json::error_handler_t::replace)));
    const auto& [left, right] = *pair;
    if (right.size() < bpe.continuing_prefix.size())
      return node.note(fmt::format("[{}]: '{}' is shorter than the prefix", place, right));
    const std::string result = left + right.substr(bpe.continuing_prefix.size());
    for (const std::string& token : {left, right, result}) {
      if (index.find(token) == StringIndex::kNone)
        return node.note(fmt::format("[{}] needs the token '{}', which the vocabulary does not have", place, token));
    }
    bpe.merges.set({index.find(left), index.find(right), index.find(result), rank++});
    merged.push_back(result);
  }
}

void read_bpe(const JsonNode& node, Alphabet alphabet, Tokenizer& tokenizer) {
  Bpe bpe;
  if (!node.at("dropout").is_absent() && *node.at("dropout").json() != 0)
    node.at("dropout").note("is set: tokens would be drawn at random", "\"dropout\": null");
  bpe.fuse_unknown = node.at("fuse_unk").flag_or(false);
  bpe.byte_fallback = node.at("byte_fallback").flag_or(false);
  bpe.ignore_merges = node.at("ignore_merges").flag_or(false);
  bpe.continuing_prefix = node.at("continuing_subword_prefix").text_or("");
  bpe.end_suffix = node.at("end_of_word_suffix").text_or("");
  const StringIndex index = read_vocabulary(node.at("vocab"), tokenizer.tokens);
  std::vector<std::string> merged;
  if (node.notes().diagnostics.empty()) read_merges(node.at("merges"), index, bpe, merged);
  if (!node.at("unk_token").is_absent()) {
    const std::string unknown = node.at("unk_token").text();
    bpe.unknown = index.find(unknown);
    bpe.needs_unknown = bpe.unknown == kNoId;
  }
  find_byte_tokens(tokenizer.tokens, bpe.byte_tokens);
  const bool is_plain = bpe.continuing_prefix.empty() && bpe.end_suffix.empty() && !bpe.byte_fallback;
  if (alphabet == Alphabet::kBytes && is_plain) {
    bpe.bytes = true;
    bpe.vocabulary.reserve(tokenizer.tokens.size());
    for (uint32_t id = 0; id < tokenizer.tokens.size(); ++id) {
      const std::optional<std::string> bytes = bytes_of_characters(tokenizer.tokens[id]);
      if (bytes && !bytes->empty() && index.find(tokenizer.tokens[id]) == id) bpe.vocabulary.set(*bytes, id);
    }
  } else {
    bpe.vocabulary = index;
    if (alphabet == Alphabet::kBytes) tokenizer.pre_tokenizers.emplace_back(BytesAsCharacters{});
    find_cuts(bpe, merged);
  }
  tokenizer.model = std::move(bpe);
}

void read_unigram(const JsonNode& node, Tokenizer& tokenizer) {
  Unigram unigram;
  const std::vector<JsonNode> pieces = node.at("vocab").items();
  bool first = true;
  for (const JsonNode& piece : pieces) {
    const Json* json = piece.json();
    if (!json->is_array() || json->size() != 2 || !(*json)[0].is_string() || !(*json)[1].is_number())
      return piece.note("is no pair of a token and its score");
    const auto id = static_cast<uint32_t>(tokenizer.tokens.size());
    const auto score = (*json)[1].get<double>();
    tokenizer.tokens.push_back((*json)[0].get<std::string>());
    unigram.pieces.insert(tokenizer.tokens.back(), id);
    unigram.scores.push_back(score);
    unigram.lowest_score = first ? score : std::min(unigram.lowest_score, score);
    first = false;
  }
  unigram.pieces.finish();
  if (!node.at("unk_id").is_absent())
    unigram.unknown = static_cast<uint32_t>(node.at("unk_id").number(0, static_cast<int64_t>(pieces.size()) - 1));
  unigram.byte_fallback = node.at("byte_fallback").flag_or(false);
  find_byte_tokens(tokenizer.tokens, unigram.byte_tokens);
  tokenizer.model = std::move(unigram);
}

}  // namespace

void find_byte_tokens(const std::vector<std::string>& tokens, std::array<uint32_t, 256>& byte_tokens) {
  byte_tokens.fill(kNoId);
  std::unordered_map<std::string, uint32_t> names;
  for (uint32_t byte = 0; byte < 256; ++byte) names[fmt::format("<0x{:02X}>", byte)] = byte;
  for (uint32_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].size() != 6) continue;
    const auto found = names.find(tokens[id]);
    if (found != names.end()) byte_tokens[found->second] = id;
  }
}

void read_json_model(const JsonNode& node, Alphabet alphabet, Tokenizer& tokenizer) {
  const bool has_merges = !node.at("merges").is_absent();
  const std::string type = node.at("type").text_or(has_merges ? "BPE" : "Unigram");  // old files do not say
  if (type == "BPE") return read_bpe(node, alphabet, tokenizer);
  if (type != "Unigram") return node.refuse_type("a model", type);
  if (alphabet == Alphabet::kBytes) tokenizer.pre_tokenizers.emplace_back(BytesAsCharacters{});
  read_unigram(node, tokenizer);
}

}  // namespace distsetup
