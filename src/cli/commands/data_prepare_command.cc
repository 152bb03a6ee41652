// `distsetup data prepare`, `data show`: texts and conversations as token ids that a run trains on.
#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/quantity.h"
#include "cli/commands/commands.h"
#include "cli/commands/data_text.h"
#include "cli/line/output.h"
#include "cli/settings/data_sources.h"
#include "data/prepared_set.h"
#include "text/prepare/prepare.h"
#include "text/tokenizer/read_tokenizer.h"

namespace distsetup {
namespace {

constexpr int64_t kMostSamples = 1'000'000'000'000, kMostThreads = 1024, kLongestPrompt = UINT32_MAX;

// How often a sample is held out; what is wrong with the flags otherwise.
Result<int64_t> held_out_of(const Arguments& arguments) {
  if (!arguments.has("output"))
    return error(code::kMissingArgument, {"command line"}, "--output is missing",
                 "distsetup data prepare chats.jsonl --tokenizer MODEL-FOLDER --output chats");
  Result<int64_t> every = int_flag(arguments, "held-out", 20, 0, kMostSamples);
  if (every.ok() && arguments.has("validation")) {
    if (arguments.has("held-out") && *every != 0)
      return error(code::kConflict, {"command line"}, "--held-out and --validation both say what is held out",
                   "leave one of them out");
    return 0;
  }
  if (every.ok() && *every == 1)
    return error(code::kOutOfRange, {"command line"}, "--held-out is 1, which leaves nothing to train on",
                 "0 for none, or a number from 2 on");
  return every;
}

int run_prepare(const Arguments& arguments, const Terminal& terminal) {
  const Result<int64_t> held_out_every = held_out_of(arguments);
  if (!held_out_every.ok()) return fail(arguments, terminal, held_out_every.diagnostics);
  Result<PrepareInputs> inputs = prepare_inputs(arguments);
  if (!inputs.ok()) return fail(arguments, terminal, inputs.diagnostics);
  inputs->tokenizer = arguments.text("tokenizer", inputs->tokenizer);
  inputs->chat_template = arguments.text("template", inputs->chat_template);
  if (inputs->tokenizer.empty())
    return fail(arguments, terminal,
                {error(code::kMissingArgument, {"command line"}, "--tokenizer is missing",
                       "distsetup data prepare chats.jsonl --tokenizer MODEL-FOLDER --output chats")});
  const Result<ReadyInputs> ready = open_inputs(std::move(*inputs));
  if (!ready.ok()) return fail(arguments, terminal, ready.diagnostics);
  PrepareRequest request = request_of(*ready);
  const Result<int64_t> threads = int_flag(arguments, "threads", 0, 1, kMostThreads);
  if (!threads.ok()) return fail(arguments, terminal, threads.diagnostics);
  request.num_threads = static_cast<int>(*threads);
  request.held_out_every = *held_out_every;
  request.trains_prompts = arguments.has("train-on-prompts");
  const Result<int64_t> longest_prompt = int_flag(arguments, "max-prompt-length", 0, 0, kLongestPrompt);
  if (!longest_prompt.ok()) return fail(arguments, terminal, longest_prompt.diagnostics);
  request.longest_prompt = *longest_prompt;
  request.output = arguments.text("output");
  if (terminal.err.is_terminal && terminal.talk == Talk::kNormal)
    request.shows_progress = [&terminal](int64_t rows) { mention(terminal, fmt::format("\r{} rows", format_count(rows))); };
  const Result<Prepared> prepared = prepare(request);
  if (request.shows_progress) mention(terminal, "\r\033[K");
  if (!prepared.ok()) return fail(arguments, terminal, prepared.diagnostics);
  say_diagnostics(terminal, prepared->notes);
  if (arguments.has("json")) return print_result(terminal, dump_json(set_to_json(prepared->set)));
  return print_result(terminal, set_text(prepared->set) + fmt::format("distsetup plan … --data {}\n", request.output));
}

// A part of a sample as text, trained or not.
struct SamplePart {
  std::string text;
  bool is_trained = false;
};
Result<std::vector<SamplePart>> parts_of(const Tokenizer& tokenizer, const PreparedSplit& split, int64_t i) {
  const std::span<const uint32_t> ids = split.tokens(i);
  std::vector<SamplePart> parts;
  Diagnostics said;
  size_t at = 0;
  const auto add = [&](size_t end, bool is_trained) {
    if (end == at) return;
    const auto part = ids.subspan(at, end - at);
    Result<std::string> text = decode(tokenizer, {part.begin(), part.end()}, SkipSpecials::kNo);
    append(said, text.diagnostics);
    if (text.ok()) parts.push_back({std::move(*text), is_trained});
    at = end;
  };
  for (const TrainedSpan& span : split.spans(i)) {
    add(span.begin, false);
    add(span.end, true);
  }
  add(ids.size(), false);
  if (has_error(said)) return said;
  return parts;
}

// What is trained between marks.
std::string marked(const std::vector<SamplePart>& parts, bool has_colour) {
  std::string out;
  for (const SamplePart& part : parts) {
    std::string text = printable(part.text);
    if (part.is_trained) text = (has_colour ? "\033[32m" : "⟦") + text + (has_colour ? "\033[0m" : "⟧");
    out += text;
  }
  return out;
}

Json sample_json(int64_t number, const PreparedSplit& split, const std::vector<SamplePart>& parts) {
  Json json = {{"sample", number}, {"ids", split.tokens(number)}, {"parts", Json::array()}};
  for (const SamplePart& part : parts) json["parts"].push_back({{"text", part.text}, {"trained", part.is_trained}});
  return json;
}

int run_show(const Arguments& arguments, const Terminal& terminal) {
  if (!arguments.has("tokenizer"))
    return fail(arguments, terminal,
                {error(code::kMissingArgument, {"command line"}, "--tokenizer is missing",
                       "name the tokenizer that the set was prepared with: distsetup data show SET --tokenizer MODEL-FOLDER")});
  const std::string folder = arguments.positionals[0];
  const Result<SetDescription> set = read_set_description(folder);
  if (!set.ok()) return fail(arguments, terminal, set.diagnostics);
  const Result<Tokenizer> tokenizer = read_tokenizer(arguments.text("tokenizer"));
  if (!tokenizer.ok()) return fail(arguments, terminal, tokenizer.diagnostics);
  if (tokenizer->digest != set->tokenizer_digest)
    return fail(arguments, terminal,
                {error(code::kData, {folder}, fmt::format("the set was prepared with another tokenizer ({})", set->tokenizer),
                       "name that one as --tokenizer")});
  const Result<PreparedSplit> split = PreparedSplit::open(folder, SetSplit::kTraining);
  if (!split.ok()) return fail(arguments, terminal, split.diagnostics);
  const Result<int64_t> first = int_flag(arguments, "first", 0, 0, kMostSamples);
  const Result<int64_t> count = int_flag(arguments, "samples", 3, 0, kMostSamples);
  for (const Result<int64_t>* number : {&first, &count})
    if (!number->ok()) return fail(arguments, terminal, number->diagnostics);
  std::string out;
  Json json = {{"schema_version", 1}, {"samples", Json::array()}};
  const int64_t each = set->holds_pairs ? 2 : 1;
  for (int64_t i = *first * each; i < std::min(split->size(), (*first + *count) * each); ++i) {
    const Result<std::vector<SamplePart>> parts = parts_of(*tokenizer, *split, i);
    if (!parts.ok()) return fail(arguments, terminal, parts.diagnostics);
    json["samples"].push_back(sample_json(i, *split, *parts));
    const std::string what =
        set->holds_pairs ? fmt::format("pair {}, {}", i / 2, i % 2 == 0 ? "chosen" : "rejected") : fmt::format("sample {}", i);
    out += fmt::format("{}{} · {} tokens\n{}", out.empty() ? "" : "\n", what, split->tokens(i).size(),
                       marked(*parts, terminal.out.colour == Colour::kOn));
    if (!out.ends_with('\n')) out += '\n';
  }
  return print_result(terminal, arguments.has("json") ? dump_json(json) : out);
}

}  // namespace

Command data_prepare_command() {
  Command command;
  command.summary = "texts, conversations and preference pairs as token ids to train on";
  command.positional = "SOURCE...";
  command.min_positionals = 1;
  command.max_positionals = 10000;
  command.examples = {"distsetup data prepare chats.jsonl --tokenizer model --output chats",
                      "distsetup data prepare books --tokenizer model/tokenizer.json --output books.set",
                      "distsetup data prepare rows.csv --fields prompt=question,completion=answer --tokenizer model --output rows",
                      "distsetup data prepare chats.jsonl books --weights 0.7,0.3 --tokenizer model --output mixture"};
  command.notes =
      "SOURCE is a file or a folder: .jsonl with an object on each line, .json with a list of them, .csv and .tsv with a header, "
      ".parquet (by a plugin), Megatron-LM's .bin and .idx, anything else is one text; or a run file with data.sources. A row "
      "has text; prompt and completion; messages (or conversations); instruction, input and output; or chosen and rejected answers "
      "(preference pairs, which a set holds apart from other rows). Of conversations what the assistant wrote is trained, of prompts "
      "the completion. Rows that cannot be used are dropped and counted. With --weights the next sample of training comes from the "
      "source that is furthest behind its share.";
  command.flags = {
      {"tokenizer", {}, FlagKind::kValue, "PATH", "folder of a model, or a tokenizer file"},
      {"output", {"o"}, FlagKind::kValue, "FOLDER", "where the set is written; must not exist"},
      {"template",
       {"chat-template"},
       FlagKind::kValue,
       "PATH",
       "chat template of conversations; default: the one in the tokenizer's folder"},
      {"fields", {}, FlagKind::kValue, "OURS=THEIRS,...", "names of keys in the rows: text=content"},
      {"prompt-format", {}, FlagKind::kValue, "TEXT", "words around prompts, with {} for the prompt: 'Question: {}'"},
      {"weights", {"dataset-probs"}, FlagKind::kValue, "W,...", "a mixture: how much of training comes from each SOURCE"},
      {"format", {}, FlagKind::kValue, "FORMAT", "of all sources, whatever their endings", 0, source_formats()},
      {"held-out", {}, FlagKind::kValue, "N", "one sample in N is held out for evaluation (20); 0: none"},
      {"validation", {}, FlagKind::kValue, "SOURCE", "a source that is held out whole, and nothing of the others"},
      {"train-on-prompts",
       {"train-on-input"},
       FlagKind::kSwitch,
       "",
       "what users wrote is trained, too, and what the template puts around it; not of preference pairs"},
      {"max-prompt-length",
       {"max-prompt-tokens"},
       FlagKind::kValue,
       "N",
       "of a preference pair's prompt that is longer, the last N tokens stay; default: all of it"},
      {"threads", {}, FlagKind::kValue, "N", "that make tokens; default: one for each processor"},
  };
  command.run = run_prepare;
  return command;
}

Command data_show_command() {
  Command command;
  command.summary = "samples of a prepared data set as text, with what is trained";
  command.positional = "SET";
  command.min_positionals = command.max_positionals = 1;
  command.examples = {"distsetup data show chats --tokenizer model",
                      "distsetup data show chats --tokenizer model --first 100 --samples 1"};
  command.flags = {
      {"tokenizer", {}, FlagKind::kValue, "PATH", "the tokenizer that the set was prepared with"},
      {"first", {}, FlagKind::kValue, "N", "the first sample to show (0)"},
      {"samples", {}, FlagKind::kValue, "N", "how many (3)"},
  };
  command.run = run_show;
  return command;
}

}  // namespace distsetup
