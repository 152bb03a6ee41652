// Preference rows in all their shapes, and the two samples that a pair becomes.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "base/file.h"
#include "data/pair_rows.h"
#include "data/pieces.h"
#include "support/temporary_directory.h"
#include "text/prepare/prepare.h"
#include "text/tokenizer/read_tokenizer.h"

using namespace distsetup;

namespace {

RowOrReason pair_from(const char* text, RowOptions options = {}) { return row_of(nlohmann::ordered_json::parse(text), options); }
std::string chat_from(const char* text) {
  const RowOrReason row = pair_from(text);
  return row.reason.empty() && row.row.kind == SourceRow::Kind::kChatPair ? row.row.chat.dump() : "reason: " + row.reason;
}

}  // namespace

TEST_CASE("pair rows: texts") {
  const RowOrReason plain = pair_from(R"({"prompt": "2 + 2 = ", "chosen": "4", "rejected": "5"})");
  CHECK(plain.row.kind == SourceRow::Kind::kTextPair);
  CHECK(plain.row.prompt + "|" + plain.row.completion + "|" + plain.row.rejected == "2 + 2 = |4|5");
  const RowOrReason implicit = pair_from(R"({"chosen": "Human: hi Assistant: hello", "rejected": "Human: hi Assistant: no"})");
  CHECK(implicit.row.prompt + "|" + implicit.row.completion + "|" + implicit.row.rejected == "Human: hi Assistant:| hello| no");
  const RowOrReason renamed =
      pair_from(R"({"q": "a", "good": "b", "bad": "c"})", {{{"prompt", "q"}, {"chosen", "good"}, {"rejected", "bad"}}, "", {}});
  CHECK(renamed.row.completion == "b");
  CHECK(pair_from(R"({"question": "a", "chosen": "b", "rejected": "c"})").row.prompt == "a");
  CHECK(common_prompt("aä", "aö") == 1);  // both begin with the byte C3
  CHECK(common_prompt("a b", "a c") == 1);
}

TEST_CASE("pair rows: conversations") {
  const std::string expected =
      R"({"messages":[{"role":"user","content":"q"}],"chosen":[{"role":"assistant","content":"a"}],"rejected":[{"role":"assistant","content":"b"}]})";
  CHECK(chat_from(R"({"prompt": [{"role": "user", "content": "q"}], "chosen": [{"role": "assistant", "content": "a"}],
                      "rejected": [{"role": "assistant", "content": "b"}]})") == expected);
  CHECK(chat_from(R"({"prompt": "q", "chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
                      "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}]})") == expected);
  CHECK(chat_from(R"({"conversations": [{"from": "human", "value": "q"}], "chosen": {"from": "gpt", "value": "a"},
                      "rejected": {"from": "gpt", "value": "b"}})") == expected);
  CHECK(chat_from(R"({"instruction": "q", "input": "", "chosen": "a", "rejected": "b"})") == expected);
  CHECK(chat_from(R"({"instruction": "q", "output": ["a", "b"]})") == expected);
  CHECK(chat_from(R"({"input": {"messages": [{"role": "user", "content": "q"}]}, "preferred_output": [{"role": "assistant",
                      "content": "a"}], "non_preferred_output": [{"role": "assistant", "content": "b"}]})") == expected);
  CHECK(chat_from(R"({"prompt": "q", "chosen": [{"role": "assistant", "content": "a"}],
                      "rejected": [{"role": "assistant", "content": "b"}]})") == expected);
  CHECK(
      chat_from(R"({"instruction": "i", "input": "x", "system": "s", "history": [["u", "v"]], "chosen": "a", "rejected": "b"})") ==
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"assistant","content":"v"},)"
      R"({"role":"user","content":"i\n\nx"}],"chosen":[{"role":"assistant","content":"a"}],"rejected":[{"role":"assistant","content":"b"}]})");
  CHECK(
      chat_from(R"({"system": "s", "prompt": "q", "chosen": "a", "rejected": "b"})") ==
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"}],"chosen":[{"role":"assistant","content":"a"}],"rejected":[{"role":"assistant","content":"b"}]})");
}

TEST_CASE("pair rows: what is none is named") {
  const std::pair<const char*, const char*> rows[] = {
      {R"({"chosen": "a", "rejected": "b"})", "chosen and rejected do not begin alike: there is no prompt"},
      {R"({"chosen": "a", "rejected": "a"})", "chosen and rejected are the same"},
      {R"({"prompt": [{"role": "user", "content": "q"}], "chosen": "a", "rejected": "a"})", "chosen and rejected are the same"},
      {R"({"prompt": 1, "chosen": "a", "rejected": "b"})", "its prompt is no text"},
      {R"({"prompt": "p", "chosen": ["a"], "rejected": "b"})",
       "its chosen and rejected answers are neither two texts nor two lists of messages"},
      {R"({"conversations": [{"from": "human", "value": "q"}], "chosen": {"from": "gpt"}, "rejected": {"from": "gpt", "value": "b"}})",
       "a message has no role"},
      {R"({"chosen": [{"role": "user", "content": "q"}], "rejected": [{"role": "user", "content": "r"}]})",
       "chosen and rejected do not begin alike: there is no prompt"},
      {R"({"instruction": "i", "history": "h", "chosen": "a", "rejected": "b"})", "its history is no list"},
      {R"({"chosen": "a b", "rejected": "a c", "images": ["i.png"]})", "it has images, which are not read"},
  };
  for (const auto& [text, reason] : rows) {
    INFO(text);
    CHECK(pair_from(text).reason == reason);
  }
}

TEST_CASE("prepare: a pair is two samples, trained where their tokens part") {
  const TemporaryDirectory folder;
  const std::string from = std::string(std::getenv("DISTSETUP_SOURCE")) + "/tests/data/tokenizers/bytes_of_words/tokenizer.json";
  folder.write("tokenizer.json", *read_file(from));
  folder.write("tokenizer_config.json", R"({"eos_token": "<|go|>"})");
  folder.write(
      "chat.jinja",
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}");
  folder.write("pairs.jsonl", R"({"prompt": "the plan ", "chosen": "that fits", "rejected": "that fails"}
{"prompt": "the plan ", "chosen": "fits", "rejected": "fits"}
{"chosen": [{"role": "user", "content": "a plan"}, {"role": "assistant", "content": "fits"}], "rejected": [{"role": "user", "content": "a plan"}, {"role": "assistant", "content": "is better"}]}
)");
  const Result<Tokenizer> tokenizer = read_tokenizer(folder.path());
  REQUIRE(tokenizer.ok());
  PrepareRequest request;
  request.sources = {{"pairs", {folder.path("pairs.jsonl")}, 0, {}}};
  request.tokenizer = &*tokenizer;
  request.output = folder.path("set");
  request.held_out_every = 0;
  const Result<Prepared> no_template = prepare(request);
  REQUIRE_FALSE(no_template.ok());
  CHECK(no_template.diagnostics.back().location.line == 3);
  const Result<ModelTemplate> chat = read_chat_template(folder.path("chat.jinja"));
  REQUIRE(chat.ok());
  request.chat = &*chat;
  const Result<Prepared> prepared = prepare(request);
  INFO(format_diagnostics(prepared.diagnostics));
  REQUIRE(prepared.ok());
  CHECK(prepared->set.holds_pairs);
  CHECK(prepared->set.training.samples == 4);
  CHECK(prepared->set.sources[0].dropped.at("chosen and rejected are the same") == 1);
  CHECK(read_set_description(folder.path("set"))->holds_pairs);
  const Result<PreparedSplit> split = PreparedSplit::open(folder.path("set"), SetSplit::kTraining);
  REQUIRE(split.ok());
  const auto text_of = [&](int64_t i) {
    const TrainedSpan span = split->spans(i)[0];
    const auto ids = split->tokens(i);
    return *decode(*tokenizer, {ids.begin(), ids.begin() + span.begin}, SkipSpecials::kNo) + "|" +
           *decode(*tokenizer, {ids.begin() + span.begin, ids.end()}, SkipSpecials::kNo);
  };
  // The prompt's last blank is a token of its own, and part of the next word where one follows.
  CHECK(text_of(0) == "<s>the plan| that fits<|go|>");
  CHECK(text_of(1) == "<s>the plan| that fails<|go|>");
  CHECK(text_of(2) == "[user]a plan\n[assistant]|fits\n");
  CHECK(split->spans(0)[0].begin == split->spans(1)[0].begin);
  const Result<SetLengths> lengths = read_set_lengths(folder.path("set"));
  REQUIRE(lengths.ok());
  CHECK(pieces_of(*lengths, 64).size() == 2);
  CHECK(pieces_of(*lengths, split->spans(0)[0].begin - 1).size() <= 1);
  // The last three tokens of the prompt stay, and the whole answer is trained; a prompt that is no longer stays as it is.
  request.sources = {{"pairs", {folder.path("pairs.jsonl")}, 0, {}}};
  request.output = folder.path("cut");
  request.longest_prompt = 3;
  REQUIRE(prepare(request).ok());
  const Result<PreparedSplit> cut = PreparedSplit::open(folder.path("cut"), SetSplit::kTraining);
  REQUIRE(cut.ok());
  REQUIRE(cut->size() == 4);
  for (int64_t i = 0; i < 4; ++i) {
    const auto whole = split->tokens(i), part = cut->tokens(i);
    const size_t gone = split->spans(i)[0].begin > 3 ? split->spans(i)[0].begin - 3 : 0;
    CHECK(std::equal(part.begin(), part.end(), whole.begin() + static_cast<ptrdiff_t>(gone), whole.end()));
    CHECK(cut->spans(i)[0].begin + gone == split->spans(i)[0].begin);
    CHECK(cut->spans(i)[0].end == part.size());
  }
  CHECK(split->spans(2)[0].begin > 3);  // a conversation's
  request.longest_prompt = 0;
  folder.write("mixed.jsonl", "{\"text\": \"a plan\"}\n{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n");
  request.sources = {{"mixed", {folder.path("mixed.jsonl")}, 0, {}}};
  request.output = folder.path("other");
  const Result<Prepared> mixed = prepare(request);
  REQUIRE_FALSE(mixed.ok());
  CHECK(mixed.diagnostics.front().message == "this row is a preference pair, and those before it are none");
}
