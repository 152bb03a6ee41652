// Which bytes of a rendered conversation are trained: what the assistant wrote. Either the template marks it ({% generation %}), or it
// is found by prefixes or by marks and proven for this very conversation; otherwise it is refused, never guessed.
#pragma once
#include "text/template/chat_template.h"
#include "text/template/chat_values.h"

namespace distsetup {

enum class MaskMethod { kGenerationBlocks, kPrefixes, kMarks };
std::string_view name(MaskMethod method);  // "generation blocks", "prefixes", "marks"

struct TrainedText {
  std::string text;
  std::vector<ByteRange> trained;  // in order, not empty, not overlapping
  MaskMethod method = MaskMethod::kGenerationBlocks;
  std::vector<size_t> messages{};  // of each range the assistant's message that it is; empty: not known
};

// Prefixes: for every message of the assistant, the text of the conversation in front of it with the generation prompt must begin the
// text that ends with it, and that must begin the whole. A template that rewrites earlier turns (it drops their reasoning) fails this:
// marked_ranges.h.
Result<TrainedText> trained_text(const ChatTemplate& chat, const ChatRequest& request, const std::tm& now,
                                 const RenderLimits& limits = {});

}  // namespace distsetup
