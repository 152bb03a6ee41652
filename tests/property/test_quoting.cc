// Quoting through a real bash: whatever the text, the quoted word is one argument with the same bytes, and it is one line.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "codegen/shell/quote.h"
#include "support/seed.h"
#include "support/temporary_directory.h"

using namespace distsetup;

namespace {

std::vector<std::string> texts(uint64_t seed, int number) {
  static const std::vector<std::string> kPieces = {
      " ",    "'",        "\"",    "$",     "`",    "\\",     "\n",     "\t",     "\r", "!",  "*",    "?", "~",    "#",
      "&",    ";",        "|",     "<",     ">",    "(",      ")",      "{",      "}",  "[",  "]",    "=", "%",    "^",
      "-",    "--",       "$HOME", "$(id)", "${x}", "`id`",   "\\n",    "a",      "Z",  "0",  "f",    "é", "日本", "🙂",
      "\x01", "\x1b[31m", "\x7f",  "\xff",  "\xc3", "\u0085", "\u2028", "\ufeff", "$'", "!!", "{{x}}"};
  std::vector<std::string> out = kPieces;  // each alone, too
  out.emplace_back("");
  out.emplace_back(
      "\x01"
      "f");  // a control character and a digit that could be read as part of its escape
  std::mt19937_64 random(seed);
  while (static_cast<int>(out.size()) < number) {
    std::string text;
    for (uint64_t pieces = random() % 12; pieces > 0; --pieces) text += kPieces[random() % kPieces.size()];
    out.push_back(text);
  }
  return out;
}

}  // namespace

TEST_CASE("quoting: bash reads every quoted text back as one word with the same bytes") {
  const uint64_t seed = test_seed();
  std::cout << "quoting: seed " << seed << " (DISTSETUP_SEED repeats it)\n";
  const std::vector<std::string> all = texts(seed, 3000);
  const TemporaryDirectory directory;
  const std::string script = directory.path() + "/script", output = directory.path() + "/output";
  std::string expected;
  {
    std::ofstream out(script, std::ios::binary);
    out << "show() { printf '%s,%s\\0' \"$#\" \"$1\"; }\n";
    for (const std::string& text : all) {
      const std::string word = quote_shell(text);
      REQUIRE(word.find('\n') == std::string::npos);
      out << "show " << word << "\n";
      expected += "1," + text + '\0';
    }
  }
  for (const char* locale : {"C", "C.UTF-8"}) {
    const std::string command = std::string("cd / && LC_ALL=") + locale + " bash '" + script + "' > '" + output + "'";
    REQUIRE(std::system(command.c_str()) == 0);
    CHECK(bytes_of_file(output) == expected);
  }
}

TEST_CASE("quoting: a comment stays a comment") {
  for (const std::string& text : texts(1, 500)) CHECK_FALSE(has_control_characters(comment_text(text)));
}
