// Tokenizer files that are damaged, and texts that nobody writes: an error or tokens that hold together, never a crash.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "base/file.h"
#include "support/seed.h"
#include "support/temporary_directory.h"
#include "text/tokenizer/read_tokenizer.h"
#include "text/tokenizer/unicode.h"

using namespace distsetup;

namespace {

using Random = std::mt19937_64;

size_t below(Random& random, size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(random); }

std::string random_text(Random& random) {
  static const std::vector<std::string> parts = {
      " ",      "  ",     "\n",   "\t",     "the",    "Plan",    "123",          "<s>",
      "<mask>", "<|go|>", "word", "\u2581", "\u00e9", "e\u0301", "\u65e5\u672c", "\U0001F469\u200D\U0001F680",
      "'s",     "<0x41>", "...",  "\u180e"};
  std::string text;
  for (size_t i = below(random, 30); i > 0; --i) {
    if (below(random, 4) > 0) {
      text += parts[below(random, parts.size())];
    } else {
      const auto c = static_cast<uint32_t>(below(random, 0x110000));
      append_utf8(text, c >= 0xD800 && c < 0xE000 ? 'x' : c);
    }
  }
  return text;
}

// What must hold of any text: ids of the vocabulary, offsets that go forward inside the text.
void check_encoding(const Tokenizer& tokenizer, Encoder& encoder, const std::string& text) {
  const Result<Encoding> encoding = encoder.encode(text, {.add_special_tokens = false});
  if (!encoding.ok()) return;  // a damaged vocabulary may lack characters
  REQUIRE(encoding->ids.size() == encoding->offsets.size());
  for (size_t i = 0; i < encoding->ids.size(); ++i) {
    REQUIRE(encoding->ids[i] < tokenizer.vocabulary_size());
    REQUIRE(encoding->offsets[i].begin <= encoding->offsets[i].end);
    REQUIRE(encoding->offsets[i].end <= text.size());
  }
  const Result<std::string> decoded = decode(tokenizer, encoding->ids, SkipSpecials::kNo);
  REQUIRE(decoded.ok());
  REQUIRE(find_invalid(*decoded) == std::string::npos);
}

std::vector<std::string> tokenizer_files() {
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::string(std::getenv("DISTSETUP_SOURCE")) + "/tests/data/tokenizers")) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && name != "expected.json" && name != "make.py" && name != "rules.tsv")
      files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  REQUIRE(files.size() >= 7);
  return files;
}

// Some bytes changed, cut out, doubled or put in.
std::string damaged(std::string bytes, Random& random) {
  for (size_t i = 1 + below(random, 4); i > 0 && !bytes.empty(); --i) {
    const size_t at = below(random, bytes.size());
    const size_t length = std::min(bytes.size() - at, 1 + below(random, 20));
    switch (below(random, 5)) {
      case 0: bytes[at] = static_cast<char>(below(random, 256)); break;
      case 1: bytes.erase(at, length); break;
      case 2: bytes.insert(at, bytes.substr(below(random, bytes.size()), length)); break;
      case 3: bytes[at] = "0123456789{}[],:\"truefalsn"[below(random, 27)]; break;
      default: bytes.resize(below(random, 8) == 0 ? at : bytes.size());
    }
  }
  return bytes;
}

}  // namespace

TEST_CASE("tokenizers: any text gives ids of the vocabulary and offsets inside the text") {
  INFO("seed " << test_seed());
  Random random(test_seed());
  for (const std::string& file : tokenizer_files()) {
    const Result<Tokenizer> tokenizer = read_tokenizer(file);
    REQUIRE(tokenizer.ok());
    Encoder encoder(*tokenizer);
    for (int i = 0; i < num_rounds(300); ++i) check_encoding(*tokenizer, encoder, random_text(random));
  }
}

TEST_CASE("tokenizers: a damaged file is an error or a tokenizer, never a crash") {
  INFO("seed " << test_seed());
  Random random(test_seed());
  const TemporaryDirectory folder;
  int num_read = 0;
  for (const std::string& file : tokenizer_files()) {
    const Result<std::string> bytes = read_file(file);
    REQUIRE(bytes.ok());
    const std::string name = std::filesystem::path(file).filename().string();
    for (int i = 0; i < num_rounds(150); ++i) {
      folder.write(name, damaged(*bytes, random));
      const Result<Tokenizer> tokenizer = read_tokenizer(folder.path(name));
      REQUIRE((tokenizer.ok() || has_error(tokenizer.diagnostics)));
      if (!tokenizer.ok()) continue;
      ++num_read;
      Encoder encoder(*tokenizer);
      for (int n = 0; n < 3; ++n) check_encoding(*tokenizer, encoder, random_text(random));
    }
  }
  REQUIRE(num_read > 0);
}
