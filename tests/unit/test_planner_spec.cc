// The table of settings and everything that reads it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "base/diagnostic_codes.h"
#include "base/value_yaml.h"
#include "plan/schedule_text.h"
#include "planner/resolve/refuse_not_native.h"
#include "planner/spec/spec.h"
#include "planner/spec/spec_lookup.h"
#include "planner/spec/spec_table.h"
#include "planner/spec/spec_text.h"

using namespace distsetup;

namespace {

Spec from_flags(const std::vector<std::pair<std::string, std::string>>& flags) {
  Spec spec;
  for (const auto& [flag, text] : flags) {
    const Diagnostics d = set_flag(spec, flag, std::string_view(text), {"command line", 0, 0});
    INFO(format_diagnostics(d));
    REQUIRE_FALSE(has_error(d));
  }
  return spec;
}

std::string code_of(std::string_view flag, std::string_view text) {
  Spec spec;
  const Diagnostics d = set_flag(spec, flag, text, {"command line", 0, 0});
  return d.empty() ? "" : d.front().code;
}

Result<Spec> from_yaml(const std::string& text) {
  const Result<Value> value = parse_yaml(text, "run.yaml");
  REQUIRE(value.ok());
  return spec_from_value(*value);
}

}  // namespace

TEST_CASE("a flag's spelling names one setting only") {
  std::set<std::string> seen;
  for (std::string spelling : spec_flag_names()) {
    std::replace(spelling.begin(), spelling.end(), '-', '_');
    INFO(spelling);
    CHECK(seen.insert(spelling).second);
  }
  std::set<std::string> paths, variables;
  for (const SpecKey& key : spec_keys()) {
    CHECK(paths.insert(std::string(key.path)).second);
    CHECK(variables.insert(key.env).second);
    CHECK_FALSE(key.help.empty());
    CHECK_FALSE(key.flags.empty());
  }
}

TEST_CASE("each spelling of a choice has one meaning") {
  for (const SpecKey& key : spec_keys()) {
    std::set<std::string> seen;
    for (const SettingChoice& c : key.choices) {
      CHECK(seen.insert(std::string(c.value)).second);
      for (const std::string_view a : c.aliases) CHECK(seen.insert(std::string(a)).second);
    }
    for (const AmbiguousChoice& a : key.ambiguous) CHECK(seen.insert(std::string(a.spelling)).second);
  }
}

TEST_CASE("a wrong value is told by the flag that was typed, and by its key where a file or the environment says it") {
  const auto said = [](const char* flag, const char* text, const char* file) {
    Spec spec;
    return set_flag(spec, flag, std::string_view(text), {file, 0, 0}).front().message;
  };
  CHECK(said("--nodes", "two", "command line") == "--nodes: found 'two', expected a whole number");
  CHECK(said("--num-nodes", "0", "command line") == "found '0' for --num-nodes, expected from 1 to 100000");
  CHECK(said("--nodes", "2:4", "command line").find("--nodes: '2:4' is an elastic range") == 0);
  CHECK(said("nodes", "two", "DISTSETUP_NODES") == "hardware.nodes: found 'two', expected a whole number");
}

TEST_CASE("sharding: every dialect's spelling") {
  const auto sharding = [](const std::string& text) {
    return from_flags({{"--sharding-strategy", text}}).text("parallel.sharding").value();
  };
  for (const char* text : {"FULL_SHARD", "full_shard", "fsdp", "ZERO3", "3"}) CHECK(sharding(text) == "zero3");
  for (const char* text : {"SHARD_GRAD_OP", "zero2", "2"}) CHECK(sharding(text) == "zero2");
  for (const char* text : {"NO_SHARD", "zero0", "0", "DDP"}) CHECK(sharding(text) == "ddp");
  CHECK(sharding("1") == "zero1");
  CHECK(sharding("HYBRID_SHARD") == "hybrid_shard");
  CHECK(from_flags({{"zero_stage", "3"}}).text("parallel.sharding") == "zero3");
  for (const char* text : {"zero", "deepspeed", "zpg", "shard"}) CHECK(code_of("sharding", text) == code::kAmbiguousSpelling);
  CHECK(code_of("sharding", "FULL_SHRD") == code::kUnknownValue);
}

TEST_CASE("recompute and precision: every dialect's spelling") {
  CHECK(from_flags({{"gradient_checkpointing", "true"}}).text("parallel.recompute") == "full");
  CHECK(from_flags({{"activation-checkpointing", "false"}}).text("parallel.recompute") == "none");
  CHECK(from_flags({{"recompute", "every_k:4"}}).text("parallel.recompute") == "every_k:4");
  CHECK(code_of("recompute", "every_k") == code::kUnknownValue);
  CHECK(code_of("recompute", "every_k:0") == code::kOutOfRange);
  for (const char* text : {"bf16", "BFLOAT16", "bf16-mixed", "true"})
    CHECK(from_flags({{"mixed-precision", text}}).text("precision.compute") == "bf16");
  for (const char* text : {"FULL", "32", "fp32", "no", "32-true"})
    CHECK(from_flags({{"precision", text}}).text("precision.compute") == "fp32");
  CHECK(code_of("precision", "16") == code::kAmbiguousSpelling);
  CHECK(code_of("precision", "half") == code::kAmbiguousSpelling);
}

TEST_CASE("regression 34: fp16 comes with a loss scale, fp8 is refused by name") {
  for (const char* text : {"fp16", "FP16", "16-mixed", "float16"}) {
    Spec spec;
    CHECK(set_flag(spec, "mixed_precision", std::string_view(text), {"command line", 0, 0}).empty());
    CHECK(spec.text("precision.compute") == "fp16");
    CHECK(refuse_not_native(spec).empty());
  }
  Spec eight;
  CHECK(set_flag(eight, "precision", std::string_view("fp8"), {"command line", 0, 0}).empty());
  const Diagnostics refused = refuse_not_native(eight);
  REQUIRE(refused.size() == 1);
  CHECK(refused.front().code == code::kUnsupportedFeature);
  Spec spec;
  CHECK(set_flag(spec, "--fp16", std::string_view("false"), {}).empty());
  CHECK(spec.settings.empty());
}

TEST_CASE("regression 12: an unknown value is an error, never a default") {
  for (const SpecKey& key : spec_keys()) {
    if (key.type != SettingType::kEnum) continue;
    INFO(key.path);
    CHECK(code_of(key.flags.front().name, "no_such_value") == code::kUnknownValue);
  }
}

TEST_CASE("a value of another setting is said to be one") {
  Spec spec;
  const auto help = [&](const char* flag, const char* text) { return set_flag(spec, flag, std::string_view(text), {}).front().help; };
  CHECK(help("--trainer", "zero3") == "it is a value of parallel.sharding: --sharding zero3");
  CHECK(help("--trainer", "fsdp") == "did you mean 'fsdp2'");
  CHECK(help("--trainer", "pytorch").starts_with("it is what all of them are made of"));
  CHECK(help("--trainer", "lightning").find("as its strategy says") != std::string::npos);
}

TEST_CASE("flags that stand alone, and those that need a value") {
  Spec spec;
  CHECK(set_flag(spec, "--bf16", std::nullopt, {}).empty());
  CHECK(spec.text("precision.compute") == "bf16");
  CHECK(set_flag(spec, "--offload_optimizer", std::nullopt, {}).empty());
  CHECK(spec.text("parallel.offload.optimizer") == "host");
  CHECK(set_flag(spec, "--nodes", std::nullopt, {}).front().code == code::kMissingArgument);
  CHECK(set_flag(spec, "--nodez", std::string_view("4"), {}).front().help == "did you mean '--nodes'");
  for (const char* flag : {"--cpu-offload", "--num-gpus"})
    CHECK(set_flag(spec, flag, std::string_view("1"), {}).front().code == code::kAmbiguousSpelling);
}

TEST_CASE("GPUs with a count") {
  for (const char* flag : {"--gpus", "--gpu"}) {
    const Spec spec = from_flags({{flag, "8xH100-80GB"}});
    CHECK(spec.integer("hardware.gpus_per_node") == 8);
    CHECK(spec.text("hardware.gpu") == "H100-80GB");
  }
  const Spec plain = from_flags({{"--gpus", "4"}});
  CHECK(plain.integer("hardware.gpus_per_node") == 4);
  CHECK(plain.find("hardware.gpu") == nullptr);
  CHECK(code_of("--gpus", "0") == code::kOutOfRange);
  CHECK(code_of("--gpus", "many") == code::kWrongType);
}

TEST_CASE("regression 40: 1e-6 is a number") {
  CHECK(from_flags({{"lr", "1e-6"}}).number("train.learning_rate") == 1e-6);
  const auto spec = from_yaml("version: 1\ntrain: {learning_rate: 1e-6, global_batch_tokens: 1e6}\n");
  REQUIRE(spec.ok());
  CHECK(spec->number("train.learning_rate") == 1e-6);
  CHECK(spec->integer("train.global_batch_tokens") == 1000000);
}

TEST_CASE("run.yaml: sections, places, an inline model") {
  const auto spec = from_yaml(
      "version: 1\nmodel: {num_layers: 2, hidden: 64}\nparallel:\n  micro-batch: 2\n  offload: {optimizer: none}\nlaunch: "
      "{time_limit: 48:00:00}\n"
      "data: {paths: [a.txt, docs]}\n");
  INFO(format_diagnostics(spec.diagnostics));
  REQUIRE(spec.ok());
  CHECK(spec->model.has_value());
  CHECK(spec->integer("parallel.micro_batch") == 2);
  CHECK(spec->at("parallel.micro_batch").line == 4);
  CHECK(spec->integer("launch.time_limit") == 172800);
  CHECK(spec->list("data.paths") == std::vector<std::string>{"a.txt", "docs"});
}

TEST_CASE("run.yaml: every mistake is told at once, with its place") {
  const auto spec = from_yaml(
      "version: 1\ntrain:\n  gradient_acumulation: 8\n  sequence_length: 010\nparallel: {sharding: zero4}\nlaunch: {time_limit: "
      "3600}\n");
  REQUIRE_FALSE(spec.ok());
  std::set<std::string> codes;
  for (const Diagnostic& d : spec.diagnostics) {
    codes.insert(d.code);
    CHECK(d.location.line > 0);
  }
  CHECK(codes == std::set<std::string>{code::kUnknownKey, code::kAmbiguousSpelling, code::kUnknownValue, code::kUnitMissing});
  CHECK(from_yaml("model: 8B\n").diagnostics.front().code == code::kMissingKey);
  CHECK(from_yaml("version: 2\n").diagnostics.front().code == code::kUnknownVersion);
  CHECK(from_yaml("version: 1\nprecision: {compute: no}\n").diagnostics.front().code == code::kAmbiguousSpelling);
  CHECK(from_yaml("version: 1\ntrain: {zero_stage: 3}\n").diagnostics.front().help == "in a file it is parallel.sharding");
}

TEST_CASE("regression 39: an absent flag overrides nothing, a given one wins") {
  const auto file = from_yaml("version: 1\nmodel: 8B\ntrain: {global_batch: 64, learning_rate: 2e-4}\nhardware: {nodes: 2}\n");
  REQUIRE(file.ok());
  const Spec none = merge(*file, Spec{});
  CHECK(canonical_text(none) == canonical_text(*file));
  const Spec some = merge(*file, from_flags({{"--lr", "1e-4"}, {"--global-batch-tokens", "1048576"}, {"--total-gpus", "8"}}));
  CHECK(some.number("train.learning_rate") == 1e-4);
  CHECK(some.text("model") == "8B");
  CHECK(some.find("train.global_batch") == nullptr);  // the flag says it in tokens
  CHECK(some.find("hardware.nodes") == nullptr);
}

TEST_CASE("a spec written as run.yaml reads back as the same spec") {
  const Spec spec = from_flags({{"model", "70B"},
                                {"gpus", "8xH100-80GB"},
                                {"nodes", "auto"},
                                {"sharding", "HYBRID_SHARD"},
                                {"lr", "3e-4"},
                                {"time-limit", "4h"},
                                {"data", "a.txt,b c"},
                                {"gpu-memory", "24GiB"},
                                {"reshard-after-forward", "false"}});
  const std::string text = to_yaml(spec);
  INFO(text);
  const auto again = from_yaml(text);
  INFO(format_diagnostics(again.diagnostics));
  REQUIRE(again.ok());
  CHECK(canonical_text(*again) == canonical_text(spec));
}
