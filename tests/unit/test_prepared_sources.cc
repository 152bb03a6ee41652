// Sources of a run become a prepared set: once for the same, another one for each thing that makes them other token ids.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/value_yaml.h"
#include "cli/settings/prepared_sources.h"
#include "data/prepared_set.h"
#include "planner/spec/data_source.h"
#include "planner/spec/spec_text.h"
#include "support/temporary_directory.h"

using namespace distsetup;

namespace {

namespace fs = std::filesystem;

constexpr const char* kRows =
    "{\"ask\": \"what is 2 + 2\", \"say\": \"4 it is\"}\n{\"ask\": \"what is 3 + 3\", \"say\": \"6 it is\"}\n"
    "{\"ask\": \"what is 4 + 4\", \"say\": \"8 it is\"}\n";

struct SourcesFolder {
  TemporaryDirectory folder;
  SourcesFolder() {
    folder.write("rows.jsonl", kRows);
    folder.write("more/text.txt", "a text of its own\n");
    const std::string tokenizers = std::string(std::getenv("DISTSETUP_SOURCE")) + "/tests/data/tokenizers/";
    for (const char* name : {"bytes_of_words", "bytes_with_prefix"})
      folder.write(std::string(name) + "/tokenizer.json", *read_file(tokenizers + name + "/tokenizer.json"));
    folder.write("plain.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
  }
  Result<Spec> prepared(const std::string& data) const {
    folder.write("run.yaml", "version: 1\ndata: " + data);
    const Result<Value> value = parse_yaml(*read_file(folder.path("run.yaml")), folder.path("run.yaml"));
    REQUIRE(value.ok());
    const Result<Spec> spec = spec_from_value(*value);
    if (!spec.ok()) return spec.diagnostics;
    return with_prepared_sources({}, {}, *spec);
  }
  std::string set_of(const std::string& data) const {
    const Result<Spec> spec = prepared(data);
    INFO(data << "\n" << format_diagnostics(spec.diagnostics));
    REQUIRE(spec.ok());
    REQUIRE(spec->list("data.paths").has_value());
    CHECK(spec->find("data.sources") == nullptr);
    return spec->list("data.paths")->front();
  }
};

std::string data_of(const std::string& sources, const std::string& rest = "tokenizer: bytes_of_words, held_out: 0, cache: kept") {
  return "{sources: " + sources + ", " + rest + "}";
}
const std::string kRowsNamed = "[{path: rows.jsonl, fields: {prompt: ask, completion: say}}]";

}  // namespace

TEST_CASE("sources: the same ones are made into token ids once") {
  const SourcesFolder place;
  const std::string first = place.set_of(data_of(kRowsNamed));
  CHECK(first.starts_with(place.folder.path("kept/sets/")));
  CHECK(read_set_description(first)->training.samples == 3);
  const auto made = fs::last_write_time(first + "/dataset.json");
  CHECK(place.set_of(data_of(kRowsNamed)) == first);
  CHECK(fs::last_write_time(first + "/dataset.json") == made);
  CHECK(place.set_of(data_of("[rows.jsonl]",
                             "fields: [prompt=ask, completion=say], tokenizer: bytes_of_words, held_out: 0, "
                             "cache: kept")) == first);
}

TEST_CASE("sources: what makes other token ids makes another set") {
  const SourcesFolder place;
  const std::string rest = ", tokenizer: bytes_of_words, held_out: 0, cache: kept";
  std::set<std::string> sets;
  for (const std::string& data :
       {data_of(kRowsNamed), data_of("[{path: rows.jsonl, fields: {text: ask}}]"), data_of("[{path: more}]"),
        data_of("[{path: rows.jsonl, fields: {text: ask}}, more]"),
        "{sources: [{path: rows.jsonl, fields: {text: ask}}, more], weights: [1, 3]" + rest + "}",
        "{sources: [{path: rows.jsonl, fields: {text: ask}}, more], weights: [3, 1]" + rest + "}",
        "{sources: [{path: rows.jsonl, fields: {instruction: ask, output: say}}], template: plain.jinja" + rest + "}",
        data_of(kRowsNamed, "tokenizer: bytes_with_prefix, held_out: 0, cache: kept"),
        data_of(kRowsNamed, "tokenizer: bytes_of_words, held_out: 2, cache: kept"),
        "{sources: " + kRowsNamed + ", prompt_format: 'Q: {}'" + rest + "}",
        "{sources: " + kRowsNamed + ", prompt_format: 'Q: {}!'" + rest + "}", data_of("[{path: more, format: text}]")}) {
    CAPTURE(data);
    CHECK(sets.insert(place.set_of(data)).second);
  }
  const std::string before = place.set_of(data_of(kRowsNamed));
  place.folder.write("rows.jsonl", std::string(kRows) + kRows);
  CHECK(place.set_of(data_of(kRowsNamed)) != before);
}

TEST_CASE("sources: what cannot be is refused at its place") {
  const SourcesFolder place;
  const auto refused = [&place](const std::string& data, const std::string& words) {
    const Result<Spec> spec = place.prepared(data);
    const std::string said = format_diagnostics(spec.diagnostics);
    CAPTURE(data, said);
    CHECK(!spec.ok());
    CHECK(said.find(words) != std::string::npos);
  };
  refused("{sources: []}", "data.sources is empty");
  refused("{sources: [{weight: 1}]}", "path");
  refused("{sources: [{path: a, weight: -1}]}", "weight is -1, expected a number above 0");
  refused("{sources: [{path: a, wieght: 1}]}", "unknown key 'wieght'");
  refused("{sources: [{path: a, format: xml}]}", "format is 'xml'");
  refused("{sources: [{path: rows.jsonl, weight: 1}, more], tokenizer: bytes_of_words}", "1 of 2 sources have a weight");
  refused("{sources: [rows.jsonl, more], weights: [1], tokenizer: bytes_of_words}", "1 numbers for 2 sources");
  refused("{sources: [rows.jsonl]}", "no tokenizer is named");
  refused("{sources: [rows.jsonl], paths: [more], tokenizer: bytes_of_words}", "data.sources and data.paths");
  refused("{sources: [missing.jsonl], tokenizer: bytes_of_words, cache: kept}", "missing.jsonl");
  refused("{sources: [rows.jsonl], prompt_format: 'Q:', tokenizer: bytes_of_words}", "the prompt format 'Q:' has no {}");
  refused("{prompt_format: 'Q: {}'}", "data.prompt_format is given without data.sources");
  refused("{synthetic: 10, sources: [rows.jsonl], tokenizer: bytes_of_words}", "data.synthetic and data.sources are given");
  refused("{synthetic: 10, paths: [more]}", "data.synthetic and data.paths are given");
  refused("{synthetic: 10, fields: [a=b]}", "data.fields is given without data.sources");
  refused("{sources: [org/nothing], tokenizer: bytes_of_words, cache: kept}", "hf download --repo-type dataset org/nothing");
  refused("{fields: [a=b]}", "data.fields is given without data.sources");
  refused("{paths: [more], tokenizer: bytes_of_words}", "a tokenizer is named");
}

TEST_CASE("sources: written as a run file they are read back") {
  const Result<Value> value = parse_yaml("[a.jsonl, {path: 'b \"c\".csv', weight: 0.5, fields: {text: x}}]", "run.yaml");
  REQUIRE(value.ok());
  Spec spec;
  const Result<Setting> setting = sources_setting(*value);
  REQUIRE(setting.ok());
  spec.settings["data.sources"] = *setting;
  const Result<Value> again = parse_yaml(to_yaml(spec), "run.yaml");
  REQUIRE(again.ok());
  const Result<Spec> read = spec_from_value(*again);
  INFO(to_yaml(spec));
  REQUIRE(read.ok());
  CHECK(read->list("data.sources") == spec.list("data.sources"));
}

TEST_CASE("sources: as a text they are paths, or a list in brackets") {
  const auto items = [](const std::string& text) {
    const Result<Setting> setting = sources_setting(text, {});
    REQUIRE(setting.ok());
    return std::get<std::vector<std::string>>(setting->value);
  };
  CHECK(items("a.jsonl,b") == std::vector<std::string>{"a.jsonl", "b"});
  CHECK(items("[a.jsonl, {path: b, subset: s, weight: 2}]").size() == 2);
  const Result<DataSource> source = source_of(items("[{path: o/b, subset: s, weight: 2}]")[0], {});
  REQUIRE(source.ok());
  CHECK(source->path == "o/b");
  CHECK(source->subset == "s");
  CHECK(source->weight == 2);
  CHECK_FALSE(sources_setting("[{weight: 2}]", {}).ok());
}

TEST_CASE("synthetic data: random ids of the model's vocabulary, once for the same") {
  const SourcesFolder place;
  const Result<Value> value = parse_yaml(
      "{version: 1, model: {name: tiny, hidden: 8, num_layers: 1, num_heads: 1, feed_forward: 16, vocabulary: 100}, "
      "train: {sequence_length: 12}, data: {synthetic: 30, held_out: 6, cache: " +
          place.folder.path("kept") + "}}",
      "run.yaml");
  REQUIRE(value.ok());
  const Result<Spec> spec = spec_from_value(*value);
  INFO(format_diagnostics(spec.diagnostics));
  REQUIRE(spec.ok());
  const Result<Spec> run = with_prepared_sources({}, {}, *spec), again = with_prepared_sources({}, {}, *spec);
  INFO(format_diagnostics(run.diagnostics));
  REQUIRE(run.ok());
  CHECK(run->find("data.synthetic") == nullptr);
  const std::string folder = run->list("data.paths")->front();
  CHECK(again->list("data.paths")->front() == folder);
  const Result<SetDescription> set = read_set_description(folder);
  REQUIRE(set.ok());
  CHECK(set->training.samples == 25);
  CHECK(set->held_out.samples == 5);
  CHECK(set->vocabulary_size == 100);
  const Result<PreparedSplit> split = PreparedSplit::open(folder, SetSplit::kTraining);
  REQUIRE(split.ok());
  std::set<uint32_t> ids;
  for (int64_t i = 0; i < split->size(); ++i) {
    CHECK(split->tokens(i).size() == 13);
    ids.insert(split->tokens(i).begin(), split->tokens(i).end());
  }
  CHECK(*ids.rbegin() < 100);
  CHECK(ids.size() > 80);
}
