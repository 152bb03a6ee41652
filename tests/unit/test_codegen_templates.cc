// The strictness of templates and tables: a mistake in a file is found when it is read, with the place.
#include <catch2/catch.hpp>

#include "base/diagnostic_codes.h"
#include "codegen/job/script.h"
#include "codegen/tables/key_table.h"
#include "codegen/tables/key_walk.h"
#include "support/emitted.h"

using namespace distsetup;

namespace {

std::string wrong(std::string_view text, const ScriptValues& values) {
  const Result<std::string> out = render_script(text, "t.mustache", values);
  REQUIRE_FALSE(out.ok());
  CHECK(out.diagnostics[0].code == code::kTemplate);
  return messages(out.diagnostics);
}

std::string right(std::string_view text, const ScriptValues& values) {
  const Result<std::string> out = render_script(text, "t.mustache", values);
  INFO(messages(out.diagnostics));
  REQUIRE(out.ok());
  return *out;
}

ScriptValue shell(std::string text) { return {Form::kShell, true, std::move(text), {}}; }

std::string table_mistake(const std::string& rows) {
  const Result<KeyTable> table = parse_key_table("version: 1\nformat: json\ntool: t\nsource: s\nkeys:\n" + rows, "keys.yaml");
  REQUIRE_FALSE(table.ok());
  return messages(table.diagnostics);
}

TemplateSet with_file(const std::string& path, const std::string& text) {
  TemplateSet set = embedded_templates();
  for (auto& file : set.files) {
    if (file.first == path) {
      file.second = text;
      return set;
    }
  }
  set.files.emplace_back(path, text);
  return set;
}

}  // namespace

TEST_CASE("codegen: script templates place values and switch sections") {
  CHECK(right("a {{x}} b\n", {{"x", shell("it's $x")}}) == "a 'it'\\''s $x' b\n");
  CHECK(right("{{#on}}\nyes\n{{/on}}\n{{^on}}\nno\n{{/on}}\n", {{"on", {Form::kSwitch, false, "", {}}}}) == "no\n");
  CHECK(right("{{#l}}\n- {{.}}\n{{/l}}\n", {{"l", {Form::kShellList, true, "", {"a b", "c"}}}}) == "- 'a b'\n- c\n");
  CHECK(right("{{#l}}\n{{&.}}\n{{/l}}\n", {{"l", {Form::kVerbatimList, true, "", {"a b; c"}}}}) == "a b; c\n");
  CHECK(right("{{#x}}\n{{x}}\n{{/x}}\n.\n", {{"x", {Form::kShell, false, "", {}}}}) == ".\n");
  CHECK(right("{{! not shown }}\nx {{&v}}\n", {{"v", {Form::kVerbatim, true, "a > b", {}}}}) == "x a > b\n");
  CHECK(right("a\n{{#on}}\n\nb\n{{/on}}\n\nc\n", {{"on", {Form::kSwitch, true, "", {}}}}) == "a\n\nb\n\nc\n");  // blank lines stay
  CHECK(right("a\n{{#on}}\n\nb\n{{/on}}\n\nc\n", {{"on", {Form::kSwitch, false, "", {}}}}) == "a\n\nc\n");
  CHECK(right("{{#l}}\n{{.}}\n\n{{/l}}\nend\n", {{"l", {Form::kShellList, true, "", {"a", "b"}}}}) == "a\n\nb\n\nend\n");
}

TEST_CASE("codegen: mistakes in a script template are errors with their place") {
  const ScriptValues x = {{"x", shell("1")}};
  CHECK(contains(wrong("{{x}} {{y}}", x), "no value 'y'"));
  CHECK(contains(wrong("nothing", x), "value 'x' has no place"));
  CHECK(contains(wrong("{{&x}}", x), "must be quoted"));
  CHECK(contains(wrong("{{{x}}}", x), "is not used here"));
  CHECK(contains(wrong("\"{{x}}\"", x), "quoted already"));
  CHECK(contains(wrong("{{x}", x), "without '}}'"));
  CHECK(contains(wrong("{{#x}}", x), "not closed"));
  CHECK(contains(wrong("{{x}}{{/x}}", x), "closes no open section"));
  CHECK(contains(wrong("{{x}}{{.}}", x), "outside the section of a list"));
  CHECK(contains(wrong("{{x}}{{> other}}", x), "not supported"));
  CHECK(contains(wrong("{{=<% %>=}}<% x %>", x), "not supported"));
  CHECK(contains(wrong("{{v}}", {{"v", {Form::kVerbatim, true, "", {}}}}), "write {{&v}}"));
  CHECK(contains(wrong("{{v}}", {{"v", {Form::kShell, false, "", {}}}}), "may be absent"));
  CHECK(contains(wrong("{{s}}", {{"s", {Form::kSwitch, true, "", {}}}}), "open a section"));
  const Result<std::string> placed = render_script("a\nb {{y}}\n", "t.mustache", {});
  CHECK(placed.diagnostics[0].location == Location{"t.mustache", 2, 3});
}

TEST_CASE("codegen: a mistake in a branch that is not taken is found") {
  CHECK(contains(wrong("{{#off}}\n{{missing}}\n{{/off}}\n", {{"off", {Form::kSwitch, false, "", {}}}}), "no value 'missing'"));
}

TEST_CASE("codegen: mistakes in a key table are errors when it is read") {
  CHECK(contains(table_mistake("  - {key: a, type: int, field: micro_bach}\n"), "did you mean 'micro_batch'"));
  CHECK(contains(table_mistake("  - {key: a, type: integer, field: micro_batch}\n"), "unknown type 'integer'"));
  CHECK(contains(table_mistake("  - {key: a, type: int}\n"), "needs a field or a value"));
  CHECK(contains(table_mistake("  - {key: a, type: int, field: micro_batch, value: 1}\n"), "needs a field or a value"));
  CHECK_FALSE(table_mistake("  - {key: a, type: bool, value: maybe}\n").empty());
  CHECK(contains(table_mistake("  - {key: a, type: int, value: 1, wen: {micro_batch: 1}}\n"), "wen"));
  CHECK(contains(table_mistake("  - {key: a, type: int, value: 1, when: {no.such: 1}}\n"), "unknown field 'no.such'"));
  CHECK(contains(table_mistake("  - {type: int, value: 1}\n"), "key"));
  CHECK(contains(table_mistake("  []\nrules:\n  - {message: 'no {mesh.dp_shards}'}\n"), "did you mean 'mesh.dp_shard'"));
}

TEST_CASE("codegen: a value without a form in a table is refused, not dropped") {
  const Result<KeyTable> table = parse_key_table(
      "version: 1\nformat: json\ntool: t\nsource: s\nkeys:\n  - {key: a, type: text, field: strategy.sharding, values: {ddp: NONE}}\n",
      "keys.yaml");
  REQUIRE(table.ok());
  Fields fields = no_fields();
  set_field(fields, "strategy.sharding", "zero3");
  const Result<Entries> entries = walk_keys(*table, fields, {});
  REQUIRE_FALSE(entries.ok());
  CHECK(contains(messages(entries.diagnostics), "'strategy.sharding' = 'zero3' has no form in key 'a'"));
}

TEST_CASE("codegen: every embedded table is well formed") {
  int tables = 0;
  for (const auto& file : embedded_templates().files) {
    const bool table = contains(file.first, "/keys.yaml") || contains(file.first, "directives.yaml");
    if (!table) continue;
    const Result<KeyTable> parsed = parse_key_table(file.second, file.first);
    INFO(file.first << "\n" << messages(parsed.diagnostics));
    CHECK(parsed.ok());
    ++tables;
  }
  CHECK(tables >= 5);
}

TEST_CASE("codegen: a broken target names its file") {
  EmitOptions options;
  options.templates = with_file("native/launch.sh.mustache",
                                "#!/bin/bash\n{{&header}}\n{{#single_node}}{{/single_node}}{{#several_nodes}}{{/several_nodes}}");
  const Result<Artifacts> unused = emit(cluster_plan(), "native", options);
  REQUIRE_FALSE(unused.ok());
  CHECK(contains(messages(unused.diagnostics), "value 'nodes' has no place"));
  CHECK(unused.diagnostics[0].location.file == "templates/native/launch.sh.mustache");
  options.templates =
      with_file("native/target.yaml", "version: 1\ndescribes: d\nproof: run\nfiles:\n  - {output: ../x, plan: true}\n");
  CHECK(contains(messages(emit(cluster_plan(), "native", options).diagnostics), "not a path inside"));
  options.templates = with_file("native/target.yaml", "version: 1\ndescribes: d\nproof: hope\nfiles: []\n");
  CHECK(contains(messages(emit(cluster_plan(), "native", options).diagnostics), "unknown proof 'hope'"));
}
