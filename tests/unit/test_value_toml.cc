// TOML: what the grammar says, where things are, what is refused.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/value_toml.h"

using namespace distsetup;

namespace {

Value toml(std::string_view text) {
  Result<Value> result = parse_toml(text, "train.toml");
  INFO(format_diagnostics(result.diagnostics));
  REQUIRE(result.ok());
  return *result;
}

std::string toml_mistake(std::string_view text) {
  const Result<Value> result = parse_toml(text, "train.toml");
  if (result.value) return "no mistake";
  REQUIRE(result.diagnostics.size() == 1);
  const Diagnostic& d = result.diagnostics[0];
  return std::to_string(d.location.line) + ":" + std::to_string(d.location.column) + " " + d.message;
}

std::string toml_scalar(std::string_view text) { return toml("v = " + std::string(text)).find("v")->text; }

}  // namespace

TEST_CASE("TOML: tables, dotted keys, arrays and places", "[value]") {
  const Value root = toml(
      "# comment\ntitle = \"a\"\n\n[training]\nsteps = 1_000 # trailing\nx.y.z = true\n[training.deep]\nk = [1, 2,\n  3, ]\n"
      "[[runs]]\nname = 'one'\n[[runs]]\nname = 'two'\n[runs.sub]\na = {b = 1, c.d = \"e\"}\n");
  REQUIRE(root.entries.size() == 3);
  const Value* training = root.find("training");
  REQUIRE(training != nullptr);
  CHECK(training->find("steps")->text == "1000");
  CHECK(*as_int(*training->find("steps")) == 1000);
  CHECK(training->find("steps")->location == Location{"train.toml", 5, 9});
  CHECK(training->key_locations[0] == Location{"train.toml", 5, 1});
  CHECK(training->find("x")->find("y")->find("z")->text == "true");
  CHECK(training->find("deep")->find("k")->items.size() == 3);
  const Value* runs = root.find("runs");
  REQUIRE(runs->items.size() == 2);
  CHECK(runs->items[0].find("name")->text == "one");
  CHECK(runs->items[1].find("sub")->find("a")->find("c")->find("d")->text == "e");
  CHECK(toml("").kind == Value::Kind::kMap);
}

TEST_CASE("TOML: scalars", "[value]") {
  CHECK(toml_scalar("\"a\\tb\\u00e9\"") == "a\tb\xc3\xa9");
  CHECK(toml_scalar("'a\\tb'") == "a\\tb");
  CHECK(toml_scalar("\"\"\"\none\\\n   two\"\"\"") == "onetwo");
  CHECK(toml_scalar("'''x''''") == "x'");
  CHECK(toml_scalar("0xff") == "255");
  CHECK(toml_scalar("\"\\U0001F600\"") == "\xf0\x9f\x98\x80");
  CHECK(toml_scalar("+5") == "5");
  CHECK(toml_scalar("-3.5e-4") == "-3.5e-4");
  CHECK(toml_scalar("inf") == "inf");
  CHECK(toml_scalar("1979-05-27T07:32:00Z") == "1979-05-27T07:32:00Z");
  CHECK(toml_scalar("1979-05-27 07:32:00") == "1979-05-27 07:32:00");
  CHECK(toml("\"a.b\" = 1").find("a.b") != nullptr);
  CHECK(toml("v = \"1\"").find("v")->quoted);
  CHECK_FALSE(toml("v = 1").find("v")->quoted);
}

TEST_CASE("TOML: file order, quoted keys, empty containers, tables inside tables", "[value]") {
  const Value root = toml(
      "zeta = 1\n\"quoted key\".'a.b' = 0xdead_beef\nalpha = [ # comment\n  [1, 2], [\"x\"], # more\n]\nempty = {}\nnone = []\n"
      "[fruit]\napple.color = 'red'\napple.taste.sweet = true\n[fruit.apple.texture]\nsmooth = 0b11\n");
  std::vector<std::string> names;
  for (const Value::Entry& entry : root.entries) names.push_back(entry.first);
  CHECK(names == std::vector<std::string>{"zeta", "quoted key", "alpha", "empty", "none", "fruit"});
  const Value* quoted = root.find("quoted key")->find("a.b");
  REQUIRE(quoted != nullptr);
  CHECK(*as_int(*quoted) == 0xdeadbeef);
  CHECK(root.find("quoted key")->key_locations[0] == Location{"train.toml", 2, 14});
  CHECK(root.find("alpha")->items[1].items[0].location == Location{"train.toml", 4, 12});
  CHECK(root.find("empty")->kind == Value::Kind::kMap);
  CHECK(root.find("none")->kind == Value::Kind::kList);
  CHECK(root.find("fruit")->find("apple")->find("texture")->find("smooth")->text == "3");
}

TEST_CASE("TOML: arrays of tables inside arrays of tables", "[value]") {
  const Value root = toml(
      "[[points]]\n[[points.deep]]\nn = 1\n[[points.deep]]\nn = 2\n[[points]]\nlast = 1979-05-27 # a date\n[[points.deep]]\nn = 3\n");
  const Value* points = root.find("points");
  REQUIRE(points->items.size() == 2);
  CHECK(points->items[0].find("deep")->items.size() == 2);
  CHECK(points->items[0].find("deep")->items[1].find("n")->text == "2");
  CHECK(points->items[1].find("deep")->items[0].find("n")->location == Location{"train.toml", 9, 5});
  CHECK(points->items[1].find("last")->text == "1979-05-27");
}

TEST_CASE("TOML: places count characters, not bytes, and a long line is not slow", "[value]") {
  const Value root = toml("\"\xc3\xa9\" = [\"\xe4\xb8\xad\", 2_0.5e1_0, +1.0] # \xc3\xa9\r\nnext = 'x'\r\n");
  const std::vector<Value>& items = root.find("\xc3\xa9")->items;
  CHECK(items[1].location == Location{"train.toml", 1, 13});
  CHECK(items[1].text == "20.5e10");
  CHECK(items[2].text == "1.0");
  CHECK(root.find("next")->location == Location{"train.toml", 2, 8});
  std::string long_line = "v = [";
  for (int i = 0; i < 20'000; ++i) long_line += "1.5, ";
  CHECK(toml(long_line + "1.25]").find("v")->items.back().text == "1.25");
}

TEST_CASE("TOML: what is refused and where", "[value]") {
  CHECK(toml_mistake("a = 1\na = 2") == "2:5 key 'a' is given twice, expected once");
  CHECK(toml_mistake("[t]\n[t]") == "2:1 key 't' is given twice, expected once");
  CHECK(toml_mistake("a = {b = 1}\n[a]\n") == "2:1 key 'a' is given twice, expected once");
  CHECK(toml_mistake("a = {b = 1}\na.c = 2\n") == "2:1 key 'a.c' is given twice, expected once");
  CHECK(toml_mistake("a = {b = 1, b = 2}") == "1:17 key 'b' is given twice, expected once");
  CHECK(toml_mistake("a = [1]\n[[a]]\n") == "2:1 key 'a' is given twice, expected once");
  CHECK(toml_mistake("a.b = 1\n[a]\n") == "2:1 key 'a' is given twice, expected once");
  CHECK(toml_mistake("[a.b]\nc = 1\n[a]\nd = 1\n") == "no mistake");
  CHECK(toml_mistake("a = bf16") == "1:5 found 'bf16', expected a value");
  CHECK(toml_mistake("a = True") == "1:5 found 'T', expected 'true'");
  CHECK(toml_mistake("a = 01") == "1:7 found invalid TOML in the decimal integer: leading zeroes are prohibited");
  CHECK(toml_mistake("a = 1.\n") == "1:7 found the end of the line, expected decimal digit");
  CHECK(toml_mistake("a = 1__0") == "1:7 found invalid TOML in the decimal integer: underscores may only follow digits");
  CHECK(toml_mistake("a = 1 b = 2") == "1:7 found 'b', expected a comment or whitespace");
  CHECK(toml_mistake("a = 2024-13-01") == "1:12 found 13, expected month between 1 and 12 (inclusive)");
  CHECK(toml_mistake("a = 9223372036854775808").find("is not representable in 64 bits") != std::string::npos);
  CHECK(toml_mistake("a") == "1:2 found the end of the file, expected the rest of the key-value pair");
  CHECK(toml_mistake("a =\n") == "1:4 found the end of the line, expected value");
  CHECK(toml_mistake("a = \"x\n") == "1:7 found the end of the line, expected the closing quote");
  CHECK(toml_mistake("a = \"\\q\"") == "1:7 found invalid TOML in the string: unknown escape sequence '\\q'");
  CHECK(toml_mistake("a = \"\\ud800\"").find("surrogates") != std::string::npos);
  CHECK(toml_mistake("a = [1 2]") == "1:8 found '2', expected comma or closing ']'");
  CHECK(toml_mistake("[a") == "1:3 found the end of the file, expected the rest of the table header");
  CHECK(toml_mistake("a = {b = 1,\n c = 2}") == "1:12 found the end of the line, expected key or closing '}'");
  CHECK(toml_mistake("a = " + std::string(300, '[')) == "1:261 found nesting deeper than 256 levels, expected less");
  std::string endless = "a";
  for (int i = 0; i < 100'000; ++i) endless += " .a";
  CHECK(toml_mistake("[" + endless + "]") == "1:1204 found a key of more than 400 parts, expected fewer");
}
