// OpenAssistant's trees: the conversation that was ranked highest, and what is none.
#include <catch2/catch.hpp>

#include "data/source_rows.h"

using namespace distsetup;

namespace {

RowOrReason read(const char* text) { return row_of(nlohmann::ordered_json::parse(text), {}); }

// "user: a | assistant: b"
std::string turns(const RowOrReason& row) {
  std::string out;
  for (const auto& m : row.row.chat["messages"])
    out += (out.empty() ? "" : " | ") + m["role"].get<std::string>() + ": " + m["content"].get<std::string>();
  return out;
}

}  // namespace

TEST_CASE("oasst trees: the highest ranked reply at each turn, up to the last answer") {
  const RowOrReason row = read(R"({"message_tree_id": "t", "tree_state": "ready_for_export", "prompt": {
    "message_id": "a", "role": "prompter", "text": "q", "replies": [
      {"role": "assistant", "text": "second", "rank": 1, "replies": []},
      {"role": "assistant", "text": "best", "rank": 0, "replies": [
        {"role": "prompter", "text": "gone", "deleted": true, "replies": []},
        {"role": "prompter", "text": "more", "replies": [
          {"role": "assistant", "text": "unranked", "replies": []},
          {"role": "assistant", "text": "ranked", "rank": 3, "replies": [{"role": "prompter", "text": "thanks", "replies": []}]}]}]}]}})");
  CHECK(row.reason.empty());
  CHECK(row.kind == "oasst");
  CHECK(turns(row) == "user: q | assistant: best | user: more | assistant: ranked");
}

TEST_CASE("oasst trees: a row may be the prompt itself") {
  const RowOrReason row = read(R"({"message_id": "a", "parent_id": null, "role": "prompter", "text": "q", "replies": [
    {"message_id": "b", "role": "assistant", "text": "r", "rank": null, "replies": []}]})");
  CHECK(row.reason.empty());
  CHECK(turns(row) == "user: q | assistant: r");
}

TEST_CASE("oasst trees: a prompt without an answer, a message without text and files of messages are told") {
  CHECK(read(R"({"message_tree_id": "t", "prompt": {"role": "prompter", "text": "q", "replies": []}})").reason ==
        "nobody answered its prompt");
  CHECK(read(R"({"message_tree_id": "t", "prompt": {"role": "prompter", "replies": []}})").reason ==
        "a message of the tree has no text");
  CHECK_THAT(read(R"({"message_tree_id": "t", "prompt": {"role": "system", "text": "q"}})").reason, Catch::Contains("neither"));
  CHECK_THAT(read(R"({"message_id": "m", "parent_id": null, "message_tree_id": "t", "role": "prompter", "text": "q"})").reason,
             Catch::Contains("file of trees"));
}
