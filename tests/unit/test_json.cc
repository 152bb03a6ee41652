// JSON output: byte-stable form, and refusal of what JSON cannot say.
#include "base/json.h"

#include <catch2/catch.hpp>
#include <limits>

#include "support/death.h"

using namespace distsetup;

TEST_CASE("keys are sorted, indented by two, one final newline", "[json]") {
  Json json;
  json["b"] = 1;
  json["a"] = {1, "x", nullptr};
  json["c"] = Json::object();
  CHECK(dump_json(json) == "{\n  \"a\": [\n    1,\n    \"x\",\n    null\n  ],\n  \"b\": 1,\n  \"c\": {}\n}\n");
}

TEST_CASE("integers stay integers, doubles come back as the same double", "[json]") {
  CHECK(dump_json(Json(std::numeric_limits<int64_t>::max())) == "9223372036854775807\n");
  CHECK(dump_json(Json(std::numeric_limits<int64_t>::min())) == "-9223372036854775808\n");
  CHECK(dump_json(Json(0.1)) == "0.1\n");
  CHECK(dump_json(Json(1e-6)) == "1e-06\n");
  CHECK(dump_json(Json(2.0)) == "2.0\n");
  for (const double x : {1.0 / 3, 3.35e12, 5e-324, 1.7976931348623157e308, -0.0}) {
    CHECK(Json::parse(dump_json(Json(x))).get<double>() == x);
  }
}

TEST_CASE("bytes that are not UTF-8 become the replacement character", "[json]") {
  CHECK(dump_json(Json(std::string("a\xff"))) == "\"a\xef\xbf\xbd\"\n");
}

TEST_CASE("a number that is not finite is our bug, wherever it hides", "[json]") {
  const double infinity = std::numeric_limits<double>::infinity();
  const Json nested = {{"memory", {{"terms", {1, 2.5, infinity}}}}};
  CHECK(dies_with("is inf", [&] { dump_json(nested); }));
  CHECK(dies_with("nan", [] { dump_json(Json(std::numeric_limits<double>::quiet_NaN())); }));
  CHECK_FALSE(dies_with("", [] { dump_json(Json(1.5)); }));
}
