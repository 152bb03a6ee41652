// Reading YAML and JSON strictly: positions, what is refused and where, what scalars mean.
#include "base/value.h"

#include <catch2/catch.hpp>
#include <limits>

#include "base/diagnostic_codes.h"
#include "base/value_json.h"
#include "base/value_yaml.h"
#include "support/temporary_directory.h"

using namespace distsetup;
using Kind = Value::Kind;

namespace {

Value yaml(std::string_view text) {
  Result<Value> result = parse_yaml(text, "run.yaml");
  INFO(format_diagnostics(result.diagnostics));
  REQUIRE(result.ok());
  return *result;
}

Value json(std::string_view text) {
  Result<Value> result = parse_json(text, "config.json");
  INFO(format_diagnostics(result.diagnostics));
  REQUIRE(result.ok());
  return *result;
}

std::string place(const Location& at) { return std::to_string(at.line) + ":" + std::to_string(at.column); }

// "code line:column message" of the only diagnostic.
std::string mistake(const Result<Value>& result) {
  if (result.ok() || result.value) return "no mistake";
  if (result.diagnostics.size() != 1) return "several mistakes";
  const Diagnostic& d = result.diagnostics[0];
  return d.code + " " + place(d.location) + " " + d.message;
}
std::string yaml_mistake(std::string_view text) { return mistake(parse_yaml(text, "run.yaml")); }
std::string json_mistake(std::string_view text) { return mistake(parse_json(text, "config.json")); }

// The value of the only key of "v: <text>".
Value scalar(std::string_view text) {
  const Value map = yaml("v: " + std::string(text) + "\n");
  REQUIRE(map.entries.size() == 1);
  return map.entries[0].second;
}

template <class T>
std::string code_of(const Result<T>& result) {
  return result.ok() ? "ok" : result.diagnostics.at(0).code;
}

template <class T>
std::string message_of(const Result<T>& result) {
  return result.ok() ? "ok" : result.diagnostics.at(0).message;
}

template <class T>
std::string help_of(const Result<T>& result) {
  return result.ok() ? "ok" : result.diagnostics.at(0).help;
}

}  // namespace

TEST_CASE("YAML: structure, order and places", "[value]") {
  const Value root = yaml("model: llama3_8b\ntrain:\n  steps: 1000\n  paths:\n    - a b\n    - 'c'\nempty: {}\nflow: [1, {x: y}]\n");
  REQUIRE(root.kind == Kind::kMap);
  REQUIRE(root.entries.size() == 4);
  CHECK(root.entries[0].first == "model");
  CHECK(root.entries[3].first == "flow");
  CHECK(root.location == Location{"run.yaml", 1, 1});
  CHECK(root.key_locations.size() == 4);
  CHECK(root.key_locations[1] == Location{"run.yaml", 2, 1});
  const Value* train = root.find("train");
  REQUIRE(train != nullptr);
  CHECK(train->find("steps")->text == "1000");
  CHECK(train->find("steps")->location == Location{"run.yaml", 3, 10});
  const Value* paths = train->find("paths");
  REQUIRE(paths->items.size() == 2);
  CHECK(paths->items[0].text == "a b");
  CHECK_FALSE(paths->items[0].quoted);
  CHECK(place(paths->items[1].location) == "6:7");
  CHECK(paths->items[1].quoted);
  CHECK(root.find("empty")->kind == Kind::kMap);
  CHECK(root.find("flow")->items[1].find("x")->text == "y");
}

TEST_CASE("YAML: an empty file is null", "[value]") {
  for (const char* text : {"", "# only a comment\n", "---\n", "\n\n", "\xef\xbb\xbf"}) {
    INFO("'" << text << "'");
    const Value root = yaml(text);
    CHECK(root.kind == Kind::kNull);
    CHECK(root.location.file == "run.yaml");
    CHECK(root.location.line >= 1);
  }
}

TEST_CASE("YAML: nulls keep their spelling, an empty one is reported at its key", "[value]") {
  const Value root = yaml("a: ~\nb: null\nc:\nd: 'null'\ne: NULL\n");
  CHECK(root.find("a")->kind == Kind::kNull);
  CHECK(root.find("a")->text == "~");
  CHECK(root.find("b")->text == "null");
  CHECK(place(root.find("b")->location) == "2:4");
  CHECK(root.find("c")->kind == Kind::kNull);
  CHECK(root.find("c")->text.empty());
  CHECK(place(root.find("c")->location) == "3:1");
  CHECK(root.find("d")->kind == Kind::kScalar);
  CHECK(root.find("e")->kind == Kind::kNull);
}

TEST_CASE("YAML: find takes hyphen for underscore, the exact key first", "[value]") {
  const Value root = yaml("global-batch: 8\nseed: 1\n");
  REQUIRE(root.find("global_batch") != nullptr);
  CHECK(root.find("global_batch")->text == "8");
  CHECK(root.find("global-batch") == root.find("global_batch"));
  CHECK(root.find("Seed") == nullptr);  // case counts
  CHECK(root.find("global") == nullptr);
  CHECK(root.find("seed")->find("x") == nullptr);  // not a map
  const Value both = json(R"({"a-b": 1, "a_b": 2})");
  CHECK(both.find("a_b")->text == "2");
  CHECK(both.find("a-b")->text == "1");
}

TEST_CASE("YAML: every duplicate key is reported, with the first's place", "[value]") {
  const Result<Value> result = parse_yaml("a: 1\nglobal-batch: 2\nb: {x: 1, x: 2}\nglobal_batch: 3\na: 4\n", "run.yaml");
  REQUIRE(result.diagnostics.size() == 3);
  CHECK_FALSE(result.value);
  for (const Diagnostic& d : result.diagnostics) CHECK(d.code == code::kDuplicateKey);
  CHECK(place(result.diagnostics[0].location) == "3:11");
  CHECK(place(result.diagnostics[1].location) == "4:1");
  CHECK(result.diagnostics[1].message == "key 'global_batch' is given twice, expected once");
  CHECK(result.diagnostics[1].help == "remove this one or the first, at line 2 column 1");
  CHECK(result.diagnostics[1].length == 12);
  CHECK(place(result.diagnostics[2].location) == "5:1");
  CHECK(yaml("a: {x: 1}\nb: {x: 2}\n").entries.size() == 2);  // the same key in two maps is fine
}

TEST_CASE("YAML: what yaml-cpp lets pass is refused", "[value]") {
  CHECK(yaml_mistake("a: \"x\n") == "DS0002 1:4 found a quote that is never closed, expected its end");
  CHECK(yaml_mistake("a: 'it''s\nb: 1\n") == "DS0002 1:4 found a quote that is never closed, expected its end");
  CHECK(yaml_mistake("a: &x \"b\n") == "DS0002 1:7 found a quote that is never closed, expected its end");
  CHECK(yaml_mistake("a: 1\nb:2\n") == "DS0002 2:1 found 'b:2', expected 'key: value'");
  CHECK(yaml_mistake("{a, b: 1}\n") == "DS0002 1:2 found 'a', expected 'key: value'");
  CHECK(yaml_mistake("- a\nb: 1\n") == "DS0002 2:1 found text after the end of the value, expected the end of the file");
  CHECK(yaml_mistake("---\na: 1\n---\nb: 2\n") == "DS0002 3:1 found a second document, expected one");
  CHECK(yaml_mistake("a: 1\n...\nb: 2\n") == "DS0002 3:1 found a second document, expected one");
  CHECK(yaml("---\na: 1\n...\n").entries.size() == 1);
}

TEST_CASE("YAML: syntax errors name the place that has to change", "[value]") {
  CHECK(yaml_mistake("a:\n\tb: 1\n") == "DS0002 2:1 found a tab in the indentation, expected spaces");
  CHECK(yaml_mistake("a:\n  \tb: 1\n") == "DS0002 2:3 found a tab in the indentation, expected spaces");
  CHECK(yaml_mistake("a: [1, 2\n") == "DS0002 1:4 found '[' without its ']', expected both");
  CHECK(yaml_mistake("a: {b: [1, 2]\nc: 3\n") == "DS0002 1:4 found '{' without its '}', expected both");
  CHECK(yaml_mistake("a: 1\nb 2\nc: 3\n") == "DS0002 2:1 found 'b 2', expected 'key: value'");
  CHECK(yaml_mistake("a: 1\nb:2\nc: 3\n") == "DS0002 2:1 found 'b:2', expected 'key: value'");
  CHECK(yaml_mistake("a: *nope\n").substr(0, 11) == "DS0002 1:4 ");
  CHECK(yaml_mistake("a: b: c\n").substr(0, 11) == "DS0002 1:5 ");
  CHECK(yaml_mistake("a: \"\\q\"\n").substr(0, 9) == "DS0002 1:");
  CHECK(yaml_mistake("a: @x\n").substr(0, 11) == "DS0002 1:4 ");
  CHECK(help_of(parse_yaml("a: 1\nb:2\nc: 3\n", "f")) == "put a space behind the ':'");
}

TEST_CASE("YAML: tags, merge keys and keys that are no text are refused by name", "[value]") {
  CHECK(yaml_mistake("a: !python/tuple [1]\n") == "DS0002 1:4 found the tag '!python/tuple', expected no tag");
  CHECK(yaml_mistake("a: !!int x3\n") == "DS0002 1:4 found the tag '!!int', expected no tag");
  CHECK(yaml_mistake("a: !!set {b}\n") == "DS0002 1:4 found the tag '!!set', expected no tag");
  CHECK(yaml_mistake("x: &x {a: 1}\ny:\n  <<: *x\n") == "DS0002 3:3 found the merge key '<<', expected a plain key");
  CHECK(yaml_mistake("[a]: 1\n") == "DS0002 1:1 found a key that is not text, expected a name");
  CHECK(yaml_mistake("? {a: 1}\n: 1\n") == "DS0002 1:3 found a key that is not text, expected a name");
  CHECK(yaml_mistake("~: 1\n") == "DS0002 1:1 found a key that is not text, expected a name");
  CHECK(yaml_mistake("a: &k b\n*k : 1\n") == "DS0002 2:1 found a key that is not text, expected a name");
  CHECK(yaml("'<<': 1\n").entries[0].first == "<<");
  CHECK(yaml("a: !!str 010\n").find("a")->quoted);
  for (const char* typed : {"a: !!int \"4\"\n", "a: !!float '4'\n", "a: !!int 4\n"}) {
    const Value one = yaml(typed);
    CHECK(one.find("a")->text == "4");
    CHECK_FALSE(one.find("a")->quoted);
  }
  CHECK_FALSE(yaml("a: !!bool \"true\"\n").find("a")->quoted);
}

TEST_CASE("YAML: bytes that are no text are refused", "[value]") {
  CHECK(yaml_mistake("a: \x01\n") == "DS0002 1:4 found byte 0x01, expected UTF-8 text");
  CHECK(yaml_mistake(std::string("a: \0b\n", 6)) == "DS0002 1:4 found byte 0x00, expected UTF-8 text");
  CHECK(yaml_mistake("a: 1\rb: 2\n") == "DS0002 1:5 found byte 0x0d, expected UTF-8 text");
  CHECK(yaml_mistake("\xff\xfe"
                     "a\n") == "DS0002 1:1 found byte 0xff, expected UTF-8 text");
  // Overlong '/', half a surrogate pair, above U+10FFFF, cut off, a control character of Latin-1.
  for (const char* bytes : {"\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\xc2\x9b"}) {
    CHECK(yaml_mistake("a: " + std::string(bytes)).find("expected UTF-8 text") != std::string::npos);
  }
  CHECK(yaml("a: \xe2\x82\xac \xf0\x9f\x98\x80\r\nb: 1\r\n").find("b")->text == "1");
}

TEST_CASE("YAML: columns count characters, also behind a byte order mark", "[value]") {
  CHECK(place(yaml("\xc3\xa9\xc3\xa9: x\n").entries[0].second.location) == "1:5");
  CHECK(place(yaml("\xef\xbb\xbf"
                   "a: x\n")
                  .entries[0]
                  .second.location) == "1:4");
  CHECK(place(yaml("{\xe2\x82\xac: x, b: [\xe2\x82\xac, y]}\n").find("b")->items[1].location) == "1:15");
}

TEST_CASE("YAML: an alias copies, and cannot be used to exhaust memory", "[value]") {
  const Value root = yaml("base: &b {x: [1, 2]}\nuse: *b\nscalar: &s text\nagain: *s\nnothing: &n\nmore: *n\n");
  CHECK(root.find("use")->find("x")->items.size() == 2);
  CHECK(root.find("again")->text == "text");
  CHECK(root.find("more")->kind == Kind::kNull);
  CHECK(yaml("&k name: 1\nagain: *k\n").find("again")->text == "name");
  CHECK(yaml_mistake("a: &x [*x]\n") == "DS0002 1:8 found an alias inside the value it stands for, expected one that ends");
  std::string bomb = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string from = "*a" + std::to_string(i - 1), to = "a" + std::to_string(i);
    bomb += to + ": &" + to + " [" + from;
    for (int k = 1; k < 10; ++k) bomb += ", " + from;
    bomb += "]\n";
  }
  CHECK(yaml_mistake(bomb).find("values, expected fewer") != std::string::npos);
}

TEST_CASE("deep nesting is an error, not a crash", "[value]") {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  CHECK(yaml(nested(300)).kind == Kind::kList);
  CHECK(json(nested(300)).kind == Kind::kList);
  for (const int depth : {450, 2000, 100'000}) {
    CHECK(yaml_mistake(nested(depth)).substr(0, 6) == code::kSyntax);
    CHECK(json_mistake(nested(depth)).find("nesting deeper than 400 levels") != std::string::npos);
  }
}

TEST_CASE("JSON: structure, places, escapes", "[value]") {
  const Value root = json(
      "{\"a\": \"\\ud83d\\ude00 \\/ \\u00e9 \\n\", \"b\":[1,-2.5e-3,{\"c\":null}],\n\t\"d\" : true, \"e\": {}, \"\": \"}\\\"]\", "
      "\"f\": []}");
  CHECK(root.find("a")->text == "\xf0\x9f\x98\x80 / \xc3\xa9 \n");
  CHECK(root.find("a")->quoted);
  CHECK(place(root.find("a")->location) == "1:7");
  CHECK(root.find("b")->items[0].text == "1");
  CHECK_FALSE(root.find("b")->items[0].quoted);
  CHECK(root.find("b")->items[1].text == "-2.5e-3");
  CHECK(place(root.find("b")->items[1].location) == "1:43");
  CHECK(root.find("b")->items[2].find("c")->kind == Kind::kNull);
  CHECK(root.find("b")->items[2].find("c")->text == "null");
  CHECK(place(root.key_locations[2]) == "2:2");
  CHECK(place(root.find("d")->location) == "2:8");
  CHECK(root.find("d")->text == "true");
  CHECK(root.find("")->text == "}\"]");
  CHECK(root.find("e")->kind == Kind::kMap);
  CHECK(root.find("f")->kind == Kind::kList);
  CHECK(root.entries.size() == 6);
}

TEST_CASE("JSON: a root of any kind, numbers as written", "[value]") {
  CHECK(json(" 12345678901234567890123 ").text == "12345678901234567890123");
  CHECK(json("\"x\"").quoted);
  CHECK(json("\xef\xbb\xbf[1]").items.size() == 1);
  CHECK(json("false").text == "false");
}

TEST_CASE("JSON: what is refused, and where", "[value]") {
  CHECK(json_mistake("{\"a\":1,\"a\":2}") == "DS0003 1:8 key 'a' is given twice, expected once");
  CHECK(json_mistake("{\"a\": NaN}") == "DS0002 1:7 found 'NaN', expected a number that JSON can hold");
  CHECK(json_mistake("[-Infinity]") == "DS0002 1:2 found '-Infinity', expected a number that JSON can hold");
  CHECK(json_mistake("[1,\n 2,\n }").substr(0, 11) == "DS0002 3:2 ");
  CHECK(json_mistake("{\"a\":1 \"b\":2}").substr(0, 11) == "DS0002 1:8 ");
  CHECK(json_mistake("{\"a\":1,}").substr(0, 11) == "DS0002 1:8 ");
  CHECK(json_mistake("").substr(0, 11) == "DS0002 1:1 ");
  CHECK(json_mistake("{} x").substr(0, 11) == "DS0002 1:4 ");
  CHECK(json_mistake("[010]").substr(0, 9) == "DS0002 1:");
  CHECK(json_mistake("['a']").substr(0, 11) == "DS0002 1:2 ");
  CHECK(json_mistake("// c\n1").substr(0, 11) == "DS0002 1:1 ");
  CHECK(json_mistake("\"a\xff\"").substr(0, 11) == "DS0002 1:3 ");
  CHECK(json_mistake("1e999").substr(0, 11) == "DS0002 1:1 ");
  CHECK(json_mistake("{\"a\": 1").find("json.exception") == std::string::npos);
}

TEST_CASE("JSON: a long line is read in linear time", "[value]") {
  std::string text = "[0";
  for (int i = 1; i < 200'000; ++i) text += "," + std::to_string(i);
  const Value root = json(text + "]");
  REQUIRE(root.items.size() == 200'000);
  CHECK(root.items.back().location.column == static_cast<int>(text.size()) - 5);
}

TEST_CASE("booleans: the two words, nothing else", "[value]") {
  for (const char* text : {"true", "True", "TRUE"}) CHECK(*as_bool(scalar(text)));
  for (const char* text : {"false", "False", "FALSE"}) CHECK_FALSE(*as_bool(scalar(text)));
  for (const char* text : {"yes", "no", "on", "off", "y", "N", "Yes", "OFF"}) {
    INFO(text);
    CHECK(code_of(as_bool(scalar(text))) == code::kAmbiguousSpelling);
    CHECK(help_of(as_bool(scalar(text))) == "write true or false, or quote it");
  }
  for (const char* text : {"1", "0", "tRUE", "'true'", "[]", "{}", "~", ""}) {
    INFO(text);
    CHECK(code_of(as_bool(scalar(text))) == code::kWrongType);
  }
  CHECK(message_of(as_bool(scalar("no"))) == "found 'no', which YAML versions read differently, expected true or false");
  CHECK(message_of(as_bool(scalar("'true'"))) == "found the text 'true', expected true or false");
  CHECK(message_of(as_bool(scalar(""))) == "found nothing, expected true or false");
}

TEST_CASE("whole numbers", "[value]") {
  const auto number = [](std::string_view text) { return as_int(scalar(text)).value.value_or(-999); };
  CHECK(number("1048576") == 1048576);
  CHECK(number("-7") == -7);
  CHECK(number("+7") == 7);
  CHECK(number("0") == 0);
  CHECK(number("-0") == 0);
  CHECK(number("1e6") == 1'000'000);
  CHECK(number("1.5e3") == 1500);
  CHECK(number("2.0") == 2);
  CHECK(number("1200e-2") == 12);
  CHECK(number("0e-99999999999999999999") == 0);
  CHECK(number("9007199254740993") == 9'007'199'254'740'993);  // 2^53 + 1: not through a double
  CHECK(number("9223372036854775807") == std::numeric_limits<int64_t>::max());
  CHECK(number("-9223372036854775808") == std::numeric_limits<int64_t>::min());
}

TEST_CASE("whole numbers: what is refused", "[value]") {
  for (const char* text : {"9223372036854775808", "-9223372036854775809", "1e19", "1e99999999999999999999"}) {
    INFO(text);
    CHECK(code_of(as_int(scalar(text))) == code::kOutOfRange);
  }
  for (const char* text : {"1.5", "1e-1", "x", "1M", "--1", "1e", "e5", ".", "'8'", "[1]", "~", ".inf", ".nan", "1 2", "true", "1,000",
                           "1,048,576", "0,1"}) {
    INFO(text);
    CHECK(code_of(as_int(scalar(text))) == code::kWrongType);
  }
  for (const char* text : {"010", "-010", "0x1f", "0o17", "0b11", "1_000", "no", "on", "00"}) {
    INFO(text);
    CHECK(code_of(as_int(scalar(text))) == code::kAmbiguousSpelling);
  }
  CHECK(help_of(as_int(scalar("-010"))) == "write -10");
  CHECK(help_of(as_int(scalar("1_000"))) == "write 1000");
  CHECK(help_of(as_int(scalar("1,048,576"))) == "write 1048576");
  CHECK(help_of(as_int(scalar("00"))) == "write 0");
  CHECK(help_of(as_int(scalar("'8'"))) == "remove the quotes: 8");
  CHECK(message_of(as_int(scalar("x"))) == "found 'x', expected a whole number");
  const Result<int64_t> mistaken = as_int(scalar("'eight'"));
  CHECK(mistaken.diagnostics[0].location == Location{"run.yaml", 1, 4});
  CHECK(mistaken.diagnostics[0].length == 7);
}

TEST_CASE("numbers", "[value]") {
  const auto number = [](std::string_view text) { return as_double(scalar(text)).value.value_or(-999); };
  CHECK(number("1e-6") == 1e-6);
  CHECK(number("3e8") == 3e8);
  CHECK(number("3E+8") == 3e8);
  CHECK(number(".5") == 0.5);
  CHECK(number("5.") == 5);
  CHECK(number("-1.5") == -1.5);
  CHECK(number("+1.5") == 1.5);
  CHECK(number("0.1") == 0.1);
  CHECK(number("0") == 0);
  for (const char* text : {"inf", ".inf", "-.inf", "nan", ".nan", "1e", "0.1x", "'0.1'", "1.2.3", "+-1", "", "infinity"}) {
    INFO(text);
    CHECK(code_of(as_double(scalar(text))) == code::kWrongType);
  }
  for (const char* text : {"1e400", "-1e400"}) CHECK(code_of(as_double(scalar(text))) == code::kOutOfRange);
  for (const char* text : {"010.5", "1_000.0", "0x10", "00.5"}) {
    INFO(text);
    CHECK(code_of(as_double(scalar(text))) == code::kAmbiguousSpelling);
  }
  CHECK(help_of(as_double(scalar("00.5"))) == "write 0.5");
}

TEST_CASE("text: quoted is always text, bare only when nobody reads it as something else", "[value]") {
  for (const char* text :
       {"llama3_8b", "8xH100-80GB", "48:00:00", "1e-6", "4090", "2026-11-21", "a b", "/data/x", "0.5", "08x", "0,1,2", "1,000"}) {
    INFO(text);
    CHECK(*as_text(scalar(text)) == text);
  }
  for (const char* text : {"'no'", "\"010\"", "'~'", "\"\"", "'true'"}) {
    INFO(text);
    const std::string bare = std::string(text).substr(1, std::string(text).size() - 2);
    CHECK(*as_text(scalar(text)) == bare);
  }
  CHECK(*as_text(scalar("|\n  two\n  lines")) == "two\nlines\n");
  for (const char* text : {"no", "on", "yes", "Off", "y", "010", "0x1f", "1_000"}) {
    INFO(text);
    CHECK(code_of(as_text(scalar(text))) == code::kAmbiguousSpelling);
    CHECK(help_of(as_text(scalar(text))).find("quote it if you mean text: '" + std::string(text) + "'") == 0);
  }
  for (const char* text : {"true", "FALSE", "~", "null", "", "[a]", "{a: b}"}) {
    INFO(text);
    CHECK(code_of(as_text(scalar(text))) == code::kWrongType);
  }
  CHECK(message_of(as_text(scalar("null"))) == "found 'null', expected text");
  CHECK(help_of(as_text(scalar("null"))) == "quote it if you mean text: 'null'");
}

TEST_CASE("a long scalar is shortened in messages", "[value]") {
  CHECK(message_of(as_int(scalar(std::string(500, 'x')))).size() < 120);
}

TEST_CASE("read_yaml_file reads, and passes both kinds of failure on", "[value]") {
  const TemporaryDirectory directory;
  CHECK(read_yaml_file(directory.write("good.yaml", "a: 1\n"))->find("a")->location.file == directory.path("good.yaml"));
  CHECK(code_of(read_yaml_file(directory.path("missing.yaml"))) == code::kUnreadableFile);
  CHECK(code_of(read_yaml_file(directory.write("bad.yaml", "a: [\n"))) == code::kSyntax);
}

TEST_CASE("a file that repeats one key for ever is told a hundred times, not a hundred thousand") {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "a: 1\n";
  CHECK(parse_yaml(text, "f").diagnostics.size() == 100);
}
