// Reading a map by keys: what is set, what is left alone, what is complained about.
#include <catch2/catch.hpp>

#include "base/diagnostic_codes.h"
#include "base/map_reader.h"
#include "base/value.h"
#include "base/value_json.h"
#include "base/value_yaml.h"

using namespace distsetup;

namespace {

Value yaml(std::string_view text) {
  Result<Value> result = parse_yaml(text, "run.yaml");
  REQUIRE(result.ok());
  return *result;
}

}  // namespace

TEST_CASE("each type is read by its key", "[map_reader]") {
  const Value map =
      yaml("on_top: true\nglobal-batch: 512\nlearning_rate: 3e-4\noptimizer: adamw\npaths: [a, 'b']\none: c\nchild: {x: 1}\n");
  Diagnostics diagnostics;
  MapReader reader(map, "train", diagnostics);
  bool on_top = false;
  int64_t batch = 0;
  double rate = 0;
  std::string optimizer;
  std::vector<std::string> paths, one;
  CHECK(reader.get("on_top", on_top));
  CHECK(reader.get("global_batch", batch));
  CHECK(reader.get("learning_rate", rate));
  CHECK(reader.get("optimizer", optimizer));
  CHECK(reader.get("paths", paths));
  CHECK(reader.get("one", one));
  REQUIRE(reader.child("child") != nullptr);
  CHECK(reader.child("child")->find("x")->text == "1");
  reader.finish();
  CHECK(diagnostics.empty());
  CHECK(on_top);
  CHECK(batch == 512);
  CHECK(rate == 3e-4);
  CHECK(optimizer == "adamw");
  CHECK(paths == std::vector<std::string>{"a", "b"});
  CHECK(one == std::vector<std::string>{"c"});
}

TEST_CASE("an absent key leaves the value alone, without a word", "[map_reader]") {
  for (const Value& map : {yaml("a: 1\n"), yaml("")}) {
    Diagnostics diagnostics;
    MapReader reader(map, "train", diagnostics);
    int64_t steps = 77;
    std::vector<std::string> paths = {"kept"};
    CHECK_FALSE(reader.get("steps", steps));
    CHECK_FALSE(reader.get("paths", paths));
    CHECK(reader.child("child") == nullptr);
    CHECK(steps == 77);
    CHECK(paths == std::vector<std::string>{"kept"});
    CHECK(diagnostics.empty());
  }
}

TEST_CASE("a wrong type is said with the full name and leaves the value alone", "[map_reader]") {
  const Value map = yaml("steps: soon\nseed: no\nrate: x\nname: [a]\npaths: [a, on]\nempty:\n");
  Diagnostics diagnostics;
  MapReader reader(map, "train", diagnostics);
  int64_t steps = 1, empty = 3;
  bool seed = true;
  double rate = 2;
  std::string name = "n";
  std::vector<std::string> paths = {"kept"};
  CHECK_FALSE(reader.get("steps", steps));
  CHECK_FALSE(reader.get("seed", seed));
  CHECK_FALSE(reader.get("rate", rate));
  CHECK_FALSE(reader.get("name", name));
  CHECK_FALSE(reader.get("paths", paths));
  CHECK_FALSE(reader.get("empty", empty));
  reader.finish();
  REQUIRE(diagnostics.size() == 6);
  CHECK(diagnostics[0].message == "train.steps: found 'soon', expected a whole number");
  CHECK(diagnostics[0].location == Location{"run.yaml", 1, 8});
  CHECK(diagnostics[1].code == code::kAmbiguousSpelling);
  CHECK(diagnostics[2].message == "train.rate: found 'x', expected a number");
  CHECK(diagnostics[3].message == "train.name: found a list, expected text");
  CHECK(diagnostics[4].message.find("train.paths[1]: found 'on'") == 0);
  CHECK(diagnostics[5].message == "train.empty: found nothing, expected a whole number");
  CHECK((steps == 1 && seed && rate == 2 && name == "n" && empty == 3));
  CHECK(paths == std::vector<std::string>{"kept"});
}

TEST_CASE("null is a mistake in our files and absence in a model's", "[map_reader]") {
  const Result<Value> map = parse_json(R"({"head_dim": null, "hidden_size": 4096})", "config.json");
  REQUIRE(map.ok());
  int64_t head_dim = 128, hidden = 0;
  Diagnostics strict;
  MapReader strict_reader(*map, "model", strict);
  CHECK_FALSE(strict_reader.get("head_dim", head_dim));
  REQUIRE(strict.size() == 1);
  CHECK(strict[0].message == "model.head_dim: found 'null', expected a whole number");
  Diagnostics lenient;
  MapReader reader(*map, "model", lenient, Nulls::kAbsent);
  CHECK_FALSE(reader.get("head_dim", head_dim));
  CHECK(reader.get("hidden_size", hidden));
  CHECK(lenient.empty());
  CHECK(head_dim == 128);
  reader.require("head_dim");
  REQUIRE(lenient.size() == 1);
  CHECK(lenient[0].code == code::kMissingKey);
}

TEST_CASE("unknown keys come with the nearest known one", "[map_reader]") {
  const Value map = yaml("gradient_acumulation: 8\nzzzz: 1\nmicro-batch: 2\n");
  Diagnostics diagnostics;
  MapReader reader(map, "parallel", diagnostics);
  int64_t value = 0;
  reader.get("gradient_accumulation", value);
  reader.get("micro_batch", value);
  reader.get("micro_batch", value);  // asked twice, listed once
  reader.finish();
  REQUIRE(diagnostics.size() == 2);
  CHECK(diagnostics[0].code == code::kUnknownKey);
  CHECK(diagnostics[0].message == "unknown key 'gradient_acumulation' in 'parallel'");
  CHECK(diagnostics[0].help == "did you mean 'gradient_accumulation'");
  CHECK(diagnostics[0].replacement == "gradient_accumulation");
  CHECK(diagnostics[0].location == Location{"run.yaml", 1, 1});
  CHECK(diagnostics[0].length == 20);
  CHECK(diagnostics[1].help == "known: gradient_accumulation, micro_batch");
  CHECK(diagnostics[1].replacement.empty());
}

TEST_CASE("the top level has no name", "[map_reader]") {
  const Value map = yaml("modl: x\nversion: one\n");
  Diagnostics diagnostics;
  MapReader reader(map, "", diagnostics);
  int64_t version = 0;
  reader.get("version", version);
  reader.child("model");
  reader.require("train");
  reader.finish();
  REQUIRE(diagnostics.size() == 3);
  CHECK(diagnostics[0].message == "version: found 'one', expected a whole number");
  CHECK(diagnostics[1].message == "found no key 'train', expected one");
  CHECK(diagnostics[1].help == "add 'train: ...'");
  CHECK(diagnostics[2].message == "unknown key 'modl'");
}

TEST_CASE("what is not a map is said once", "[map_reader]") {
  for (const char* text : {"just text\n", "[1, 2]\n"}) {
    const Value value = yaml(text);
    Diagnostics diagnostics;
    MapReader reader(value, "train", diagnostics);
    int64_t steps = 5;
    CHECK_FALSE(reader.get("steps", steps));
    reader.require("steps");
    reader.finish();
    REQUIRE(diagnostics.size() == 1);
    CHECK(diagnostics[0].code == code::kWrongType);
    CHECK(diagnostics[0].message.find("train: found") == 0);
    CHECK(steps == 5);
  }
}

TEST_CASE("a key that is there is not missing", "[map_reader]") {
  const Value map = yaml("steps: 1\n");
  Diagnostics diagnostics;
  MapReader reader(map, "train", diagnostics);
  reader.require("steps");
  CHECK(diagnostics.empty());
}
