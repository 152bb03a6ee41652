#include "text/tokenizer/read_tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <utility>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "data/tokenizer_file.h"
#include "text/tokenizer/json_node.h"
#include "text/tokenizer/json_tokenizer.h"
#include "text/tokenizer/ranks.h"
#include "text/tokenizer/sentencepiece_model.h"

namespace distsetup {
namespace {

Result<std::string> file_of(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::is_directory(path, failed)) return path;
  if (std::string found = tokenizer_file_in(path); !found.empty()) return found;
  return error(code::kUnreadableFile, {path, 0, 0},
               fmt::format("no tokenizer in this folder, expected one of {}", fmt::join(kTokenizerFiles, ", ")));
}

// "bos_token": "<s>", or the token as an object with its content.
std::optional<uint32_t> named_token(const JsonNode& node, const Tokenizer& tokenizer) {
  if (node.is_absent()) return std::nullopt;
  const std::string token = node.json()->is_object() ? node.at("content").text() : node.text();
  return tokenizer.id_of(token);
}

// What tokenizer_config.json says; a folder may have none.
Diagnostics read_config(const std::string& path, Tokenizer& tokenizer) {
  std::error_code failed;
  if (!std::filesystem::exists(path, failed)) return {};
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.diagnostics;
  const Result<Json> json = parse_json_text(*text, path);
  if (!json.ok()) return json.diagnostics;
  JsonNotes notes{path, {}};
  const JsonNode root(&*json, "", &notes);
  const auto set = [&](std::string_view key, std::optional<uint32_t>& id) {
    if (const std::optional<uint32_t> found = named_token(root.at(key), tokenizer)) id = found;
  };
  set("bos_token", tokenizer.bos);
  set("eos_token", tokenizer.eos);
  set("pad_token", tokenizer.pad);
  if (tokenizer.sentencepiece) {
    if (root.at("add_bos_token").flag_or(false) && tokenizer.bos) tokenizer.before = {*tokenizer.bos};
    if (root.at("add_eos_token").flag_or(false) && tokenizer.eos) tokenizer.after = {*tokenizer.eos};
  }
  return notes.diagnostics;
}

// Whatever its name: what a file is shows in its first bytes.
Result<Tokenizer> parse_tokenizer(const std::string& text, const std::string& file) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '{') {
    const Result<Json> json = parse_json_text(text, file);
    if (!json.ok()) return json.diagnostics;
    return looks_like_tekken(*json) ? parse_tekken(*json, file) : parse_json_tokenizer(*json, file);
  }
  if (looks_like_sentencepiece(text)) return parse_sentencepiece(text, file);
  if (looks_like_tiktoken(text)) return parse_tiktoken(text, file);
  return error(code::kData, {file, 0, 0}, "no tokenizer: neither JSON nor a SentencePiece model nor a tiktoken file");
}

}  // namespace

Result<Tokenizer> read_tokenizer(const std::string& path) {
  const Result<std::string> file = file_of(path);
  if (!file.ok()) return file.diagnostics;
  const Result<std::string> text = read_file(*file);
  if (!text.ok()) return text.diagnostics;
  Result<Tokenizer> tokenizer = parse_tokenizer(*text, *file);
  if (!tokenizer.ok()) return tokenizer;
  const Diagnostics of_config = read_config((std::filesystem::path(*file).parent_path() / kTokenizerConfigFile).string(), *tokenizer);
  if (has_error(of_config)) return of_config;
  Result<std::string> digest = tokenizer_digest(*file);
  if (!digest.ok()) return digest.diagnostics;
  tokenizer->digest = std::move(*digest);
  return tokenizer;
}

}  // namespace distsetup
