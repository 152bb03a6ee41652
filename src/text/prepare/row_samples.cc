#include "text/prepare/row_samples.h"

#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "text/prepare/pair_samples.h"
#include "text/template/trained_ranges.h"

namespace distsetup {
namespace {

struct OneSample {
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

class SingleSamples {
 public:
  SingleSamples(const PrepareRequest& request, Encoder& encoder)
      : request_(request), tokenizer_(*request.tokenizer), encoder_(encoder) {}

  Result<OneSample> of(const SourceRow& row) {
    switch (row.kind) {
      case SourceRow::Kind::kText: return of_text(row);
      case SourceRow::Kind::kPromptCompletion: return of_completion(row);
      case SourceRow::Kind::kChat: return of_chat(row);
      case SourceRow::Kind::kTokens: return of_tokens(row);
      case SourceRow::Kind::kTextPair:
      case SourceRow::Kind::kChatPair: break;  // two samples
    }
    return OneSample{};
  }

 private:
  static OneSample dropped(const Diagnostics& why) { return {{}, why.front().message}; }

  void end(std::vector<uint32_t>& ids) const {
    if (tokenizer_.eos && (ids.empty() || ids.back() != *tokenizer_.eos)) ids.push_back(*tokenizer_.eos);
  }

  OneSample of_text(const SourceRow& row) {
    Result<Encoding> encoding = encoder_.encode(row.text);
    if (!encoding.ok()) return dropped(encoding.diagnostics);
    OneSample out;
    out.sample.ids = std::move(encoding->ids);
    end(out.sample.ids);
    if (out.sample.ids.size() < 2) return {{}, "it has less than two tokens"};
    out.sample.spans = {{0, static_cast<uint32_t>(out.sample.ids.size())}};
    return out;
  }

  OneSample of_completion(const SourceRow& row) {
    const std::string text = row.prompt + row.completion;
    Result<Encoding> encoding = encoder_.encode(text);
    if (!encoding.ok()) return dropped(encoding.diagnostics);
    OneSample out;
    out.sample.too_long = TooLong::kIsCut;
    out.sample.spans = tokens_in(encoding->offsets, {{row.prompt.size(), text.size()}});
    out.sample.ids = std::move(encoding->ids);
    if (out.sample.spans.empty()) return {{}, "its completion is empty"};
    if (request_.trains_prompts) out.sample.spans = {{0, static_cast<uint32_t>(out.sample.ids.size())}};
    end(out.sample.ids);
    out.sample.spans.back().end = static_cast<uint32_t>(out.sample.ids.size());
    return out;
  }

  // Ids of another program, which knows no tokenizer: all that can be checked is that this one has them.
  OneSample of_tokens(const SourceRow& row) {
    for (const uint32_t id : row.ids)
      if (id >= tokenizer_.vocabulary_size())
        return {{}, fmt::format("it has the id {}, the tokenizer has {} ids", id, tokenizer_.vocabulary_size())};
    OneSample out;
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

  Result<OneSample> of_chat(const SourceRow& row) {
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
    if (std::string reason = leave_out(row.left_out, *text); !reason.empty()) return OneSample{{}, std::move(reason)};
    if (request_.trains_prompts && !text->trained.empty()) text->trained = {{0, text->text.size()}};
    Result<Encoding> encoding = encoder_.encode(text->text, {.add_special_tokens = false});  // the template writes its own
    if (!encoding.ok()) return dropped(encoding.diagnostics);
    OneSample out;
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
  Encoder& encoder_;
};

}  // namespace

bool is_pair(const SourceRow& row) { return row.kind == SourceRow::Kind::kTextPair || row.kind == SourceRow::Kind::kChatPair; }

Result<RowSamples> RowTokenizer::samples_of(const SourceRow& row) {
  RowSamples out;
  if (is_pair(row)) {
    Result<PairOrReason> made = pair_of(row, request_, encoder_);
    if (!made.ok()) return made.diagnostics;
    out.reason = std::move(made->reason);
    if (out.reason.empty()) out.together = {std::move(made->chosen), std::move(made->rejected)};
    return out;
  }
  Result<OneSample> made = SingleSamples(request_, encoder_).of(row);
  if (!made.ok()) return made.diagnostics;
  out.reason = std::move(made->reason);
  if (out.reason.empty()) out.together.push_back(std::move(made->sample));
  return out;
}

}  // namespace distsetup
