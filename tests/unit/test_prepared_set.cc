// Prepared data sets: what is written is read, broken ones are refused, rows become what their keys say, and of each the right tokens
// are trained.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "data/prepared_set.h"
#include "data/set_writer.h"
#include "data/source_rows.h"
#include "planner/resolve/data_scan.h"
#include "support/temporary_directory.h"
#include "text/prepare/prepare.h"
#include "text/tokenizer/read_tokenizer.h"

using namespace distsetup;

namespace {

namespace fs = std::filesystem;

SetDescription write_small_set(const std::string& folder) {
  Result<SetWriter> writer = SetWriter::create(folder);
  REQUIRE(writer.ok());
  CHECK(writer->add({{5, 6, 7}, {{0, 3}}, TooLong::kContinues, 0}, SetSplit::kTraining).empty());
  CHECK(writer->add({{1, 2, 3, 4, 5, 6}, {{1, 2}, {4, 6}}, TooLong::kIsCut, 0}, SetSplit::kTraining).empty());
  CHECK(writer->add({{9, 8}, {{1, 2}}, TooLong::kIsCut, 0}, SetSplit::kHeldOut).empty());
  SetDescription d;
  d.tokenizer = "tokenizer.json";
  d.vocabulary_size = 10;
  d.sources = {{"a.jsonl", "00", "jsonl text", 4, {{"it is not JSON", 1}}}};
  Result<SetDescription> set = writer->finish(d);
  REQUIRE(set.ok());
  return *set;
}

nlohmann::ordered_json json(const char* text) { return nlohmann::ordered_json::parse(text); }

Tokenizer tokenizer_with_end(const TemporaryDirectory& folder) {
  const std::string from = std::string(std::getenv("DISTSETUP_SOURCE")) + "/tests/data/tokenizers/bytes_of_words/tokenizer.json";
  const Result<std::string> text = read_file(from);
  REQUIRE(text.ok());
  folder.write("tokenizer.json", *text);
  folder.write("tokenizer_config.json", R"({"eos_token": "<|go|>"})");
  Result<Tokenizer> tokenizer = read_tokenizer(folder.path());
  INFO(format_diagnostics(tokenizer.diagnostics));
  REQUIRE(tokenizer.ok());
  REQUIRE(tokenizer->eos);
  return std::move(*tokenizer);
}

PrepareSource one_file(const std::string& path) { return {path, {path}, 0, {}}; }

// The text of what is trained of sample i.
std::string trained(const Tokenizer& tokenizer, const PreparedSplit& split, int64_t i) {
  std::string text;
  for (const TrainedSpan& s : split.spans(i)) {
    const auto ids = split.tokens(i);
    text += *decode(tokenizer, {ids.begin() + s.begin, ids.begin() + s.end}, SkipSpecials::kNo);
  }
  return text;
}

}  // namespace

TEST_CASE("prepared sets: what is written is read") {
  const TemporaryDirectory folder;
  const SetDescription written = write_small_set(folder.path("set"));
  CHECK(written.training.samples == 2);
  CHECK(written.training.tokens == 9);
  CHECK(written.training.trained_tokens == 2 + 3);  // the first token of a text is nobody's target
  CHECK(written.held_out.samples == 1);
  CHECK(written.longest == 6);
  CHECK(written.lengths == std::vector<int64_t>{0, 1, 1, 1});
  const Result<SetDescription> read = read_set_description(folder.path("set"));
  REQUIRE(read.ok());
  CHECK(read->sources[0].dropped == written.sources[0].dropped);
  CHECK(read->training.trained_tokens == 5);
  CHECK(read->files.size() == 6);
  const Result<PreparedSplit> split = PreparedSplit::open(folder.path("set"), SetSplit::kTraining);
  REQUIRE(split.ok());
  REQUIRE(split->size() == 2);
  CHECK(std::vector<uint32_t>(split->tokens(1).begin(), split->tokens(1).end()) == std::vector<uint32_t>{1, 2, 3, 4, 5, 6});
  CHECK(std::vector<TrainedSpan>(split->spans(1).begin(), split->spans(1).end()) == std::vector<TrainedSpan>{{1, 2}, {4, 6}});
  CHECK(split->sample(1).too_long == TooLong::kIsCut);
  CHECK(num_trained(split->spans(1), 0, 3) == 1);  // targets 1, 2, 3
  CHECK(num_trained(split->spans(1), 3, 5) == 2);
}

TEST_CASE("prepared sets: a folder that exists is kept, an unfinished set leaves nothing") {
  const TemporaryDirectory folder;
  folder.write("set/mine.txt", "mine");
  CHECK_FALSE(SetWriter::create(folder.path("set")).ok());
  { const Result<SetWriter> unfinished = SetWriter::create(folder.path("other")); }
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("prepared sets: broken ones are refused, and say where") {
  const TemporaryDirectory folder;
  write_small_set(folder.path("set"));
  const auto first_message = [&] {
    const Result<PreparedSplit> split = PreparedSplit::open(folder.path("set"), SetSplit::kTraining);
    return split.ok() ? std::string() : split.diagnostics.front().message;
  };
  CHECK(first_message().empty());
  fs::resize_file(folder.path("set/training.tokens"), 32);
  CHECK(first_message() == "sample 1 of the training split: its tokens reach beyond their file");
  fs::resize_file(folder.path("set/training.tokens"), 31);
  CHECK(first_message() == "31 bytes are no multiple of 4");
  fs::remove(folder.path("set/training.spans"));
  fs::resize_file(folder.path("set/training.tokens"), 36);
  CHECK(first_message() == "cannot open: no such file or directory");
  for (const char* text : {"", "[]", "{}", R"({"format": "distsetup data set", "version": 2})", R"({"format": 1, "version": 1})",
                           R"({"format": "distsetup data set", "version": 1, "tokenizer": []})"}) {
    folder.write("set/dataset.json", text);
    INFO(text);
    CHECK_FALSE(read_set_description(folder.path("set")).ok());
  }
}

TEST_CASE("source rows: keys say what a row is") {
  const RowOptions plain;
  CHECK(row_of(json(R"({"text": "a"})"), plain).row.text == "a");
  const RowOrReason completion = row_of(json(R"({"prompt": "p", "completion": "c"})"), plain);
  CHECK(completion.row.kind == SourceRow::Kind::kPromptCompletion);
  CHECK(completion.row.completion == "c");
  const RowOrReason share =
      row_of(json(R"({"system": "s", "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})"), plain);
  CHECK(share.row.chat.dump() ==
        R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})");
  const RowOrReason alpaca = row_of(json(R"({"instruction": "i", "input": "x", "output": "o"})"), plain);
  CHECK(alpaca.row.chat["messages"][0]["content"] == "i\n\nx");
  const RowOrReason history = row_of(
      json(R"({"system": "s", "instruction": "i", "input": "", "output": "o", "history": [["q", "a"]], "tools": [{"name": "f"}]})"),
      plain);
  CHECK(history.kind == "alpaca");
  CHECK(history.row.chat["messages"].dump() ==
        R"([{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"assistant","content":"a"},)"
        R"({"role":"user","content":"i"},{"role":"assistant","content":"o"}])");
  CHECK(history.row.left_out.empty());
  CHECK(history.row.chat.contains("tools"));
  CHECK(row_of(json(R"({"instruction": "i", "output": "o", "history": "h"})"), plain).reason == "its history is no list");
  const auto with_system = json(R"({"system": "s", "prompt": "p", "completion": "c"})");
  CHECK(row_of(with_system, plain).row.chat["messages"].dump() ==
        R"([{"role":"system","content":"s"},{"role":"user","content":"p"},{"role":"assistant","content":"c"}])");
  CHECK(row_of(with_system, {{}, "", PromptFormat{"Q: ", "A: "}}).reason.starts_with("it has a system message"));
  CHECK(row_of(json(R"({"system": "", "prompt": "p", "completion": "c"})"), plain).row.kind == SourceRow::Kind::kPromptCompletion);
  const RowOrReason tools = row_of(json(R"({"messages": [{"role": "user", "content": null}], "tools": [{"name": "f"}]})"), plain);
  CHECK(tools.row.chat.contains("tools"));
  const RowOrReason call = row_of(json(R"({"tools": "[{\"name\": \"f\"}]", "conversations": [{"from": "human", "value": "q"},
      {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {}}"}, {"from": "observation", "value": "1"}]})"),
                                  plain);
  CHECK(call.row.chat["tools"][0]["name"] == "f");
  CHECK(call.row.chat["messages"][1]["tool_calls"][0]["function"]["name"] == "f");
  CHECK(call.row.chat["messages"][2]["role"] == "tool");
  const RowOrReason parts = row_of(
      json(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "value": "b"}]}]})"), plain);
  CHECK(parts.row.chat["messages"][0]["content"] == "ab");
  CHECK(row_of(json(R"({"text": null, "a": 1})"), plain).reason.ends_with("its keys: 'text' (null), 'a'"));
  const RowOrReason renamed = row_of(json(R"({"content": "a"})"), {{{"text", "content"}}, "", {}});
  CHECK(renamed.row.text == "a");
  for (const char* text : {R"({})", R"({"text": 1})", R"({"text": null})", R"({"messages": []})", R"({"messages": [1]})",
                           R"({"messages": [{"content": "x"}]})", R"({"prompt": 1, "completion": "c"})",
                           R"({"prompt": "p", "completion": "c", "label": false})", R"({"text": "t", "images": ["i.png"]})",
                           R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})",
                           R"({"conversations": [{"from": "function_call", "value": "f of x"}]
})",
                           R"({"instruction": "i", "output": 2})"}) {
    INFO(text);
    CHECK_FALSE(row_of(json(text), plain).reason.empty());
  }
}

TEST_CASE("prepare: messages that say so are not trained, sources have weights") {
  const TemporaryDirectory folder;
  const Tokenizer tokenizer = tokenizer_with_end(folder);
  const std::string marked =
      "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}"
      "{{ m.content }}{% endif %} {% endfor %}";
  const std::string plain = "{% for m in messages %}{{ m.content }} {% endfor %}";
  folder.write(
      "a.jsonl",
      R"({"messages": [{"role": "user", "content": "a plan"}, {"role": "assistant", "content": "that fits", "weight": 0}, {"role": "user", "content": "more"}, {"role": "assistant", "content": "done"}]}
{"messages": [{"role": "user", "content": "a plan"}, {"role": "assistant", "content": "that fits", "train": false}]}
)");
  folder.write("b.jsonl", "{\"text\": \"the reader\"}\n");
  folder.write("empty.jsonl", "{\"nothing\": \"known\"}\n");
  for (const std::string& text : {marked, plain}) {
    folder.write("chat.jinja", text);
    const Result<ModelTemplate> chat = read_chat_template(folder.path("chat.jinja"));
    REQUIRE(chat.ok());
    PrepareRequest request;
    request.sources = {{"a", {folder.path("a.jsonl")}, 3, {}}, {"b", {folder.path("b.jsonl")}, 1, {}}};
    request.tokenizer = &tokenizer;
    request.chat = &*chat;
    request.output = folder.path(text == marked ? "marked" : "plain");
    request.held_out_every = 0;
    const Result<Prepared> prepared = prepare(request);
    INFO(format_diagnostics(prepared.diagnostics));
    REQUIRE(prepared.ok());
    CHECK(prepared->set.sources[0].dropped == std::map<std::string, int64_t>{{"no message of it is to be trained", 1}});
    const Result<PreparedSplit> split = PreparedSplit::open(request.output, SetSplit::kTraining);
    REQUIRE(split.ok());
    CHECK(trained(tokenizer, *split, 0).find("done") != std::string::npos);
    CHECK(trained(tokenizer, *split, 0).find("fits") == std::string::npos);
    const Result<SetDescription> read = read_set_description(request.output);
    REQUIRE(read.ok());
    REQUIRE(read->mixture.size() == 2);
    CHECK(read->mixture[0].weight == 3);
    request.sources[1] = {"empty", {folder.path("empty.jsonl")}, 1, {}};
    request.output = folder.path("none");
    const Result<Prepared> none = prepare(request);
    REQUIRE_FALSE(none.ok());
    CHECK(none.diagnostics.back().message == "it has a weight of 1 in the mixture, and nothing of it can be trained on");
  }
}

TEST_CASE("prepare: of each kind of row the right tokens are trained") {
  const TemporaryDirectory folder;
  const Tokenizer tokenizer = tokenizer_with_end(folder);
  folder.write("chat.jinja",
               "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
               "{% else %}{{ m.content }}{% endif %}\n{% endfor %}");
  const Result<ModelTemplate> chat = read_chat_template(folder.path("chat.jinja"));
  REQUIRE(chat.ok());
  folder.write("rows.jsonl", R"({"text": "a plan that fits"}
{"prompt": "the plan ", "completion": "that fits"}
{"messages": [{"role": "user", "content": "a plan"}, {"role": "assistant", "content": "that fits"}, {"role": "user", "content": "more"}, {"role": "assistant", "content": "done"}]}
no json
{"messages": [{"role": "user", "content": "alone"}]}
)");
  PrepareRequest request;
  request.sources = {one_file(folder.path("rows.jsonl"))};
  request.tokenizer = &tokenizer;
  request.output = folder.path("set");
  request.held_out_every = 0;
  CHECK_FALSE(prepare(request).ok());  // a conversation, and no template
  CHECK_FALSE(fs::exists(folder.path("set")));
  request.sources = {one_file(folder.path("chat.jinja")), one_file(folder.path("missing.jsonl"))};
  CHECK_FALSE(prepare(request).ok());
  request.sources = {};
  const Result<Prepared> nothing = prepare(request);
  REQUIRE_FALSE(nothing.ok());
  CHECK(nothing.diagnostics.front().message == "nothing to train on: the sources have no rows");
  CHECK_FALSE(fs::exists(folder.path("set")));
  request.sources = {one_file(folder.path("rows.jsonl"))};
  request.chat = &*chat;
  const Result<Prepared> prepared = prepare(request);
  INFO(format_diagnostics(prepared.diagnostics));
  REQUIRE(prepared.ok());
  CHECK(prepared->set.training.samples == 3);
  CHECK(prepared->set.sources[0].rows == 5);
  REQUIRE(prepared->notes.size() == 2);
  CHECK(prepared->notes[0].location.line == 4);
  const Result<PreparedSplit> split = PreparedSplit::open(folder.path("set"), SetSplit::kTraining);
  REQUIRE(split.ok());
  CHECK(trained(tokenizer, *split, 0) == "<s>a plan that fits<|go|>");
  // The token " that" has a byte of the prompt's, and is the first that reaches into the completion.
  CHECK(trained(tokenizer, *split, 1) == " that fits<|go|>");
  CHECK(trained(tokenizer, *split, 2) == "that fitsdone");
  const Result<DataPlan> data = scan_data({"set"}, folder.path(), 20);
  REQUIRE(data.ok());
  CHECK(data->tokenizer == kPreparedTokens);
  CHECK(train_tokens(*data) == prepared->set.training.tokens);
  CHECK_FALSE(scan_data({"set", "rows.jsonl"}, folder.path(), 20).ok());
  fs::resize_file(folder.path("set/training.tokens"), 4);
  CHECK_FALSE(scan_data({"set"}, folder.path(), 20).ok());
}

TEST_CASE("prepare: the set and what is said of it do not depend on how many threads there are") {
  const TemporaryDirectory folder;
  const Tokenizer tokenizer = tokenizer_with_end(folder);
  std::string rows;
  for (int i = 0; i < 1500; ++i) {
    const std::string words(static_cast<size_t>(1 + i * 7 % 90), 'a');
    rows += i % 11 == 3   ? std::string("{\"other\": 1}\n")
            : i % 13 == 5 ? std::string("{\"prompt\": \"p\", \"completion\": \"\"}\n")
                          : "{\"text\": \"the plan " + words + "\"}\n";
  }
  folder.write("rows.jsonl", rows);
  std::map<std::string, int64_t> dropped;
  std::string digests;
  for (const int threads : {1, 2, 7}) {
    INFO(threads << " threads");
    PrepareRequest request;
    request.sources = {{"rows", {folder.path("rows.jsonl")}, 0, {}}};
    request.tokenizer = &tokenizer;
    request.output = folder.path(std::to_string(threads));
    request.num_threads = threads;
    const Result<Prepared> prepared = prepare(request);
    REQUIRE(prepared.ok());
    const SetSource& source = prepared->set.sources[0];
    std::string files;
    for (const auto& file : prepared->set.files) files += file.sha256 + "\n";
    if (threads == 1) dropped = source.dropped, digests = files;
    CHECK(source.rows == 1500);
    CHECK(source.dropped == dropped);
    CHECK(source.dropped.at("its completion is empty") == 105);
    CHECK(files == digests);
  }
  // Of two errors the earlier one is said, however the rows are handed out.
  folder.write("chats.jsonl",
               "{\"text\": \"a\"}\n{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}\n"
               "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n");
  PrepareRequest request;
  request.sources = {{"chats", {folder.path("chats.jsonl")}, 0, {}}};
  request.tokenizer = &tokenizer;
  request.output = folder.path("chats");
  const Result<Prepared> refused = prepare(request);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.diagnostics.back().message == "this row is a conversation, and there is no chat template");
  CHECK(refused.diagnostics.back().location.line == 2);
}
