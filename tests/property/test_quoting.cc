// Quoting through a real bash: whatever the text, the quoted word is one argument with the same bytes, and it is one line.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "codegen/shell/quote.h"
#include "support/property.h"
#include "support/temporary_directory.h"

using namespace distsetup;

namespace {

const std::vector<std::string>& pieces() {
  static const std::vector<std::string> kPieces = {
      " ",    "'",        "\"",    "$",     "`",    "\\",     "\n",     "\t",     "\r", "!",  "*",    "?", "~",    "#",
      "&",    ";",        "|",     "<",     ">",    "(",      ")",      "{",      "}",  "[",  "]",    "=", "%",    "^",
      "-",    "--",       "$HOME", "$(id)", "${x}", "`id`",   "\\n",    "a",      "Z",  "0",  "f",    "é", "日本", "🙂",
      "\x01", "\x1b[31m", "\x7f",  "\xff",  "\xc3", "\u0085", "\u2028", "\ufeff", "$'", "!!", "{{x}}"};
  return kPieces;
}

std::string random_text(Draw& random) {
  std::string text;
  for (uint32_t n = random() % 12; n > 0; --n) text += pieces()[random() % pieces().size()];
  return text;
}

// What bash makes of the quoted texts, one word each: "1,text" and a NUL for each in turn.
std::string through_bash(const std::vector<std::string>& texts, const char* locale) {
  const TemporaryDirectory directory;
  const std::string script = directory.path() + "/script", output = directory.path() + "/output";
  {
    std::ofstream out(script, std::ios::binary);
    out << "show() { printf '%s,%s\\0' \"$#\" \"$1\"; }\n";
    for (const std::string& text : texts) out << "show " << quote_shell(text) << "\n";
  }
  const std::string command = std::string("cd / && LC_ALL=") + locale + " bash '" + script + "' > '" + output + "'";
  return std::system(command.c_str()) == 0 ? bytes_of_file(output) : "bash failed";
}

std::string expected_of(const std::vector<std::string>& texts) {
  std::string expected;
  for (const std::string& text : texts) expected += "1," + text + '\0';
  return expected;
}

}  // namespace

TEST_CASE("quoting: bash reads every quoted text back as one word with the same bytes") {
  std::vector<std::string> alone = pieces();
  alone.emplace_back("");
  alone.emplace_back(
      "\x01"
      "f");  // a control character and a digit that could be read as part of its escape
  for (const char* locale : {"C", "C.UTF-8"}) CHECK(through_bash(alone, locale) == expected_of(alone));
  check_property(50, [] {
    Draw random;
    std::vector<std::string> texts;
    for (uint32_t n = 1 + random() % 120; n > 0; --n) texts.push_back(random_text(random));
    for (const std::string& text : texts) RC_ASSERT(quote_shell(text).find('\n') == std::string::npos);
    for (const char* locale : {"C", "C.UTF-8"}) RC_ASSERT(through_bash(texts, locale) == expected_of(texts));
  });
}

TEST_CASE("quoting: a comment stays a comment") {
  check_property(500, [] {
    Draw random;
    const std::string text = random_text(random);
    RC_ASSERT_FALSE(has_control_characters(comment_text(text)));
  });
}
