// TOML, argument lists and tables that include tables: what the walk writes of them.
#include <catch2/catch.hpp>
#include <map>

#include "base/diagnostic_codes.h"
#include "base/value.h"
#include "base/value_yaml.h"
#include "codegen/shell/quote.h"
#include "codegen/tables/entry_text.h"
#include "codegen/tables/key_table.h"
#include "codegen/tables/key_walk.h"
#include "codegen/tables/load_table.h"
#include "codegen/tables/target.h"
#include "support/emitted.h"

using namespace distsetup;

namespace {

Result<KeyTable> table_of(const std::string& format, const std::string& rows) {
  return parse_key_table("version: 1\nformat: " + format + "\ntool: t\nsource: s\nkeys:\n" + rows, "keys.yaml");
}

std::string written(const std::string& format, const std::string& rows, const Fields& fields = no_fields()) {
  const Result<KeyTable> table = table_of(format, rows);
  INFO(messages(table.diagnostics));
  REQUIRE(table.ok());
  const Result<Entries> entries = walk_keys(*table, fields, {});
  INFO(messages(entries.diagnostics));
  REQUIRE(entries.ok());
  return write_entries(*entries, table->format);
}

// Two tables of which the second includes the first under a section, while the plan says zero3.
TemplateSet two_tables(const std::string& include) {
  const std::string head = "version: 1\nformat: json\ntool: t\nsource: s\nkeys:\n";
  TemplateSet set;
  set.files = {
      {"inner/keys.yaml", head + "  - {key: a, type: int, value: 1}\nrules:\n  - {when: {mesh.pp: 2}, message: inner has no pp}\n"},
      {"outer/keys.yaml", head + "  - {key: b, type: int, value: 2}\n" + include}};
  return set;
}

Fields plan_fields(const std::string& sharding, int pp) {
  Fields fields = no_fields();
  set_field(fields, "strategy.sharding", sharding);
  set_field(fields, "mesh.pp", pp);
  return fields;
}

}  // namespace

TEST_CASE("codegen: TOML writes bare values in front of tables and exact types") {
  CHECK(written("toml",
                "  - {key: a.b, type: text, value: 'x \"y\"'}\n"
                "  - {key: top, type: int, value: 3}\n"
                "  - {key: a.c.d, type: number, value: 1e-8}\n"
                "  - {key: a.e, type: bool, value: true}\n"
                "  - {key: a.l, type: text_list, value: [p, q]}\n"
                "  - {key: z.m, type: int_list, value: [2, 8]}\n") ==
        "top = 3\n\n[a]\nb = \"x \\\"y\\\"\"\ne = true\nl = [\"p\", \"q\"]\n\n[a.c]\nd = 1.0e-08\n\n[z]\nm = [2, 8]\n");
  CHECK(quote_toml("a\n\x01\x7f") == "\"a\\n\\u0001\\u007f\"");
}

TEST_CASE("codegen: YAML writes small numbers so that YAML 1.1 reads numbers") {
  CHECK(written("yaml", "  - {key: a, type: number, value: 1e-8}\n  - {key: b, type: number, value: 0.5}\n") ==
        "a: 1.0e-08\nb: 0.5\n");
}

TEST_CASE("codegen: arguments are quoted words and booleans are flags") {
  CHECK(written("arguments",
                "  - {key: ds.stage, type: int, value: 3}\n"
                "  - {key: fast, type: bool, value: true}\n"
                "  - {key: slow, type: bool, value: false}\n"
                "  - {key: path, type: text, value: \"it's $x\"}\n"
                "  - {key: list, type: text_list, value: [a, 'b c']}\n") ==
        "  --ds.stage 3\n  --fast\n  --path 'it'\\''s $x'\n  --list a 'b c'\n");
}

TEST_CASE("codegen: text that YAML readers stop at or break lines at is escaped and a comment stays one line") {
  const std::string awkward[] = {"a\x7f",
                                 "a\u0085"
                                 "b",
                                 "a\u2028key: value",
                                 "\u2029",
                                 "\ufeff"
                                 "bom",
                                 "a\nb\u2028",
                                 "\u009f'\"\\"};
  for (const std::string& text : awkward) {
    const std::string quoted = quote_yaml(text);
    CAPTURE(text, quoted);
    for (const char* raw : {"\x7f", "\u0085", "\u2028", "\u2029", "\ufeff", "\u009f", "\n"}) {
      CHECK(quoted.find(raw) == std::string::npos);
      CHECK(comment_text(text).find(raw) == std::string::npos);
    }
    const Result<Value> read = parse_yaml("key: " + quoted + "\n", "t.yaml");
    REQUIRE(read.ok());
    CHECK(read->find("key")->text == text);
  }
  CHECK(quote_yaml("日本 🙂") == "'日本 🙂'");  // the rest stays readable
  CHECK(comment_text("日本 🙂") == "日本 🙂");
}

TEST_CASE("codegen: a file of text refuses bytes that are no UTF-8 and a script takes them") {
  Plan plan = cluster_plan();
  plan.checkpoint.directory = "a\xff";
  for (const auto& [target, is_taken] :
       std::map<std::string, bool>{{"megatron-bridge", false}, {"torchtitan-0.2", false}, {"ssh", true}}) {
    const Result<Artifacts> written = emit(plan, target);
    CAPTURE(target, messages(written.diagnostics));
    CHECK(written.ok() == is_taken);
    if (!is_taken) CHECK(contains(messages(written.diagnostics), "no UTF-8 text"));
  }
}

TEST_CASE("codegen: an included table writes under its section and brings its rules") {
  const TemplateSet set = two_tables("  - {key: s, table: inner/keys.yaml, when: {strategy.sharding: zero3}}\n");
  const auto table = load_key_table(set, "outer/keys.yaml", {});
  INFO(messages(table.diagnostics));
  REQUIRE(table.ok());
  const Result<Entries> with = walk_keys(**table, plan_fields("zero3", 1), {});
  REQUIRE(with.ok());
  CHECK(*with == Entries{{"b", 2}, {"s.a", 1}});
  const Result<Entries> without = walk_keys(**table, plan_fields("ddp", 2), {});
  REQUIRE(without.ok());
  CHECK(*without == Entries{{"b", 2}});
  const Result<Entries> refused = walk_keys(**table, plan_fields("zero3", 2), {});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.diagnostics[0].code == code::kNoForm);
  CHECK(contains(messages(refused.diagnostics), "inner has no pp"));
}

TEST_CASE("codegen: an included table without a section stands beside the others") {
  const auto table = load_key_table(two_tables("  - {table: inner/keys.yaml}\n"), "outer/keys.yaml", {});
  REQUIRE(table.ok());
  CHECK(*walk_keys(**table, plan_fields("ddp", 1), {}) == Entries{{"b", 2}, {"a", 1}});
}

TEST_CASE("codegen: an included table that is not there or is the table itself is an error") {
  const auto missing = load_key_table(two_tables("  - {table: iner/keys.yaml}\n"), "outer/keys.yaml", {});
  REQUIRE_FALSE(missing.ok());
  CHECK(contains(messages(missing.diagnostics), "did you mean 'inner/keys.yaml'"));
  const auto itself = load_key_table(two_tables("  - {table: outer/keys.yaml}\n"), "outer/keys.yaml", {});
  REQUIRE_FALSE(itself.ok());
  CHECK(contains(messages(itself.diagnostics), "includes itself"));
}

TEST_CASE("codegen: a target keeps what it has no form for out of the search") {
  const Result<TargetSearch> search = target_search(embedded_templates(), "deepspeed");
  REQUIRE(search.ok());
  CHECK(search->recomputes == std::vector<std::string>{"none", "full"});
  CHECK_FALSE(search->hybrid);
  CHECK(search->shardings.empty());
  CHECK(target_search(embedded_templates(), "native")->hybrid);
  // OpenRLHF's context parallelism is a ring, which DeepSpeed is not planned with.
  const std::vector<std::string> ring = {"ring"}, tensor = {"tp"};
  CHECK(target_search(embedded_templates(), "openrlhf", "deepspeed")->axes == tensor);
  CHECK(target_search(embedded_templates(), "openrlhf-flags", "deepspeed")->axes == tensor);
  CHECK(target_search(embedded_templates(), "openrlhf-flags", "fsdp2")->cp_methods == ring);
  CHECK_FALSE(target_search(embedded_templates(), "nothing").ok());
}

TEST_CASE("codegen: every trainer names the block of the model it wraps") {
  for (const auto& [layer, family] : {std::pair{"Qwen3DecoderLayer", "qwen3"}, std::pair{"MixtralDecoderLayer", "mixtral"}}) {
    Plan plan = cluster_plan();
    plan.model.layer_class = layer;
    plan.model.family = family;
    for (const auto& [target, path] : {std::pair{"accelerate-fsdp2", "accelerate.yaml"}, std::pair{"axolotl", "axolotl.yaml"},
                                       std::pair{"transformers", "training_arguments.json"}}) {
      const Result<Artifacts> emitted = emit(plan, target);
      INFO(target << "\n" << messages(emitted.diagnostics));
      REQUIRE(emitted.ok());
      CHECK(contains(file(*emitted, path), layer));
    }
  }
}
