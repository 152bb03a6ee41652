// What the user sees: order, source line, carets, help, colour; and that text from a file cannot drive the terminal.
#include "base/diagnostic.h"

#include <catch2/catch.hpp>

#include "base/diagnostic_codes.h"
#include "support/temporary_directory.h"

using namespace distsetup;

namespace {

Diagnostic at(const std::string& file, int line, int column, int length, const std::string& message = "m") {
  Diagnostic d = error("DS0101", {file, line, column}, message);
  d.length = length;
  return d;
}

// The text without the first two lines (message, place).
std::string below_place(const Diagnostic& d) {
  const std::string text = format_diagnostics({d});
  return text.substr(text.find('\n', text.find('\n') + 1) + 1);
}

}  // namespace

TEST_CASE("an error shows its place, the source line, carets and the help", "[diagnostic]") {
  const TemporaryDirectory directory;
  const std::string file = directory.write("run.yaml", "a: 1\n\n\n\n\n\n\n\n\n\n\n  gradient_acumulation: 8\n");
  Diagnostic d = error(code::kUnknownKey, {file, 12, 3}, "unknown key 'gradient_acumulation'", "did you mean 'gradient_accumulation'");
  d.length = 20;
  CHECK(format_diagnostics({d}) ==
        "error[DS0101]: unknown key 'gradient_acumulation'\n"
        "  --> " +
            file +
            ":12:3\n"
            "   |\n"
            "12 |   gradient_acumulation: 8\n"
            "   |   ^^^^^^^^^^^^^^^^^^^^\n"
            "  help: did you mean 'gradient_accumulation'\n");
}

TEST_CASE("without a readable source there is no source line", "[diagnostic]") {
  CHECK(format_diagnostics({error("DS0111", {"command line"}, "unknown flag '--modle'")}) ==
        "error[DS0111]: unknown flag '--modle'\n --> command line\n");
  CHECK(format_diagnostics({error("DS0102", {"/nonexistent", 3, 7}, "m")}) == "error[DS0102]: m\n --> /nonexistent:3:7\n");
  CHECK(format_diagnostics({error("DS0501", {}, "nothing fits", "add nodes")}) == "error[DS0501]: nothing fits\n  help: add nodes\n");
  CHECK(format_diagnostics({}).empty());
}

TEST_CASE("a place outside the file is named but not shown", "[diagnostic]") {
  const TemporaryDirectory directory;
  const std::string file = directory.write("f", "one\n");
  CHECK(below_place(at(file, 2, 1, 1)).empty());
  CHECK(below_place(at(file, 1, 9, 4)) == "  |\n1 | one\n  |    ^\n");  // one caret behind the end
  CHECK(below_place(at(file, 1, 0, 1)) == "  |\n1 | one\n");            // no column: no caret
  CHECK(below_place(at(directory.path(), 1, 1, 1)).empty());            // a directory
}

TEST_CASE("carets stay below their characters: tabs, wide bytes, CRLF, long marks", "[diagnostic]") {
  const TemporaryDirectory directory;
  const std::string file = directory.write("f", "\tkey: 1\n\xc3\xa9\xc3\xa9: bad\nx: 1\r\n");
  CHECK(below_place(at(file, 1, 2, 3)) == "  |\n1 | \tkey: 1\n  | \t^^^\n");
  CHECK(below_place(at(file, 2, 5, 3)) == "  |\n2 | \xc3\xa9\xc3\xa9: bad\n  |     ^^^\n");
  CHECK(below_place(at(file, 3, 4, 99)) == "  |\n3 | x: 1\n  |    ^\n");
}

TEST_CASE("a long line is cut around the place", "[diagnostic]") {
  const TemporaryDirectory directory;
  const std::string file = directory.write("config.json", std::string(5000, 'a') + "HERE" + std::string(5000, 'b') + "\n");
  const std::string shown = below_place(at(file, 1, 5001, 4));
  CHECK(shown.size() < 400);
  const size_t source = shown.find("HERE"), carets = shown.find("^^^^");
  REQUIRE(source != std::string::npos);
  REQUIRE(carets != std::string::npos);
  CHECK(source - shown.rfind('\n', source) == carets - shown.rfind('\n', carets));
  CHECK(shown.find("...aaa") != std::string::npos);
  CHECK(shown.find("bbb...\n") != std::string::npos);
  CHECK(below_place(at(file, 1, 10004, 1)).find("b\n") != std::string::npos);  // the end is not cut
}

TEST_CASE("control characters of a file or a message are masked", "[diagnostic]") {
  const TemporaryDirectory directory;
  const std::string file = directory.write("f",
                                           "a: \x1b[31mred\x07 \xc2\x9b"
                                           "0m\n");
  const std::string shown = format_diagnostics({at(file, 1, 1, 1, "found '\x1b]0;title\x07\nx'")});
  CHECK(shown.find('\x1b') == std::string::npos);
  CHECK(shown.find('\x07') == std::string::npos);
  CHECK(shown.find("title??x'\n") != std::string::npos);
  CHECK(shown.find("a: ?[31mred? ?0m\n") != std::string::npos);
  const std::string binary = directory.write("binary", "a\xff z \xc3\xa9\n");
  CHECK(format_diagnostics({at(binary, 1, 1, 1, "found bytes")}).find("a? z é\n") != std::string::npos);
}

TEST_CASE("order: warnings and notes by place, then errors by place, equal places keep their order", "[diagnostic]") {
  const Diagnostics all = {error("E1", {"b", 1, 1}, "e-b"),    error("E2", {"a", 10, 1}, "e-a10"), warning("W1", {"z", 1, 1}, "w-z"),
                           error("E3", {"a", 9, 2}, "e-a9-2"), error("E4", {"a", 9, 1}, "first"),  note("N1", {"c", 1, 1}, "n-c"),
                           error("E5", {"a", 9, 1}, "second")};
  const std::string text = format_diagnostics(all);
  size_t last = 0;
  for (const char* message : {"n-c", "w-z", "first", "second", "e-a9-2", "e-a10", "e-b"}) {
    const size_t found = text.find(message);
    INFO(message);
    REQUIRE(found != std::string::npos);
    CHECK(found > last);
    last = found;
  }
  CHECK(text.find("warning[W1]: w-z\n") != std::string::npos);
  CHECK(text.find("note[N1]: n-c\n") != std::string::npos);
}

TEST_CASE("colour only when asked, and the words are the same", "[diagnostic]") {
  const Diagnostics one = {error("DS0101", {"command line"}, "m", "h")};
  const std::string plain = format_diagnostics(one);
  CHECK(plain.find('\033') == std::string::npos);
  std::string coloured = format_diagnostics(one, Colour::kOn);
  CHECK(coloured.find("\033[1;31merror[DS0101]\033[0m") != std::string::npos);
  for (size_t begin = 0; (begin = coloured.find('\033')) != std::string::npos;)
    coloured.erase(begin, coloured.find('m', begin) - begin + 1);
  CHECK(coloured == plain);
}

TEST_CASE("a result is ok with a value and without errors", "[diagnostic]") {
  const Diagnostic mistake = error("DS0102", {}, "m");
  const Diagnostic remark = warning("DS0303", {}, "w");
  CHECK(Result<int>(3).ok());
  CHECK(*Result<int>(3) == 3);
  CHECK(Result<int>(3, {remark}).ok());
  CHECK_FALSE(Result<int>(3, {remark, mistake}).ok());
  CHECK_FALSE(Result<int>(mistake).ok());
  CHECK_FALSE(Result<int>(Diagnostics{remark}).ok());  // no value
  CHECK_FALSE(Result<int>());
  CHECK_FALSE(has_error({remark, note("N", {}, "n")}));
}

TEST_CASE("append keeps both in order", "[diagnostic]") {
  Diagnostics to = {error("A", {}, "a")};
  append(to, {error("B", {}, "b"), error("C", {}, "c")});
  REQUIRE(to.size() == 3);
  CHECK(to[0].code + to[1].code + to[2].code == "ABC");
}
