// Words around prompts.
#include <catch2/catch.hpp>

#include "data/prompt_format.h"
#include "data/source_rows.h"
#include "support/temporary_directory.h"

using namespace distsetup;

TEST_CASE("prompt format: {} is the prompt, braces of the text are written twice") {
  const auto parsed = [](const std::string& text) {
    const Result<PromptFormat> format = parse_prompt_format(text, {});
    return format.ok() ? format->before + "|" + format->after : format.diagnostics.front().message;
  };
  CHECK(parsed("User: {}\nAssistant: ") == "User: |\nAssistant: ");
  CHECK(parsed("{}") == "|");
  CHECK(parsed("{{a}} {} }}{{") == "{a} | }{");
  CHECK(parsed("no place") == "the prompt format 'no place' has no {}, expected {} once, for the prompt");
  CHECK(parsed("{} {}") == "the prompt format '{} {}' has {} more than once, expected {} once, for the prompt");
  CHECK(parsed("{name}") == "the prompt format '{name}' has a '{' that is no {}, expected {} once, for the prompt");
  CHECK(parsed("{} }") == "the prompt format '{} }' has a '}' alone, expected {} once, for the prompt");
  CHECK(parsed("{") == "the prompt format '{' has a '{' that is no {}, expected {} once, for the prompt");
}

TEST_CASE("prompt format: it stands around prompts that are plain text, other rows are dropped") {
  const TemporaryDirectory folder;
  folder.write("rows.jsonl",
               "{\"prompt\": \"2 + 2\", \"completion\": \" 4\"}\n{\"text\": \"a\"}\n"
               "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n"
               "{\"prompt\": \"p\", \"chosen\": \"c\", \"rejected\": \"r\"}\n");
  RowOptions options;
  options.prompt_format = PromptFormat{"Q: ", "\nA:"};
  std::vector<SourceRow> rows;
  const Result<RowCounts> counts = read_rows(folder.path("rows.jsonl"), options, [&rows](SourceRow row) {
    rows.push_back(std::move(row));
    return Diagnostics{};
  });
  REQUIRE(counts.ok());
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].prompt == "Q: 2 + 2\nA:");
  CHECK(rows[0].completion == " 4");
  CHECK(rows[1].prompt == "Q: p\nA:");
  CHECK(counts->dropped.by_reason ==
        std::map<std::string, int64_t>{{"there is a prompt format, and it has no prompt that is plain text", 2}});
}
