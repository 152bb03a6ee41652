// src/text/tokenizer against what the libraries made of the same texts (tests/data/tokenizers/make.py), and what it refuses.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "support/temporary_directory.h"
#include "text/tokenizer/read_tokenizer.h"
#include "text/tokenizer/regex_translate.h"
#include "text/tokenizer/unicode.h"

using namespace distsetup;

namespace {

std::string data_folder() { return std::string(std::getenv("DISTSETUP_SOURCE")) + "/tests/data/tokenizers"; }

Json json_file(const std::string& path) {
  const Result<std::string> text = read_file(path);
  REQUIRE(text.ok());
  return Json::parse(*text);
}

Tokenizer tokenizer_of(const std::string& name) {
  Result<Tokenizer> tokenizer = read_tokenizer(data_folder() + "/" + name);
  INFO(format_diagnostics(tokenizer.diagnostics));
  REQUIRE(tokenizer.ok());
  return std::move(*tokenizer);
}

std::vector<std::vector<uint32_t>> pairs(const std::vector<TextRange>& offsets) {
  std::vector<std::vector<uint32_t>> all;
  for (const TextRange& range : offsets) all.push_back({range.begin, range.end});
  return all;
}

std::string first_message(const std::string& tokenizer_json) {
  const TemporaryDirectory folder;
  folder.write("tokenizer.json", tokenizer_json);
  const Result<Tokenizer> tokenizer = read_tokenizer(folder.path());
  REQUIRE_FALSE(tokenizer.ok());
  return tokenizer.diagnostics.front().message;
}

}  // namespace

TEST_CASE("tokenizers: ids, offsets and decoded text are the libraries'") {
  size_t num_folders = 0, num_rows = 0;
  for (const auto& entry : std::filesystem::directory_iterator(data_folder())) {
    if (!entry.is_directory()) continue;
    ++num_folders;
    const std::string name = entry.path().filename().string();
    const Tokenizer tokenizer = tokenizer_of(name);
    Encoder encoder(tokenizer);
    for (const Json& row : json_file(entry.path() / "expected.json")) {
      const auto text = row["text"].get<std::string>();
      INFO(name << ": " << row.dump());
      EncodeOptions options;
      options.add_special_tokens = row["special"].get<bool>();
      const Result<Encoding> encoding = encoder.encode(text, options);
      REQUIRE(encoding.ok());
      REQUIRE(encoding->ids == row["ids"].get<std::vector<uint32_t>>());
      if (!row["offsets"].is_null()) REQUIRE(pairs(encoding->offsets) == row["offsets"].get<std::vector<std::vector<uint32_t>>>());
      const Result<std::string> decoded = decode(tokenizer, encoding->ids, SkipSpecials::kNo);
      REQUIRE(decoded.ok());
      REQUIRE(*decoded == row["decoded"].get<std::string>());
      ++num_rows;
    }
  }
  REQUIRE(num_folders >= 7);
  REQUIRE(num_rows >= 500);
}

TEST_CASE("tokenizers: threads share a tokenizer") {
  const Tokenizer tokenizer = tokenizer_of("bytes_of_words");
  const std::string text = "Every rank keeps a shard of the parameters; \u00e9t\u00e9 2026.";
  const Result<Encoding> expected = encode(tokenizer, text);
  REQUIRE(expected.ok());
  std::vector<int> num_equal(4);
  std::vector<std::thread> threads;
  for (int& equal : num_equal) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const Result<Encoding> encoding = encode(tokenizer, text);
        equal += encoding.ok() && *encoding == *expected;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(num_equal == std::vector<int>(4, 200));
}

TEST_CASE("tokenizers: a word of a megabyte is not quadratic, and is merged as a short one") {
  const Tokenizer tokenizer = tokenizer_of("bytes_of_words");
  const std::string word(1 << 20, 'a');
  const Result<Encoding> encoding = encode(tokenizer, word, {.add_special_tokens = false});
  REQUIRE(encoding.ok());
  const Result<Encoding> part = encode(tokenizer, word.substr(0, 1 << 10), {.add_special_tokens = false});
  REQUIRE(encoding->ids.size() == part->ids.size() << 10);
}

TEST_CASE("tokenizers: special tokens in the text can be text") {
  const Tokenizer tokenizer = tokenizer_of("bytes_of_words");
  const uint32_t special = *tokenizer.id_of("<s>");
  const auto count = [&](Specials how) {
    const Result<Encoding> encoding = encode(tokenizer, "a<s>b", {.add_special_tokens = false, .specials_in_text = how});
    return std::count(encoding->ids.begin(), encoding->ids.end(), special);
  };
  REQUIRE(count(Specials::kFound) == 1);
  REQUIRE(count(Specials::kText) == 0);
}

TEST_CASE("tokenizers: what is no UTF-8 and what is no id is refused with its place") {
  const Tokenizer tokenizer = tokenizer_of("bytes_of_words");
  const Result<Encoding> encoding = encode(tokenizer, "ab\xff");
  REQUIRE_FALSE(encoding.ok());
  REQUIRE(encoding.diagnostics.front().message == "byte 2 of the text, 0xFF, is not UTF-8");
  const auto size = static_cast<uint32_t>(tokenizer.vocabulary_size());
  REQUIRE(decode(tokenizer, {0, size - 1}).ok());
  const Result<std::string> decoded = decode(tokenizer, {0, size});
  REQUIRE_FALSE(decoded.ok());
  REQUIRE(decoded.diagnostics.front().message ==
          "id " + std::to_string(size) + " (number 1 of the ids) is not in the vocabulary of " + std::to_string(size) + " tokens");
}

TEST_CASE("tokenizers: bos, eos and pad come from tokenizer_config.json, and it counts in the digest") {
  const TemporaryDirectory folder;
  const Result<std::string> file = read_file(data_folder() + "/bytes_of_words/tokenizer.json");
  folder.write("tokenizer.json", *file);
  const Result<Tokenizer> alone = read_tokenizer(folder.path());
  REQUIRE(alone.ok());
  REQUIRE_FALSE(alone->bos.has_value());
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": null})");
  const Result<Tokenizer> both = read_tokenizer(folder.path("tokenizer.json"));
  REQUIRE(both.ok());
  REQUIRE(both->bos == both->id_of("<s>"));
  REQUIRE(both->eos == both->id_of("</s>"));
  REQUIRE_FALSE(both->pad.has_value());
  REQUIRE(both->digest != alone->digest);
}

TEST_CASE("tokenizers: SentencePiece's sums of single precision start anew in a long text, so that near ties stay apart") {
  Unigram unigram;
  unigram.sum = ScoreSum::kSingle;
  unigram.scores = {-40000, -1, -0.999, -2};
  for (const auto& [piece, id] : std::vector<std::pair<std::string, uint32_t>>{{"a", 0}, {"b", 1}, {"c", 2}, {"bc", 3}})
    unigram.pieces.insert(piece, id);
  unigram.pieces.finish();
  const auto ids = [&](std::string_view word) {
    UnigramScratch scratch;
    std::vector<WordToken> tokens;
    REQUIRE(encode_word(unigram, word, scratch, tokens));
    std::vector<uint32_t> found;
    for (const WordToken& token : tokens) found.push_back(token.id);
    return found;
  };
  CHECK(ids("bc") == std::vector<uint32_t>{1, 2});
  CHECK(ids("aabc") == std::vector<uint32_t>{0, 0, 3});  // at -80,000 a single has steps of 0.008: a tie, and the first one stays
  CHECK(ids("aaabc") == std::vector<uint32_t>{0, 0, 0, 1, 2});  // past 100,000
}

TEST_CASE("tokenizers: what is not supported is refused by its type and its path") {
  REQUIRE(first_message(R"({"model": {"type": "WordPiece", "vocab": {}}})") == "model: a model of type 'WordPiece' is not supported");
  REQUIRE(first_message(R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "BertNormalizer"}]},
                            "model": {"type": "BPE", "vocab": {}, "merges": []}})") ==
          "normalizer.normalizers[0]: a normalizer of type 'BertNormalizer' is not supported");
  REQUIRE(first_message(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}})") ==
          "model.merges [0] needs the token 'b', which the vocabulary does not have");
  REQUIRE(first_message(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": -1}, "merges": []}})")
              .find("model.vocab['b'] is -1, expected 0") == 0);
  REQUIRE(first_message(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.1}})") ==
          "model.dropout is set: tokens would be drawn at random");
  REQUIRE(
      first_message(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": [{"id": 5, "content": "a"}]})") ==
      "added_tokens[0] gives 'a' the id 5, but it has 0 already");
  REQUIRE(first_message("{\n \"model\": }").find("not JSON: ") == 0);
  REQUIRE(first_message("{}") == "no tokenizer.json: there is no 'model' in it");
  REQUIRE(first_message("[]") == "no tokenizer: neither JSON nor a SentencePiece model nor a tiktoken file");
}

TEST_CASE("tokenizers: a character that no token stands for is dropped, unknown, or an error, as the file says") {
  const auto encoded = [](const std::string& unknown) {
    const TemporaryDirectory folder;
    folder.write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "?": 1}, "merges": [])" + unknown + "}}");
    const Result<Tokenizer> tokenizer = read_tokenizer(folder.path());
    REQUIRE(tokenizer.ok());
    const Result<Encoding> encoding = encode(*tokenizer, "axxa");
    return encoding.ok() ? std::optional(encoding->ids) : std::nullopt;
  };
  REQUIRE(encoded("") == std::vector<uint32_t>{0, 0});
  REQUIRE(encoded(R"(, "unk_token": "?")") == std::vector<uint32_t>{0, 1, 1, 0});
  REQUIRE(encoded(R"(, "unk_token": "?", "fuse_unk": true)") == std::vector<uint32_t>{0, 1, 0});
  REQUIRE_FALSE(encoded(R"(, "unk_token": "<unk>")").has_value());
}

TEST_CASE("tokenizers: patterns that match otherwise in PCRE2 are translated or refused") {
  const auto translated = [](std::string_view pattern, RegexDialect dialect = RegexDialect::kOniguruma) {
    const Result<std::string> result = translate_regex(pattern, dialect, {"f", 0, 0}, "p");
    return result.ok() ? *result : "refused: " + result.diagnostics.front().message;
  };
  REQUIRE(translated(R"(\s+(?!\S)|[^\r\n\p{L}]?\p{N}{1,3})") == R"(\s+(?!\S)|[^\r\n\p{L}]?\p{N}{1,3})");
  REQUIRE(translated(R"([\p{Han}a]\h)") == R"([\p{sc:Han}a][0-9a-fA-F])");
  REQUIRE(translated("[a[bc]]") == "[abc]");
  REQUIRE(translated(R"(\p{N}{1,3}+)", RegexDialect::kRust) == R"(\p{N}{1,3}+)");
  REQUIRE(translated("a{1,3}+") == "refused: p: a repetition of a repetition in the regular expression 'a{1,3}+' is not supported");
  for (const char* pattern : {"[a&&b]", "[a[^b]]", "[[:alpha:]]", R"(\bx)", "(?m)x", R"((x)\1)", "[a", R"(x\)"}) {
    INFO(pattern);
    REQUIRE(translated(pattern).find("refused: ") == 0);
  }
}

TEST_CASE("tokenizers: a SentencePiece model that is cut off or of another kind is refused") {
  const Result<std::string> whole = read_file(data_folder() + "/sentencepiece_bpe/tokenizer.model");
  REQUIRE(whole.ok());
  REQUIRE(first_message(whole->substr(0, whole->size() - 3)) == "no SentencePiece model, or a damaged one");
}

TEST_CASE("tokenizers: bos and eos are put around a SentencePiece text when tokenizer_config.json says so") {
  const Result<std::string> model = read_file(data_folder() + "/sentencepiece_bpe/tokenizer.model");
  const TemporaryDirectory folder;
  folder.write("tokenizer.model", *model);
  const Result<Tokenizer> alone = read_tokenizer(folder.path());
  REQUIRE(alone.ok());
  REQUIRE(alone->bos == 1);
  REQUIRE(alone->before.empty());
  folder.write("tokenizer_config.json", R"({"add_bos_token": true, "add_eos_token": false})");
  const Result<Tokenizer> with = read_tokenizer(folder.path());
  REQUIRE(with.ok());
  REQUIRE(with->before == std::vector<uint32_t>{1});
  REQUIRE(with->after.empty());
}

TEST_CASE("tokenizers: a tiktoken file that nobody published is refused, a damaged one with its line") {
  std::string file;
  for (const char* digits = "ABCD"; *digits != 0; ++digits) file += fmt::format("{}Q== {}\n", *digits, digits[0] - 'A');
  REQUIRE(first_message(file) == "no rank has the byte 0x00 alone");
  REQUIRE(first_message("AQ== 0\nx\n") == "no line of a tiktoken file, expected base64, a blank and a rank");
}

TEST_CASE("tokenizers: tekken.json puts its special tokens first and finds none in a text") {
  std::string vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const std::string base64 = {digits[byte >> 2], digits[(byte & 3) << 4], '=', '='};
    vocabulary += fmt::format(R"({{"rank": {}, "token_bytes": "{}"}},)", byte, base64);
  }
  const TemporaryDirectory folder;
  folder.write("tekken.json",
               fmt::format(R"({{"config": {{"pattern": "\\w+|\\W+", "default_vocab_size": 260, "default_num_special_tokens": 3}},
                                             "vocab": [{}{{"rank": 256, "token_bytes": "YWI="}}, {{"rank": 257, "token_bytes": "eHg="}}],
                                             "special_tokens": [{{"rank": 1, "token_str": "<s>"}}]}})",
                           vocabulary));
  const Result<Tokenizer> tokenizer = read_tokenizer(folder.path());
  INFO(format_diagnostics(tokenizer.diagnostics));
  REQUIRE(tokenizer.ok());
  REQUIRE(tokenizer->vocabulary_size() == 260);
  const Result<Encoding> encoding = encode(*tokenizer, "ab<s>xx");
  REQUIRE(encoding.ok());
  REQUIRE(encoding->ids == std::vector<uint32_t>{1, 259, 3 + '<', 3 + 's', 3 + '>', 3 + 'x', 3 + 'x'});  // rank 257 is beyond its size
  REQUIRE(*decode(*tokenizer, encoding->ids) == "ab<s>xx");
}

TEST_CASE("tokenizers: invalid bytes become U+FFFD as Unicode recommends") {
  REQUIRE(replace_invalid("a\xffz") == "a\uFFFDz");
  REQUIRE(replace_invalid("\xe2\x82") == "\uFFFD");  // one beginning, cut off
  REQUIRE(replace_invalid("\xe2\x82x\xf0\x9f\x98") == "\uFFFDx\uFFFD");
  REQUIRE(replace_invalid("\xed\xa0\x80") == "\uFFFD\uFFFD\uFFFD");            // a surrogate
  REQUIRE(replace_invalid("\xf4\x90\x80\x80") == "\uFFFD\uFFFD\uFFFD\uFFFD");  // beyond U+10FFFF
  REQUIRE(replace_invalid("\xc0\x80") == "\uFFFD\uFFFD");
}
