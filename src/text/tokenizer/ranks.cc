#include "text/tokenizer/ranks.h"

#include <fmt/format.h>

#include <charconv>

#include "base/base64.h"
#include "base/diagnostic_codes.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/published_ranks.h"

namespace distsetup {
namespace {

constexpr size_t kMostRanks = size_t{1} << 24;

struct ByteRanks {
  std::vector<std::string> bytes;  // by rank
  uint32_t first_id = 0;           // of rank 0
};

std::string as_characters(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += byte_character(static_cast<uint8_t>(c));
  return out;
}

// The model, and the tokens' texts in the alphabet of byte-level vocabularies.
void make_model(const ByteRanks& ranks, Tokenizer& tokenizer) {
  Bpe bpe;
  bpe.bytes = true;
  bpe.ignore_merges = true;
  bpe.vocabulary.reserve(ranks.bytes.size());
  tokenizer.tokens.resize(std::max<size_t>(tokenizer.tokens.size(), ranks.first_id + ranks.bytes.size()));
  for (uint32_t rank = 0; rank < ranks.bytes.size(); ++rank) {
    bpe.vocabulary.set(ranks.bytes[rank], ranks.first_id + rank);
    tokenizer.tokens[ranks.first_id + rank] = as_characters(ranks.bytes[rank]);
  }
  bpe.merges.reserve(3 * ranks.bytes.size());
  for (uint32_t rank = 0; rank < ranks.bytes.size(); ++rank) {
    const std::string_view whole = ranks.bytes[rank];
    for (size_t at = 1; at < whole.size(); ++at) {
      const uint32_t left = bpe.vocabulary.find(whole.substr(0, at));
      if (left == kNoId) continue;
      const uint32_t right = bpe.vocabulary.find(whole.substr(at));
      if (right != kNoId) bpe.merges.set({left, right, ranks.first_id + rank, rank});
    }
  }
  tokenizer.model = std::move(bpe);
  tokenizer.decoders = {DecodeByteLevel{}};
}

Diagnostics add_pattern(std::string_view pattern, const std::string& file, const std::string& path, Tokenizer& tokenizer) {
  const Result<Regex> regex = Regex::compile(pattern, RegexDialect::kRust, {file, 0, 0}, path);
  if (regex.ok()) tokenizer.pre_tokenizers = {RegexSplit{*regex, SplitBehavior::kIsolated, false}};
  return regex.diagnostics;
}

void add_special(uint32_t id, const std::string& name, Tokenizer& tokenizer) {
  if (id >= tokenizer.tokens.size()) tokenizer.tokens.resize(id + 1);
  tokenizer.tokens[id] = name;
  AddedToken token;
  token.id = id;
  token.content = name;
  token.special = true;
  tokenizer.added_tokens.push_back(std::move(token));
}

// Every byte and no rank twice; "" when so.
std::string mistake_of(const ByteRanks& ranks) {
  StringIndex seen;
  for (uint32_t rank = 0; rank < ranks.bytes.size(); ++rank) {
    if (ranks.bytes[rank].empty()) return fmt::format("rank {} is missing", rank);
    const uint32_t before = seen.find(ranks.bytes[rank]);
    if (before != StringIndex::kNone) return fmt::format("ranks {} and {} have the same bytes", before, rank);
    seen.set(ranks.bytes[rank], rank);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char one = static_cast<char>(byte);
    if (seen.find({&one, 1}) == StringIndex::kNone) return fmt::format("no rank has the byte 0x{:02X} alone", byte);
  }
  return "";
}

// "IQ== 0"
bool read_line(std::string_view line, ByteRanks& ranks) {
  const size_t blank = line.find(' ');
  if (blank == std::string_view::npos) return false;
  const std::optional<std::string> bytes = from_base64(line.substr(0, blank));
  size_t rank = 0;
  const char* end = line.data() + line.size();
  const auto [stopped, failed] = std::from_chars(line.data() + blank + 1, end, rank);
  if (!bytes || failed != std::errc() || stopped != end || rank >= kMostRanks) return false;
  if (rank >= ranks.bytes.size()) ranks.bytes.resize(rank + 1);
  ranks.bytes[rank] = *bytes;
  return true;
}

}  // namespace

bool looks_like_tiktoken(std::string_view text) {
  ByteRanks ranks;
  return read_line(text.substr(0, text.find('\n')), ranks);
}

Result<Tokenizer> parse_tiktoken(std::string_view text, const std::string& file) {
  ByteRanks ranks;
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (!read_line(line, ranks))
      return error(code::kData, {file, number, 1}, "no line of a tiktoken file, expected base64, a blank and a rank");
  }
  const std::string mistake = mistake_of(ranks);
  if (!mistake.empty()) return error(code::kData, {file, 0, 0}, mistake);
  const PublishedRanks* published = find_published_ranks(ranks.bytes.size());
  if (published == nullptr) {
    return error(code::kUnsupportedFeature, {file, 0, 0},
                 fmt::format("a tiktoken file of {} ranks does not say how a text is cut, and none of Llama's and Qwen's has so many",
                             ranks.bytes.size()),
                 "take the tokenizer.json of this model");
  }
  Tokenizer tokenizer;
  tokenizer.file = file;
  make_model(ranks, tokenizer);
  const Diagnostics of_pattern = add_pattern(published->pattern, file, "pattern", tokenizer);
  if (has_error(of_pattern)) return of_pattern;
  const auto first = static_cast<uint32_t>(ranks.bytes.size());
  const std::vector<std::string> names = published->special_tokens();
  for (uint32_t i = 0; i < names.size(); ++i) add_special(first + i, names[i], tokenizer);
  for (const AddedToken& token : tokenizer.added_tokens) tokenizer.in_input.add(token, token.content);
  tokenizer.in_input.finish();
  tokenizer.in_normalized.finish();
  tokenizer.bos = published->bos.empty() ? std::nullopt : tokenizer.id_of(published->bos);
  tokenizer.eos = tokenizer.id_of(published->eos);
  tokenizer.pad = published->pad.empty() ? std::nullopt : tokenizer.id_of(published->pad);
  if (tokenizer.bos) tokenizer.before = {*tokenizer.bos};
  return tokenizer;
}

bool looks_like_tekken(const Json& json) {
  return json.is_object() && json.contains("config") && json.contains("vocab") && json["config"].is_object() &&
         json["config"].contains("pattern");
}

Result<Tokenizer> parse_tekken(const Json& json, const std::string& file) {
  JsonNotes notes{file, {}};
  const JsonNode root(&json, "", &notes);
  const JsonNode config = root.at("config");
  const std::string pattern = config.at("pattern").text();
  const int64_t vocabulary_size = config.at("default_vocab_size").number(1, kMostRanks);
  const int64_t num_special = config.at("default_num_special_tokens").number(0, vocabulary_size);
  ByteRanks ranks;
  ranks.first_id = static_cast<uint32_t>(num_special);
  for (const JsonNode& token : root.at("vocab").items()) {
    const auto rank = static_cast<size_t>(token.at("rank").number(0, kMostRanks));
    const std::optional<std::string> bytes = from_base64(token.at("token_bytes").text());
    if (!bytes) token.at("token_bytes").note("is no base64");
    if (!notes.diagnostics.empty()) return notes.diagnostics;
    if (rank >= static_cast<size_t>(vocabulary_size - num_special)) continue;  // the file has more than the model uses
    if (rank >= ranks.bytes.size()) ranks.bytes.resize(rank + 1);
    ranks.bytes[rank] = *bytes;
  }
  const std::string mistake = mistake_of(ranks);
  if (!mistake.empty()) root.at("vocab").note(fmt::format("is not whole: {}", mistake));
  Tokenizer tokenizer;
  tokenizer.file = file;
  std::vector<std::string> names;
  if (root.at("special_tokens").is_absent()) {
    names = old_tekken_special_tokens();
  } else {
    for (const JsonNode& token : root.at("special_tokens").items()) {
      const auto rank = static_cast<size_t>(token.at("rank").number(0, std::max<int64_t>(num_special - 1, 0)));
      if (rank >= names.size()) names.resize(rank + 1);
      names[rank] = token.at("token_str").text();
    }
  }
  if (!notes.diagnostics.empty()) return notes.diagnostics;
  names.resize(static_cast<size_t>(num_special));
  for (uint32_t i = 0; i < names.size(); ++i) add_special(i, names[i].empty() ? fmt::format("<SPECIAL_{}>", i) : names[i], tokenizer);
  make_model(ranks, tokenizer);
  const Diagnostics of_pattern = add_pattern(pattern, file, "config.pattern", tokenizer);
  if (has_error(of_pattern)) return of_pattern;
  tokenizer.in_input.finish();
  tokenizer.in_normalized.finish();
  tokenizer.bos = tokenizer.id_of("<s>");
  tokenizer.eos = tokenizer.id_of("</s>");
  tokenizer.pad = tokenizer.id_of("<pad>");
  if (tokenizer.bos) tokenizer.before = {*tokenizer.bos};
  return tokenizer;
}

}  // namespace distsetup
