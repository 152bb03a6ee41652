// TOML: what the grammar says, where things are, what is refused.
#include <catch2/catch.hpp>

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

TEST_CASE("TOML: what is refused and where", "[value]") {
  CHECK(toml_mistake("a = 1\na = 2") == "2:1 key 'a' is given twice, expected once");
  CHECK(toml_mistake("[t]\n[t]") == "2:2 key 't' is given twice, expected once");
  CHECK(toml_mistake("a = {b = 1}\n[a]\n") == "2:2 key 'a' is given twice, expected once");
  CHECK(toml_mistake("a = {b = 1}\na.c = 2\n") == "2:1 key 'a' is given twice, expected once");
  CHECK(toml_mistake("a = [1]\n[[a]]\n") == "2:3 key 'a' is given twice, expected once");
  CHECK(toml_mistake("a.b = 1\n[a]\n") == "2:2 key 'a' is given twice, expected once");
  CHECK(toml_mistake("[a.b]\nc = 1\n[a]\nd = 1\n") == "no mistake");
  CHECK(toml_mistake("a = bf16") == "1:5 found 'bf16', expected a value");
  CHECK(toml_mistake("a = 01") == "1:5 found '01', expected a number");
  CHECK(toml_mistake("a = 1.") == "1:5 found '1.', expected a number");
  CHECK(toml_mistake("a = 1__0") == "1:5 found '1__0', expected digits on both sides of '_'");
  CHECK(toml_mistake("a = 1 b = 2") == "1:7 found 'b', expected the end of the line");
  CHECK(toml_mistake("a") == "1:2 found the end, expected '=' after the key");
  CHECK(toml_mistake("a =\n") == "1:4 found the end of the line, expected a value");
  CHECK(toml_mistake("a = \"x\n") == "1:5 found a string without end, expected '\"'");
  CHECK(toml_mistake("a = \"\\q\"") == "1:6 found '\\q', expected an escape of TOML");
  CHECK(toml_mistake("a = \"\\ud800\"") == "1:6 found an escape that is no character");
  CHECK(toml_mistake("a = [1 2]") == "1:8 found '2', expected ',' or ']'");
  CHECK(toml_mistake("[a") == "1:3 found the end, expected ']'");
  CHECK(toml_mistake("a = {b = 1,\n c = 2}") == "1:12 found the end of the line, expected a key");
  CHECK(toml_mistake("a = " + std::string(200, '[')) == "1:106 found nesting deeper than 100 levels, expected less");
}
