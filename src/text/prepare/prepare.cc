#include "text/prepare/prepare.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/digest.h"
#include "base/quantity.h"
#include "base/splitmix.h"
#include "data/set_writer.h"
#include "text/prepare/pair_samples.h"
#include "text/template/trained_ranges.h"

namespace distsetup {
namespace {

// What a row became; a reason where it is of no use.
struct SampleOrReason {
  NewSample sample;
  std::string reason;
};

// Tokens of which some byte lies in one of `ranges`, which are in order.
std::vector<TrainedSpan> tokens_in(const std::vector<TextRange>& offsets, const std::vector<ByteRange>& ranges) {
  std::vector<TrainedSpan> spans;
  size_t r = 0;
  for (size_t i = 0; i < offsets.size(); ++i) {
    while (r < ranges.size() && ranges[r].end <= offsets[i].begin) ++r;
    if (r == ranges.size()) break;
    if (offsets[i].end <= ranges[r].begin || offsets[i].begin == offsets[i].end) continue;
    const auto at = static_cast<uint32_t>(i);
    if (!spans.empty() && spans.back().end == at)
      spans.back().end = at + 1;
    else
      spans.push_back({at, at + 1});
  }
  return spans;
}

bool is_held_out(const std::vector<uint32_t>& ids, int64_t every) {
  if (every <= 0) return false;
  uint64_t sum = 0;
  for (const uint32_t id : ids) sum = splitmix(sum + id + kSplitMixStep);
  return sum % static_cast<uint64_t>(every) == 0;
}

class Samples {
 public:
  explicit Samples(const PrepareRequest& request) : request_(request), tokenizer_(*request.tokenizer), encoder_(tokenizer_) {}

  // Errors stop everything.
  Result<SampleOrReason> of(const SourceRow& row) {
    switch (row.kind) {
      case SourceRow::Kind::kText: return of_text(row);
      case SourceRow::Kind::kPromptCompletion: return of_completion(row);
      case SourceRow::Kind::kChat: return of_chat(row);
      case SourceRow::Kind::kTokens: return of_tokens(row);
      case SourceRow::Kind::kTextPair:
      case SourceRow::Kind::kChatPair: break;  // two samples
    }
    return SampleOrReason{};
  }

 private:
  static SampleOrReason dropped(const Diagnostics& why) { return {{}, why.front().message}; }

  void end(std::vector<uint32_t>& ids) const {
    if (tokenizer_.eos && (ids.empty() || ids.back() != *tokenizer_.eos)) ids.push_back(*tokenizer_.eos);
  }

  SampleOrReason of_text(const SourceRow& row) {
    Result<Encoding> encoding = encoder_.encode(row.text);
    if (!encoding.ok()) return dropped(encoding.diagnostics);
    SampleOrReason out;
    out.sample.ids = std::move(encoding->ids);
    end(out.sample.ids);
    if (out.sample.ids.size() < 2) return {{}, "it has less than two tokens"};
    out.sample.spans = {{0, static_cast<uint32_t>(out.sample.ids.size())}};
    return out;
  }

  SampleOrReason of_completion(const SourceRow& row) {
    const std::string text = row.prompt + row.completion;
    Result<Encoding> encoding = encoder_.encode(text);
    if (!encoding.ok()) return dropped(encoding.diagnostics);
    SampleOrReason out;
    out.sample.too_long = TooLong::kIsCut;
    out.sample.spans = tokens_in(encoding->offsets, {{row.prompt.size(), text.size()}});
    out.sample.ids = std::move(encoding->ids);
    if (out.sample.spans.empty()) return {{}, "its completion is empty"};
    end(out.sample.ids);
    out.sample.spans.back().end = static_cast<uint32_t>(out.sample.ids.size());
    return out;
  }

  // Ids of another program, which knows no tokenizer: all that can be checked is that this one has them.
  SampleOrReason of_tokens(const SourceRow& row) {
    for (const uint32_t id : row.ids)
      if (id >= tokenizer_.vocabulary_size())
        return {{}, fmt::format("it has the id {}, the tokenizer has {} ids", id, tokenizer_.vocabulary_size())};
    SampleOrReason out;
    out.sample.ids = row.ids;
    if (out.sample.ids.size() < 2) return {{}, "it has less than two tokens"};
    out.sample.spans = {{0, static_cast<uint32_t>(out.sample.ids.size())}};
    return out;
  }

  // Leaves the ranges of messages that are trained; a reason where they are not known.
  static std::string leave_out(const std::vector<bool>& left_out, TrainedText& text) {
    if (left_out.empty()) return "";
    if (text.messages.empty())
      return "some of its messages are not to be trained, and the template does not mark one part for each of the assistant's";
    std::vector<ByteRange> rest;
    for (size_t i = 0; i < text.trained.size(); ++i)
      if (!left_out[text.messages[i]]) rest.push_back(text.trained[i]);
    text.trained = std::move(rest);
    return "";
  }

  Result<SampleOrReason> of_chat(const SourceRow& row) {
    if (request_.chat == nullptr) {
      Diagnostics said = request_.why_no_chat;
      said.push_back(error(code::kData, row.at, "this row is a conversation, and there is no chat template",
                           "--template FILE, or --tokenizer with the folder of a model that has one"));
      return said;
    }
    Result<ChatRequest> request = read_chat(row.chat, row.at);
    if (!request.ok()) return dropped(request.diagnostics);
    nlohmann::ordered_json values = request_.chat->special_tokens;
    for (const auto& [key, value] : request->more.items()) values[key] = value;
    request->more = std::move(values);
    Result<TrainedText> text = trained_text(request_.chat->chat, *request, request_.now);
    if (!text.ok()) return dropped(text.diagnostics);
    if (std::string reason = leave_out(row.left_out, *text); !reason.empty()) return SampleOrReason{{}, std::move(reason)};
    Result<Encoding> encoding = encoder_.encode(text->text, {.add_special_tokens = false});  // the template writes its own
    if (!encoding.ok()) return dropped(encoding.diagnostics);
    SampleOrReason out;
    out.sample.too_long = TooLong::kIsCut;
    out.sample.spans = tokens_in(encoding->offsets, text->trained);
    out.sample.ids = std::move(encoding->ids);
    if (out.sample.spans.empty())
      out.reason =
          row.left_out.empty() ? "nothing of it is trained: the assistant wrote nothing" : "no message of it is to be trained";
    return out;
  }

  const PrepareRequest& request_;
  const Tokenizer& tokenizer_;
  Encoder encoder_;
};

Diagnostics mixed(const Location& at, bool is_pair, const Location& first) {
  return {error(code::kData, at,
                is_pair ? "this row is a preference pair, and those before it are none"
                        : "this row is no preference pair, and those before it are",
                "a set holds one or the other: prepare them apart"),
          note(code::kData, first, "the first row that was read")};
}

Diagnostics notes_of(const RowCounts& counts) {
  Diagnostics notes;
  for (const auto& [reason, count] : counts.dropped)
    notes.push_back(
        warning(code::kData, counts.first_dropped.at(reason),
                fmt::format("{} of {} rows dropped, this one first: {}", format_count(count), format_count(counts.rows), reason),
                reason.starts_with("it has none of") ? "--fields prompt=KEY,completion=KEY, if they have other names" : ""));
  return notes;
}

}  // namespace

Result<Prepared> prepare(const PrepareRequest& request) {
  CHECK(request.tokenizer != nullptr, "no tokenizer");
  Result<SetWriter> writer = SetWriter::create(request.output);
  if (!writer.ok()) return writer.diagnostics;
  Prepared out;
  Samples samples(request);
  Encoder encoder(*request.tokenizer);
  int64_t num_rows = 0;
  std::optional<Location> first;
  // Samples that belong together.
  const auto add = [&](std::initializer_list<NewSample*> together) -> Result<std::string> {
    const bool held_out = is_held_out((*together.begin())->ids, request.held_out_every);
    for (NewSample* sample : together) {
      sample->source = static_cast<uint32_t>(out.set.sources.size());
      const Diagnostics said = writer->add(*sample, held_out ? SetSplit::kHeldOut : SetSplit::kTraining);
      if (has_error(said)) return said;
    }
    return std::string();
  };
  const auto use = [&](const SourceRow& row) -> Result<std::string> {
    if (++num_rows % 1000 == 0 && request.shows_progress) request.shows_progress(num_rows);
    const bool is_pair = row.kind == SourceRow::Kind::kTextPair || row.kind == SourceRow::Kind::kChatPair;
    if (!first) first = row.at, out.set.holds_pairs = is_pair;
    if (is_pair != out.set.holds_pairs) return mixed(row.at, is_pair, *first);
    if (is_pair) {
      Result<PairOrReason> made = pair_of(row, request, encoder);
      if (!made.ok()) return made.diagnostics;
      if (!made->reason.empty()) return std::move(made->reason);
      return add({&made->chosen, &made->rejected});
    }
    Result<SampleOrReason> made = samples.of(row);
    if (!made.ok()) return made.diagnostics;
    if (!made->reason.empty()) return std::move(made->reason);
    return add({&made->sample});
  };
  for (const PrepareSource& source : request.sources) {
    const int64_t before = writer->counts(SetSplit::kTraining).trained_tokens;
    for (const std::string& path : source.files) {
      const Result<RowCounts> counts = read_rows(path, source.rows, use);
      if (!counts.ok()) return counts.diagnostics;
      append(out.notes, notes_of(*counts));
      out.set.sources.push_back({path, counts->sha256, counts->format, counts->rows, counts->dropped});
    }
    if (source.weight <= 0) continue;
    out.set.mixture.push_back({source.path, source.weight, static_cast<int64_t>(source.files.size())});
    if (writer->counts(SetSplit::kTraining).trained_tokens > before) continue;
    Diagnostics said = out.notes;
    said.push_back(error(code::kData, {source.path},
                         fmt::format("it has a weight of {} in the mixture, and nothing of it can be trained on", source.weight),
                         "leave it out, or mend it"));
    return said;
  }
  if (writer->counts(SetSplit::kTraining).trained_tokens == 0) {
    Diagnostics said = out.notes;
    int64_t all_rows = 0;
    for (const SetSource& source : out.set.sources) all_rows += source.rows;
    said.push_back(error(code::kData, {},
                         fmt::format("nothing to train on: of {} rows {} are held out, the others were dropped",
                                     format_count(all_rows), format_count(writer->counts(SetSplit::kHeldOut).samples)),
                         "--held-out 0, or other sources"));
    return said;
  }
  out.set.tokenizer = request.tokenizer->file;
  out.set.tokenizer_digest = request.tokenizer->digest;
  out.set.template_digest = request.chat == nullptr ? "" : sha256(request.chat->chat.source);
  out.set.vocabulary_size = static_cast<int64_t>(request.tokenizer->vocabulary_size());
  Result<SetDescription> set = writer->finish(std::move(out.set));
  if (!set.ok()) return set.diagnostics;
  out.set = std::move(*set);
  return out;
}

}  // namespace distsetup
