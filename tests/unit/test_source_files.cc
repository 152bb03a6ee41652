// Files that people keep training text in: CSV as RFC 4180 has it, Megatron-LM's ids, and which messages are trained.
#include <unistd.h>
#include <catch2/catch.hpp>
#include <filesystem>

#include "base/file.h"
#include "data/csv.h"
#include "data/megatron_files.h"
#include "data/set_writer.h"
#include "data/source_rows.h"
#include "support/temporary_directory.h"

using namespace distsetup;

namespace {

namespace fs = std::filesystem;
using Records = std::vector<std::vector<std::string>>;

struct Parsed {
  Records records;
  std::vector<int> lines;
  std::vector<std::string> problems;
};
// In pieces of `size` bytes, which must not matter.
Parsed parse(const std::string& text, size_t size, char separator = ',') {
  Parsed out;
  const auto take = [&](CsvRecord r) {
    out.records.push_back(r.fields);
    out.lines.push_back(r.line);
    if (!r.problem.empty()) out.problems.push_back(r.problem);
    return true;
  };
  CsvReader reader(separator);
  for (size_t at = 0; at < text.size(); at += size) reader.read(std::string_view(text).substr(at, size), take);
  if (auto last = reader.finish()) take(*last);
  return out;
}

Result<RowCounts> rows_of_file(const std::string& path, std::vector<SourceRow>& rows, const RowOptions& options = {}) {
  return read_rows(path, options, [&](SourceRow row) {
    rows.push_back(std::move(row));
    return Diagnostics{};
  });
}

}  // namespace

TEST_CASE("csv: quoted fields hold separators, line ends and quotes, and lines are counted") {
  const std::string text = "a,b\r\n\"x,\"\"y\"\"\nz\",2\n\n,\n last ,\"\"";
  for (const size_t size : {1u, 2u, 3u, 100u}) {
    const Parsed p = parse(text, size);
    CHECK(p.records == Records{{"a", "b"}, {"x,\"y\"\nz", "2"}, {"", ""}, {" last ", ""}});
    CHECK(p.lines == std::vector<int>{1, 2, 5, 6});
    CHECK(p.problems.empty());
  }
  CHECK(parse("a\tb,c\n", 1, '\t').records == Records{{"a", "b,c"}});
  CHECK(parse("say \"hi\",1\n", 1).records == Records{{"say \"hi\"", "1"}});
  CHECK(parse("one\n", 1).records == Records{{"one"}});
  CHECK(parse("", 1).records.empty());
  CHECK(parse("a,\"open\nto the end", 4).problems == std::vector<std::string>{"a quote is not closed before the file ends"});
  CHECK(parse("\"a\"b,1\nc,2\n", 4).problems == std::vector<std::string>{"text follows a closing quote"});
  CHECK(parse("\"a\"\r\n\"b\"\r\n", 1).records == Records{{"a"}, {"b"}});
}

TEST_CASE("csv: a header names the fields, rows of another width are dropped and said once") {
  const TemporaryDirectory folder;
  folder.write("rows.csv",
               "\xEF\xBB\xBFinstruction,input,output\nq,,a\nshort,1\n\"long\nquestion\",x,\"an \"\"answer\"\"\"\n1,2,3,4\n");
  std::vector<SourceRow> rows;
  const Result<RowCounts> counts = rows_of_file(folder.path("rows.csv"), rows);
  REQUIRE(counts.ok());
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].chat["messages"][0]["content"] == "q");
  CHECK(rows[1].chat["messages"][0]["content"] == "long\nquestion\n\nx");
  CHECK(rows[1].at.line == 4);
  CHECK(counts->format == "csv alpaca");
  REQUIRE(counts->dropped.by_reason.size() == 1);
  CHECK(counts->dropped.by_reason.begin()->first == "it has 2 fields, the header 3");
  CHECK(counts->dropped.by_reason.begin()->second == 2);
  folder.write("chats.csv", "id,messages\n1,\"[{\"\"role\"\": \"\"user\"\", \"\"content\"\": \"\"q\"\"}]\"\n2,none\n");
  rows.clear();
  const Result<RowCounts> chats = rows_of_file(folder.path("chats.csv"), rows);
  REQUIRE(chats.ok());
  CHECK(rows.size() == 1);
  CHECK(chats->dropped.by_reason.size() == 1);
  for (const char* broken : {"", "a,a\n1,2\n", "\"a\n1,2\n"}) {
    folder.write("broken.csv", broken);
    CHECK_FALSE(rows_of_file(folder.path("broken.csv"), rows).ok());
  }
  folder.write("notes", "a,b\n1,2\n");
  rows.clear();
  CHECK(rows_of_file(folder.path("notes"), rows)->format == "text");
  CHECK(rows_of_file(folder.path("notes"), rows, {{{"prompt", "a"}, {"completion", "b"}}, "csv", {}})->format ==
        "csv prompt-completion");
}

TEST_CASE("source rows: keys that are not known are named, and reasons that differ in numbers are one") {
  const TemporaryDirectory folder;
  folder.write("list.jsonl", "[\n{\"text\": \"a\"}\n]\n");
  std::vector<SourceRow> listed;
  CHECK(rows_of_file(folder.path("list.jsonl"), listed)->rows == 1);
  CHECK(listed.size() == 1);
  folder.write("object.json", "{\"vocabulary\": {}}");
  CHECK_FALSE(rows_of_file(folder.path("object.json"), listed).ok());
  folder.write("rows.jsonl", R"({"question": "q", "reply": "a"}
{"query": "q"}
{"messages": [{"role": "assistant", "content": "a", "weight": 0.25}]}
{"messages": [{"role": "assistant", "content": "a", "weight": 0.5}]}
)");
  std::vector<SourceRow> rows;
  const Result<RowCounts> counts = rows_of_file(folder.path("rows.jsonl"), rows);
  REQUIRE(counts.ok());
  CHECK(counts->dropped.by_reason ==
        std::map<std::string, int64_t>{{"it has none of text, messages, prompt and completion, instruction and output, chosen and "
                                        "rejected; its keys: 'question', 'reply'",
                                        2},
                                       {"a message has the weight 0.25, expected 0 or 1: it is trained or not", 2}});
}

TEST_CASE("source rows: messages say whether they are trained") {
  const auto row = [](const char* text) { return row_of(nlohmann::ordered_json::parse(text), {}); };
  const RowOrReason weights = row(R"({"system": "s", "messages": [{"role": "user", "content": "q", "weight": 0},
    {"role": "assistant", "content": "a", "weight": 0}, {"role": "user", "content": "q"},
    {"role": "assistant", "content": "b", "weight": 1}]})");
  CHECK(weights.row.left_out == std::vector<bool>{false, false, true, false, false});
  CHECK_FALSE(weights.row.chat["messages"][2].contains("weight"));
  const RowOrReason train = row(R"({"conversations": [{"from": "human", "value": "q", "train": false},
    {"from": "gpt", "value": "a", "train": false}, {"from": "gpt", "value": "b", "loss_weight": 1.0}]})");
  CHECK(train.row.left_out == std::vector<bool>{false, true, false});
  CHECK(row(R"({"messages": [{"role": "assistant", "content": "a", "weight": 1, "train": null}]})").row.left_out.empty());
  CHECK(row(R"({"messages": [{"role": "user", "content": "a", "train": true}]})").reason ==
        "a message of 'user' is to be trained, expected the assistant's alone");
  CHECK_FALSE(row(R"({"messages": [{"role": "assistant", "content": "a", "train_detail": [{"begin_offset": 0}]}]})").reason.empty());
  CHECK_FALSE(row(R"({"messages": [{"role": "assistant", "content": "a", "loss_weight": "high"}]})").reason.empty());
}

TEST_CASE("Megatron-LM's files: what is written is read, and what is broken is refused") {
  const TemporaryDirectory folder;
  const std::vector<std::vector<uint32_t>> documents = {{1, 2, 3}, {}, {65000, 4}};
  for (const int64_t vocabulary : {65000, 100000}) {
    const std::string prefix = folder.path("set" + std::to_string(vocabulary));
    CHECK(write_megatron(prefix, vocabulary, 3, [&](int64_t i) { return documents[static_cast<size_t>(i)]; }).empty());
    CHECK_FALSE(write_megatron(prefix, vocabulary, 0, [&](int64_t) { return documents[0]; }).empty());
    std::vector<std::vector<uint32_t>> read;
    const auto use = [&](int64_t, std::vector<uint32_t> ids) {
      read.push_back(std::move(ids));
      return Diagnostics{};
    };
    CHECK(read_megatron(prefix + ".idx", use).empty());
    CHECK(read == documents);
    CHECK(fs::file_size(prefix + ".bin") == (vocabulary == 65000 ? 10u : 20u));
    fs::resize_file(prefix + ".bin", 8);
    CHECK_FALSE(read_megatron(prefix + ".bin", use).empty());
    fs::resize_file(prefix + ".idx", 50);
    CHECK_FALSE(read_megatron(prefix + ".bin", use).empty());
    fs::remove(prefix + ".bin");
    CHECK_FALSE(read_megatron(prefix + ".idx", use).empty());
  }
  folder.write("other.idx", "no index at all");
  folder.write("other.bin", "");
  std::vector<SourceRow> rows;
  CHECK_FALSE(rows_of_file(folder.path("other.idx"), rows).ok());
}

TEST_CASE("prepared sets: what a process left that was killed is removed, what is under way is kept") {
  const TemporaryDirectory folder;
  char host[256] = {};
  REQUIRE(::gethostname(host, sizeof host - 1) == 0);
  const std::string mine = std::string(".partial.") + host + ".";
  folder.write("set" + mine + "999999999/training.tokens", "left");
  folder.write("set" + mine + std::to_string(::getppid()) + "/training.tokens", "under way");
  folder.write("set.partial.elsewhere.999999999/training.tokens", "another machine's");
  folder.write("other" + mine + "999999999/training.tokens", "another set's");
  { const Result<SetWriter> writer = SetWriter::create(folder.path("set")); }
  CHECK_FALSE(fs::exists(folder.path("set" + mine + "999999999")));
  CHECK(fs::exists(folder.path("set" + mine + std::to_string(::getppid()))));
  CHECK(fs::exists(folder.path("set.partial.elsewhere.999999999")));
  CHECK(fs::exists(folder.path("other" + mine + "999999999")));
}
