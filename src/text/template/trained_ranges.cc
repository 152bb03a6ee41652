#include "text/template/trained_ranges.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "text/template/marked_ranges.h"
#include "text/template/part_renderer.h"

namespace distsetup {
namespace {

Diagnostic refused(const ChatTemplate& chat, const std::string& why) {
  return error(code::kUnsupportedFeature, {chat.name}, why,
               "give a template that marks what is trained with {% generation %} … {% endgeneration %}");
}

// The bytes that message `i` of the assistant adds.
Result<ByteRange> added_by(const PartRenderer& renderer, size_t i, std::string_view whole) {
  const Result<Rendered> before = renderer.first(i, true);
  const Result<Rendered> after = renderer.first(i + 1, false);
  const std::string which = fmt::format("message {}, of the assistant", i + 1);
  if (!before.ok() || !after.ok()) {
    Diagnostics why = (before.ok() ? after : before).diagnostics;
    why.push_back(
        refused(renderer.chat, which + ": the template does not render the conversation up to it, so its bytes are not known"));
    return why;
  }
  if (after->text.compare(0, before->text.size(), before->text) != 0) {
    return refused(renderer.chat, which + ": the prompt in front of it does not begin the text with it, so its bytes are not known");
  }
  if (whole.substr(0, after->text.size()) != after->text) {
    return refused(renderer.chat,
                   which + ": the template writes it differently once other messages follow, so its bytes are not known");
  }
  return ByteRange{before->text.size(), after->text.size()};
}

// Of each message of the assistant.
Result<std::vector<ByteRange>> ranges_by_prefixes(const PartRenderer& renderer, std::string_view whole) {
  std::vector<ByteRange> ranges;
  for (size_t i = 0; i < renderer.request.messages.size(); ++i) {
    if (!is_assistant(renderer.request.messages[i])) continue;
    const Result<ByteRange> range = added_by(renderer, i, whole);
    if (!range.ok()) return range.diagnostics;
    ranges.push_back(*range);
  }
  return ranges;
}

}  // namespace

std::string_view name(MaskMethod method) {
  switch (method) {
    case MaskMethod::kGenerationBlocks: return "generation blocks";
    case MaskMethod::kPrefixes: return "prefixes";
    case MaskMethod::kMarks: return "marks";
  }
  return "";
}

Result<TrainedText> trained_text(const ChatTemplate& chat, const ChatRequest& request, const std::tm& now,
                                 const RenderLimits& limits) {
  const PartRenderer renderer{chat, request, now, limits};
  Result<Rendered> whole = renderer.first(request.messages.size(), request.adds_generation_prompt);
  if (!whole.ok()) return whole.diagnostics;
  TrainedText out;
  if (chat.has_generation) {
    if (whole->lost_span) {
      Diagnostic lost = refused(chat, "a generation block writes into a variable or macro, so its place in the text is not known");
      lost.location = *whole->lost_span;
      lost.help = "write the block where its text is printed";
      return lost;
    }
    out.trained = std::move(whole->spans);
  } else {
    Result<std::vector<ByteRange>> ranges = ranges_by_prefixes(renderer, whole->text);
    out.method = ranges.ok() ? MaskMethod::kPrefixes : MaskMethod::kMarks;
    if (!ranges.ok()) {
      Result<std::vector<ByteRange>> marked = marked_ranges(renderer, whole->text);
      if (!marked.ok()) return ranges.diagnostics;
      ranges = std::move(marked);
    }
    out.trained = std::move(*ranges);
  }
  for (size_t i = 0; i < request.messages.size(); ++i)
    if (is_assistant(request.messages[i])) out.messages.push_back(i);
  if (out.messages.size() != out.trained.size()) out.messages.clear();  // not a block for each
  for (size_t i = out.trained.size(); i-- > 0;) {
    if (out.trained[i].begin != out.trained[i].end) continue;
    out.trained.erase(out.trained.begin() + static_cast<ptrdiff_t>(i));
    if (!out.messages.empty()) out.messages.erase(out.messages.begin() + static_cast<ptrdiff_t>(i));
  }
  out.text = std::move(whole->text);
  return out;
}

}  // namespace distsetup
