// Rows of the files that people keep training text in:
//   .jsonl, .ndjson   an object on each line
//   .json             a list of objects
//   .csv, .tsv        a record on each line, a header first (csv.h); lists within a field are JSON
//   .bin, .idx        token ids as Megatron-LM keeps them (megatron_files.h)
//   .txt and others   the whole file is one text
// What a row is follows from its keys, as Hugging Face's trainers name them: text; prompt and completion (or response); messages or
// conversations (role and content, or ShareGPT's from and value); instruction, input and output (Alpaca); a preference pair
// (pair_rows.h); a tree of OpenAssistant's (tree_rows.h).
// Leaves out, by name: compressed files.
#pragma once
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "data/dropped_rows.h"
#include "data/prompt_format.h"

namespace distsetup {

struct SourceRow {
  enum class Kind { kText, kPromptCompletion, kChat, kTextPair, kChatPair, kTokens } kind = Kind::kText;
  std::string text;                          // kText
  std::string prompt, completion, rejected;  // kPromptCompletion; of kTextPair the completion is the chosen one
  // kChat: an object with messages (role, content), and what else stood beside them (tools). kChatPair: messages are the prompt, and
  // chosen and rejected the messages after it.
  nlohmann::ordered_json chat;
  std::vector<bool> left_out;  // kChat, by message: the assistant's that are not trained; empty: all of them are
  std::vector<uint32_t> ids;   // kTokens
  Location at;
};

// What a file's rows became.
struct RowCounts {
  int64_t rows = 0;     // all that were found
  DroppedRows dropped;  // by the reader
  std::string format;   // "text", "jsonl messages", "json alpaca", several after commas
  std::string sha256;
};

struct RowOptions {
  std::map<std::string, std::string> fields;  // our name of a key -> the file's: {"text", "content"}
  std::string format;                         // "jsonl", "json", "csv", "tsv", "text", "megatron"; "": by the file's ending
  std::optional<PromptFormat> prompt_format;  // around prompts that no chat template writes; rows of other kinds are dropped
};
const std::vector<std::string>& source_formats();

// Calls `use` for each row that says what it is, and stops at its errors.
// Errors: the file cannot be read, is of a kind that is refused, is no JSON as a whole.
using RowUser = std::function<Diagnostics(SourceRow)>;
Result<RowCounts> read_rows(const std::string& path, const RowOptions& options, const RowUser& use);

// One row of JSON as what it is; a text: why it is none of the kinds.
struct RowOrReason {
  SourceRow row;
  std::string reason, kind;  // reason "": row is one; kind: "messages", "alpaca"
};
RowOrReason row_of(const nlohmann::ordered_json& json, const RowOptions& options);

// "": `messages` is a list of {role, content}; ShareGPT's turns are made into such. left_out: which of them say that they are not
// trained.
std::string problem_of_messages(nlohmann::ordered_json& messages, std::vector<bool>& left_out);

}  // namespace distsetup
